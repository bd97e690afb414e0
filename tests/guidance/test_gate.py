from collections.abc import Callable, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.gate import Race, Tally, accepts, chunks, race, sign_test, survivors

POOLS = st.lists(st.booleans(), min_size=1, max_size=60)
ALPHAS = st.sampled_from([0.01, 0.05, 0.2, 0.5])
SIZES = st.integers(1, 40)


@st.composite
def races(draw: st.DrawFn, most: int = 7) -> tuple[list[bool], list[list[bool]]]:
    """The pool under the present guidance, and under each edit."""
    before = draw(POOLS)
    edits = st.lists(st.booleans(), min_size=len(before), max_size=len(before))
    return before, draw(st.lists(edits, min_size=1, max_size=most))


def judge(after: Sequence[Sequence[bool]]) -> Callable[..., list[list[bool]]]:
    def verdicts(asked: Sequence[tuple[int, Sequence[int]]]) -> list[list[bool]]:
        assert asked
        assert all(positions for _, positions in asked)
        return [[after[one][i] for i in positions] for one, positions in asked]

    return verdicts


def run(before: Sequence[bool], after: Sequence[Sequence[bool]], alpha: float = 0.05, chunk: int = 10) -> Race:
    return race(before, len(after), judge(after), alpha, chunk)


def counted(before: Sequence[bool], after: Sequence[bool]) -> Tally:
    """The whole pool in one tally."""
    return Tally().plus(before, after)


# The test


@pytest.mark.parametrize("n", range(13))
def test_the_sign_test_counts_coins(n: int) -> None:
    heads = [sum(coins) for coins in product((0, 1), repeat=n)]
    for wins in range(n + 1):
        assert sign_test(wins, n - wins) == sum(count >= wins for count in heads) / len(heads)


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_sign_test_is_a_probability_that_wins_lower_and_losses_raise(wins: int, losses: int) -> None:
    p = sign_test(wins, losses)
    assert 0 < p <= 1
    assert sign_test(wins + 1, losses) <= p
    assert sign_test(wins, losses + 1) >= p
    assert sign_test(wins, losses) + sign_test(losses, wins) >= 1  # the middle is in both


@given(POOLS, st.data(), st.integers(0, 60))
def test_a_tally_adds_up(before: list[bool], data: st.DataObject, cut: int) -> None:
    after = data.draw(st.lists(st.booleans(), min_size=len(before), max_size=len(before)))
    whole = counted(before, after)
    assert Tally().plus(before[:cut], after[:cut]).plus(before[cut:], after[cut:]) == whole
    assert (whole.wrong_seen, whole.right_seen) == (before.count(False), before.count(True))
    assert whole.wins - whole.losses == after.count(True) - before.count(True)
    assert whole.expected(whole.wrong_seen, whole.right_seen) == pytest.approx(whole.wins - whole.losses)


# Chunks


@given(POOLS, SIZES)
def test_chunks_partition_the_pool(before: list[bool], size: int) -> None:
    cut = chunks(before, size)
    assert sorted(i for chunk in cut for i in chunk) == list(range(len(before)))
    assert all(len(chunk) == size for chunk in cut[:-1])
    assert 0 < len(cut[-1]) <= size


@given(POOLS, SIZES)
def test_chunks_hold_half_of_each_while_there_are_both(before: list[bool], size: int) -> None:
    wrong, right = before.count(False), before.count(True)
    for chunk in chunks(before, size):
        shares = sum(not before[i] for i in chunk), sum(before[i] for i in chunk)
        assert shares[0] >= min(wrong, size // 2)
        assert shares[1] >= min(right, size - size // 2)
        wrong, right = wrong - shares[0], right - shares[1]


# The race


@given(races(), ALPHAS, SIZES)
def test_a_winner_saw_the_whole_pool_and_passes_the_test(
    pool: tuple[list[bool], list[list[bool]]], alpha: float, size: int
) -> None:
    before, after = pool
    outcome = run(before, after, alpha, size)
    if outcome.winner is None:
        assert outcome.right_after == ()
    else:
        assert outcome.right_after == tuple(after[outcome.winner])
        assert outcome.tallies[outcome.winner] == counted(before, after[outcome.winner])
        assert accepts(outcome.tallies[outcome.winner], alpha)


@given(races(), ALPHAS, SIZES)
def test_what_a_race_cost_is_what_its_contenders_saw(
    pool: tuple[list[bool], list[list[bool]]], alpha: float, size: int
) -> None:
    before, after = pool
    outcome = run(before, after, alpha, size)
    assert outcome.judged == sum(tally.wrong_seen + tally.right_seen for tally in outcome.tallies)
    assert outcome.judged <= len(before) * len(after)
    seen = sorted((tally.wrong_seen + tally.right_seen for tally in outcome.tallies), reverse=True)
    steps = [len(chunk) for chunk in chunks(before, size)]
    for chunk in range(1, len(steps)):
        most = max(2, -(-len(after) // 2**chunk))  # halved after each chunk, rounding up, down to two
        assert sum(count > sum(steps[:chunk]) for count in seen) <= most


@given(races(most=4), ALPHAS, SIZES, st.integers(0, 3))
def test_an_edit_that_changes_nothing_never_wins(
    pool: tuple[list[bool], list[list[bool]]], alpha: float, size: int, place: int
) -> None:
    before, after = pool
    after[place % len(after)] = list(before)
    assert run(before, after, alpha, size).winner != place % len(after)


@given(POOLS, ALPHAS, SIZES)
def test_an_edit_that_only_breaks_things_is_dropped_at_the_first_cut(before: list[bool], alpha: float, size: int) -> None:
    outcome = run(before, [[False] * len(before)], alpha, size)
    assert outcome.winner is None
    assert outcome.judged == len(chunks(before, size)[0])


@given(races(most=6), st.integers(0, 5), ALPHAS, SIZES)
def test_an_edit_that_mends_all_wins_over_those_that_mend_nothing(
    pool: tuple[list[bool], list[list[bool]]], place: int, alpha: float, size: int
) -> None:
    before, after = pool
    before += [False] * 7  # enough for any of these alphas
    edits = [[new and old for new, old in zip([*edit, *[True] * 7], before, strict=True)] for edit in after]
    edits[place % len(edits)] = [True] * len(before)
    outcome = run(before, edits, alpha, max(size, 2))
    assert outcome.winner == place % len(edits)
    assert all(outcome.right_after)


@given(races(most=1), ALPHAS, SIZES)
def test_one_contender_gets_the_plain_test_unless_a_cut_expects_no_gain(
    pool: tuple[list[bool], list[list[bool]]], alpha: float, size: int
) -> None:
    before, (after,) = pool
    outcome = run(before, [after], alpha, size)
    wrong, right = before.count(False), before.count(True)
    tally, seen = Tally(), 0
    for positions in chunks(before, size):
        seen += len(positions)
        tally = tally.plus([before[i] for i in positions], [after[i] for i in positions])
        if tally.expected(wrong, right) <= 0:
            assert outcome.winner is None
            assert outcome.judged <= seen  # less where it could not pass any more
            return
    assert (outcome.winner is not None) == accepts(counted(before, after), alpha)


@given(POOLS, ALPHAS, SIZES)
def test_a_race_stops_once_nothing_can_win(before: list[bool], alpha: float, size: int) -> None:
    """Too few tickets are wrong for any edit to pass, however well it begins."""
    wrong = before.count(False)
    if sign_test(wrong, 0) > alpha:
        perfect = [True] * len(before)
        assert run(before, [perfect], alpha, size).judged == len(chunks(before, size)[0])


def test_losers_dropped_early_cost_less_than_the_pool() -> None:
    before = [False, True] * 32
    idle, better, worse = list(before), [True] * 64, [False] * 64
    outcome = run(before, [idle, worse, idle, better, worse, idle], chunk=8)
    assert outcome.winner == 3
    assert outcome.judged == 6 * 8 + 56
    assert [tally.wrong_seen + tally.right_seen for tally in outcome.tallies] == [8, 8, 8, 64, 8, 8]


def test_the_better_half_goes_on_and_ties_keep_their_order() -> None:
    tallies = [Tally(10, 10, wins, losses) for wins, losses in [(3, 0), (9, 1), (0, 0), (9, 1), (2, 5)]]
    assert survivors(tallies, 100, 100, 0.05) == [1, 3, 0]
    assert survivors(tallies[:2], 100, 100, 0.05) == [1, 0]
    assert survivors(tallies[2:3], 100, 100, 0.05) == []


def test_the_broad_edit_of_most_gain_goes_on_behind_careful_ones() -> None:
    careful = [Tally(32, 32, 4, 0)] * 4
    broad = Tally(32, 32, 20, 10)
    assert survivors([*careful, broad], 50, 50, 0.05) == [0, 1, 4]


def test_a_careful_edit_wins_over_a_broad_one_of_more_gain_and_a_broad_one_over_none() -> None:
    before = [False] * 30 + [True] * 30
    careful = [i % 3 == 0 for i in range(30)] + [True] * 30
    broad = [True] * 30 + [i % 3 > 0 for i in range(30)]
    assert run(before, [broad, careful], chunk=20).winner == 1
    assert run(before, [broad], chunk=20).winner == 0


def test_rates_are_weighed_by_the_pool_and_not_by_the_chunk() -> None:
    """A chunk is half wrong, half right; where most of the pool is judged right already, losses weigh more."""
    tally = Tally(wrong_seen=32, right_seen=32, wins=8, losses=2)
    assert tally.expected(wrong=64, right=448) == 64 * 8 / 32 - 448 * 2 / 32
    assert survivors([tally], 64, 448, 0.05) == []
    assert survivors([tally], 256, 256, 0.05) == [0]
