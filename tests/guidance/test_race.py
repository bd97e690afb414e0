from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.race import CHUNK, FEWEST, LAPS, LOSS_PRICE, LUCK, Form, Race, Stratum, chunks, race, survivors

RIGHT = st.lists(st.booleans(), min_size=1, max_size=150)
SIZES = st.integers(1, 40)
GAIN = st.sampled_from([-1.0, -0.5, 0.0, 0.0, 0.25, 1.0])
FORMS = st.builds(Form, *(st.builds(Stratum, st.integers(1, 30), st.floats(0, 9), st.floats(0, 9)) for _ in range(2)))


@st.composite
def races(draw: st.DrawFn, most: int = 9) -> tuple[list[bool], list[list[float]]]:
    """How the present guidance judges, and each contender's gains."""
    was_right = draw(RIGHT)
    gains = st.lists(GAIN, min_size=len(was_right), max_size=len(was_right))
    return was_right, draw(st.lists(gains, min_size=1, max_size=most))


def told(gains: Sequence[Sequence[float]]) -> Callable[..., list[list[float]]]:
    def tell(asked: Sequence[tuple[int, Sequence[int]]]) -> list[list[float]]:
        assert asked
        return [[gains[one][i] for i in positions] for one, positions in asked]

    return tell


def run(was_right: Sequence[bool], gains: Sequence[Sequence[float]]) -> Race:
    return race(was_right, len(gains), told(gains))


def whole(was_right: Sequence[bool], gains: Sequence[float]) -> Form:
    return Form().plus(was_right, gains)


# Chunks


@given(RIGHT, SIZES)
def test_chunks_partition_the_tickets(was_right: list[bool], size: int) -> None:
    cut = chunks(was_right, size)
    assert sorted(i for chunk in cut for i in chunk) == list(range(len(was_right)))
    assert all(len(chunk) == size for chunk in cut[:-1])
    assert 0 < len(cut[-1]) <= size


@given(RIGHT, SIZES)
def test_chunks_hold_half_of_each_while_there_are_both(was_right: list[bool], size: int) -> None:
    wrong, right = was_right.count(False), was_right.count(True)
    for chunk in chunks(was_right, size):
        shares = sum(not was_right[i] for i in chunk), sum(was_right[i] for i in chunk)
        assert shares[0] >= min(wrong, size // 2)
        assert shares[1] >= min(right, size - size // 2)
        wrong, right = wrong - shares[0], right - shares[1]


# Forms


@given(races(most=1), st.integers(0, 90))
def test_a_form_adds_up(made: tuple[list[bool], list[list[float]]], cut: int) -> None:
    was_right, (gains,) = made
    form = whole(was_right, gains)
    parts = Form().plus(was_right[:cut], gains[:cut]).plus(was_right[cut:], gains[cut:])
    assert parts == form
    assert form.seen == len(gains)
    assert form.mean == pytest.approx(sum(gains) / len(gains))
    won, lost = form.rates(was_right.count(False), was_right.count(True))
    assert won - lost <= form.mean + 1e-9
    assert lost == pytest.approx(-sum(gain for gain in gains if gain < 0) / len(gains))
    assert form.expected(was_right.count(False), was_right.count(True)) == pytest.approx(sum(gains))
    lost = -sum(gain for gain in gains if gain < 0)
    careful = form.expected(was_right.count(False), was_right.count(True), LOSS_PRICE)
    assert careful == pytest.approx(sum(gains) - (LOSS_PRICE - 1) * lost)


def test_rates_are_weighed_by_the_tickets_at_hand_and_not_by_the_chunk() -> None:
    """A chunk is half wrong, half right; where most tickets are judged right already, losses weigh more."""
    form = Form(Stratum(32, won=8.0), Stratum(32, lost=2.0))
    assert form.expected(wrong=64, right=448) == 64 * 8 / 32 - 448 * 2 / 32
    assert survivors([form], 64, 448) == []
    assert survivors([form], 256, 256) == [0]
    assert form.rates(wrong=64, right=448) == (64 * (8 - LUCK) / 32 / 512, 448 * 2 / 32 / 512)
    assert Form(Stratum(32, won=LUCK / 2), Stratum(32)).rates(64, 448) == (0, 0)
    assert Form().expected(64, 448) == 0


# Who goes on


@given(st.lists(FORMS, max_size=12), st.integers(0, 200), st.integers(0, 200))
def test_the_better_half_goes_on_with_the_one_of_most_gain(forms: list[Form], wrong: int, right: int) -> None:
    kept = survivors(forms, wrong, right)
    hopeful = [i for i, form in enumerate(forms) if form.expected(wrong, right) > 0]
    assert set(kept) <= set(hopeful)
    assert len(set(kept)) == len(kept) == min(len(hopeful), max(FEWEST, -(-len(forms) // 2)))
    if hopeful:
        most = max(forms[i].expected(wrong, right) for i in hopeful)
        assert most in {forms[i].expected(wrong, right) for i in kept}
    careful = [forms[i].expected(wrong, right, LOSS_PRICE) for i in kept]
    assert careful[:-1] == sorted(careful[:-1], reverse=True)
    dropped = [forms[i].expected(wrong, right, LOSS_PRICE) for i in hopeful if i not in kept]
    assert all(each <= min(careful[:-1], default=float("inf")) for each in dropped)


def test_ties_keep_their_order_and_the_hopeless_go_however_few_are_left() -> None:
    forms = [Form(Stratum(10, won), Stratum(10, 0.0, lost)) for won, lost in [(3, 0), (9, 1), (0, 0), (9, 1), (2, 5)]]
    assert survivors(forms, 100, 100) == [1, 3, 0]
    assert survivors(forms[2:3], 100, 100) == []


def test_the_broad_edit_of_most_gain_goes_on_behind_careful_ones() -> None:
    careful = [Form(Stratum(32, 4.0), Stratum(32))] * 4
    broad = Form(Stratum(32, 20.0), Stratum(32, 0.0, 10.0))
    assert survivors([*careful, broad], 50, 50) == [0, 1, 2, 4]


# The race


@given(races())
def test_those_that_are_ranked_saw_all_tickets_and_the_leader_gained_most_of_them(
    made: tuple[list[bool], list[list[float]]],
) -> None:
    was_right, gains = made
    outcome = run(was_right, gains)
    wrong, right = was_right.count(False), was_right.count(True)
    seen = outcome.positions
    assert len(seen) == len(set(seen)) == min(len(was_right), LAPS * CHUNK)
    assert len(outcome.forms) == len(gains)
    for one in outcome.ranked:
        assert outcome.forms[one] == whole([was_right[i] for i in seen], [gains[one][i] for i in seen])
        assert outcome.forms[one].expected(wrong, right) > 0
    if outcome.ranked:
        most = max(outcome.forms[one].expected(wrong, right) for one in outcome.ranked)
        assert outcome.leader in outcome.ranked
        assert outcome.forms[outcome.leader].expected(wrong, right) == most
    else:
        assert outcome.leader is None


@given(races())
def test_what_a_race_costs_is_bounded(made: tuple[list[bool], list[list[float]]]) -> None:
    """Halved after each chunk, rounding up, down to ``FEWEST``."""
    was_right, gains = made
    seen = [form.seen for form in run(was_right, gains).forms]
    most, begun = len(gains), 0
    assert max(seen) <= LAPS * CHUNK
    for chunk in chunks(was_right, CHUNK)[:LAPS]:
        assert sum(count > begun for count in seen) <= most
        most, begun = max(FEWEST, -(-most // 2)), begun + len(chunk)


@given(races(most=4), st.integers(0, 3))
def test_an_edit_that_changes_nothing_is_never_ranked(made: tuple[list[bool], list[list[float]]], place: int) -> None:
    was_right, gains = made
    gains[place % len(gains)] = [0.0] * len(was_right)
    assert place % len(gains) not in run(was_right, gains).ranked


def test_without_a_ticket_nobody_is_ranked() -> None:
    assert run([], [[], []]) == Race((Form(), Form()), (), None, ())


def test_a_race_ends_where_enough_is_seen() -> None:
    assert run([False, True] * 200, [[1.0, 0.0] * 200]).forms[0].seen == LAPS * CHUNK


def test_losers_are_dropped_early() -> None:
    was_right = [False, True] * (2 * CHUNK)
    idle, worse = [0.0] * len(was_right), [0.0, -1.0] * (2 * CHUNK)
    better = [1.0, 0.0] * (2 * CHUNK)
    outcome = run(was_right, [idle, worse, idle, better, worse, idle])
    assert (outcome.ranked, outcome.leader) == ((3,), 3)
    assert [form.seen for form in outcome.forms] == [CHUNK, CHUNK, CHUNK, len(was_right), CHUNK, CHUNK]


def test_the_most_careful_comes_first_and_the_one_of_most_gain_leads() -> None:
    was_right = [False] * 30 + [True] * 30
    careful = [float(i % 3 == 0) for i in range(30)] + [0.0] * 30
    broad = [1.0] * 30 + [-float(i % 3 == 0) for i in range(30)]
    outcome = run(was_right, [broad, careful])
    assert (outcome.ranked, outcome.leader) == ((1, 0), 0)
