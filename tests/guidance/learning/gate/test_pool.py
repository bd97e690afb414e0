from guidance.made import tickets
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.learning.gate.budget import Pool, cut_interims
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.words.types import TEACHING_FOLDS, Ticket


@given(tickets(min_size=1), st.integers(1, 40), st.integers(0, 9), st.data())
def test_what_one_fold_teaches_is_tested_on_the_first_whole_groups_of_the_others(
    made: list[Ticket], size: int, number: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(made))))
    groups = whole_groups(order, made)
    assert sorted(i for group in groups for i in group) == list(range(len(made)))
    assert [made[group[0]].group_id for group in groups] == list(
        dict.fromkeys(made[i].group_id for i in order)
    )
    pool = Pool(groups, size)
    told = {made[i].group_id for i in pool.fold(number)}
    for taught, allowed in {
        number: [group for group in groups if made[group[0]].group_id not in told],
        None: groups,
    }.items():
        tested = pool.groups_outside(taught)
        assert tested == allowed[: len(tested)]
        assert sum(map(len, tested)) <= size
        if len(tested) < len(allowed):  # there was no room for one more
            assert sum(map(len, allowed[: len(tested) + 1])) > size


@given(tickets(min_size=1))
def test_folds_take_turns_and_hold_every_ticket_once_in_whole_groups(made: list[Ticket]) -> None:
    """A group that comes twice, once under each label, is in one fold."""
    pool = Pool(whole_groups(range(len(made)), made), 1)
    folds = [list(pool.fold(number)) for number in range(TEACHING_FOLDS)]
    assert [
        list(pool.fold(number)) for number in range(TEACHING_FOLDS, 2 * TEACHING_FOLDS)
    ] == folds
    some = [*reversed(range(0, len(made), 2)), len(made)]  # the last is in no fold
    for number, fold in enumerate(folds):
        assert pool.of_fold(number + TEACHING_FOLDS, some) == [i for i in fold if i in some]
    assert sorted(i for fold in folds for i in fold) == list(range(len(made)))
    of = {made[i].group_id: number for number, fold in enumerate(folds) for i in fold}
    assert all(of[made[i].group_id] == number for number, fold in enumerate(folds) for i in fold)
    sizes = [len({made[i].group_id for i in fold}) for fold in folds]
    assert max(sizes) - min(sizes) <= 1


@given(tickets(), st.integers(1, 40))
def test_a_test_looks_at_whole_groups(made: list[Ticket], least: int) -> None:
    groups = whole_groups(range(len(made)), made)
    chunks = list(cut_interims(groups, least))
    assert [group for chunk in chunks for group in chunk] == groups
    sizes = [sum(map(len, chunk)) for chunk in chunks]
    assert all(least <= size <= least + 1 for size in sizes[:-1])
    assert all(0 < size <= least + 1 for size in sizes[-1:])
