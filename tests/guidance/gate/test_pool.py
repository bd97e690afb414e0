from guidance.made import tickets
from guidance.trials import numbered
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.gate.pool import Pool, looks, whole_groups
from stageb.guidance.types import Ticket


@given(tickets(min_size=1), st.integers(1, 40), st.data())
def test_a_pool_holds_the_first_whole_groups_of_which_nothing_was_shown(
    made: list[Ticket], size: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(made))))
    shown = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=4, unique=True))
    groups = whole_groups(order, made)
    assert sorted(i for group in groups for i in group) == list(range(len(made)))
    assert [made[group[0]].group_id for group in groups] == list(dict.fromkeys(made[i].group_id for i in order))
    pool = Pool(groups, made, size).without(shown)
    told = {made[i].group_id for i in shown}
    allowed = [group for group in groups if made[group[0]].group_id not in told]
    assert pool == allowed[: len(pool)]
    assert sum(map(len, pool)) <= size
    if len(pool) < len(allowed):  # there was no room for one more
        assert sum(map(len, allowed[: len(pool) + 1])) > size


@given(tickets(), st.integers(1, 40))
def test_a_test_looks_at_whole_groups(made: list[Ticket], least: int) -> None:
    groups = whole_groups(range(len(made)), made)
    chunks = list(looks(groups, least))
    assert [group for chunk in chunks for group in chunk] == groups
    sizes = [sum(map(len, chunk)) for chunk in chunks]
    assert all(least <= size <= least + 1 for size in sizes[:-1])
    assert all(0 < size <= least + 1 for size in sizes[-1:])


class Listened(list[tuple[int, ...]]):
    """Groups that count how many of them are looked at."""

    asked = 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        for group in super().__iter__():
            self.asked += 1
            yield group


def test_what_a_pool_has_no_room_for_is_not_looked_at() -> None:
    made = numbered(5000)
    groups = Listened(whole_groups(range(5000), made))
    groups.asked = 0
    assert len(Pool(groups, made, 100).without(range(20))) == 100
    assert groups.asked <= 100 + 20 + 1
