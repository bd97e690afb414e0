import random
from collections.abc import Callable, Sequence
from math import exp, log, log1p
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.learning.gate.sequential import (
    FIRST,
    STAKES,
    BettingTest,
    Wealth,
    kelly_stake,
    next_level,
)


def alone(gains: Sequence[float]) -> list[list[float]]:
    """Each of a group of its own."""
    return [[gain] for gain in gains]


GAIN = st.floats(-1, 1)
GAINS = st.lists(GAIN, max_size=40)
STAKE = st.floats(0.01, 0.99)
LEVEL = st.floats(1e-5, 0.4)

# Wealth: a fair game


@st.composite
def doubts(draw: st.DrawFn) -> list[tuple[float, float]]:
    """A distribution of gains, as (probability, gain), whose mean is 0."""
    low, high = draw(st.floats(-1, 0)), draw(st.floats(0, 1))
    share = -low / (high - low) if high > low else 1.0
    even = draw(st.floats(0, 1))  # of the mass lies on 0 itself
    return [((1 - even) * share, high), ((1 - even) * (1 - share), low), (even, 0.0)]


@given(doubts(), STAKE, GAINS)
def test_where_the_doubter_is_right_no_bet_pays_on_average(
    drawn: list[tuple[float, float]], stake: float, before: list[float]
) -> None:
    """So wealth is a martingale, no more likely than ``level`` ever to reach ``1 / level``,
    whenever one looks (Ville)."""
    wealth = Wealth(stake).plus(before)
    grown = [probability * exp(wealth.plus([gain]).log - wealth.log) for probability, gain in drawn]
    assert sum(grown) == pytest.approx(1, rel=1e-6)


def symmetric(chance: random.Random, before: float) -> float:
    return chance.choice((-1.0, 1.0))


def rarely_much_lost(chance: random.Random, before: float) -> float:
    return 0.05 if chance.random() < 0.95 else -0.95


def small(chance: random.Random, before: float) -> float:
    return chance.uniform(-0.3, 0.3)


def after_a_win(chance: random.Random, before: float) -> float:
    """What comes next may depend on what came before, as long as nobody can say which way it
    goes."""
    return chance.choice((-1.0, 1.0)) * (1.0 if before <= 0 else 0.1)


@pytest.mark.parametrize("shape", [symmetric, rarely_much_lost, small, after_a_win])
def test_a_look_after_every_few_tickets_proves_what_is_not_so_as_rarely_as_its_level_says(
    shape: Callable[[random.Random, float], float],
) -> None:
    level, runs, proven = 0.1, 500, 0
    for run in range(runs):
        chance, gain, wealth = random.Random(f"{shape.__name__} {run}"), 0.0, Wealth()
        for _ in range(40):
            gains = [gain := shape(chance, gain) for _ in range(4)]
            wealth = wealth.plus(gains)
            if wealth.log >= -log(level):
                proven += 1
                break
    assert proven <= runs * (level + 3 * (level * (1 - level) / runs) ** 0.5)


@given(GAINS, GAIN, GAIN)
def test_a_larger_gain_is_more_evidence(gains: list[float], one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert Wealth().plus([*gains, less]).log <= Wealth().plus([*gains, more]).log + 1e-9


@given(STAKE, GAINS)
def test_half_of_the_wealth_is_the_favourites_and_half_is_spread_over_the_others(
    stake: float, gains: list[float]
) -> None:
    wealth = Wealth(stake).plus(gains)
    first, *others = wealth.logs
    assert first == pytest.approx(sum(log1p(stake * gain) for gain in gains))
    assert exp(wealth.log) == pytest.approx((exp(first) + sum(map(exp, others)) / len(STAKES)) / 2)


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_favourite_is_a_stake_that_grows_where_the_race_told_the_truth(
    won: float, lost: float
) -> None:
    stake = kelly_stake(won, lost)
    assert min(STAKES) <= stake < 1
    if won > 1.2 * lost + 1e-6:
        assert won * log1p(stake) + lost * log1p(-stake) > 0
    assert kelly_stake(won, lost + 0.1) - 1e-9 <= stake <= kelly_stake(won + 0.1, lost) + 1e-9
    if stake > min(STAKES):  # four fifths of the one that grows fastest, at which slopes are even
        fastest = stake / 0.8
        assert won * (1 - fastest) == pytest.approx(lost * (1 + fastest), abs=1e-9)
    else:
        assert won <= 1.2 * lost + 1e-9


# The test


@given(LEVEL, st.integers(0, 500), GAINS, st.data())
def test_a_test_tells_the_same_whatever_the_cuts(
    level: float, pool: int, gains: list[float], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(gains)))
    whole = BettingTest(level, pool).plus(alone(gains))
    parts = BettingTest(level, pool).plus(alone(gains[:cut])).plus(alone(gains[cut:]))
    assert (whole.mean, parts.mean) == pytest.approx(
        (sum(gains) / len(gains) if gains else 0.0,) * 2
    )
    assert parts.wealth.log == pytest.approx(whole.wealth.log)
    assert parts.tickets == whole.tickets == len(gains)
    assert whole.is_accepted == (Wealth().plus(gains).log >= -log(level))


@pytest.mark.parametrize("gains", [[0.0] * 4, [-1.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]])
def test_what_gains_nothing_is_given_up_as_soon_as_enough_is_seen(gains: list[float]) -> None:
    test = BettingTest(0.00625, 1000).plus(alone(gains * (FIRST // 4 - 1)))
    assert (test.is_futile, test.is_accepted) == (False, False)
    assert test.plus(alone(gains)).is_futile


@given(LEVEL, st.integers(1, 8), st.lists(GAIN, min_size=FIRST, max_size=FIRST))
def test_what_is_given_up_could_not_be_proven_by_going_on_as_before(
    level: float, times: int, gains: list[float]
) -> None:
    test = BettingTest(level, FIRST * (times + 1)).plus(alone(gains))
    if test.is_futile:
        assert not test.plus(alone(gains * times)).is_accepted


@given(LEVEL, st.lists(st.lists(GAIN, min_size=1, max_size=3), max_size=40))
def test_a_group_counts_once_however_many_tickets_it_has(
    level: float, groups: list[list[float]]
) -> None:
    test, means = (
        BettingTest(level, 100).plus(groups),
        [sum(group) / len(group) for group in groups],
    )
    assert test.wealth.log == pytest.approx(Wealth().plus(means).log)
    assert (test.tickets, test.seen) == (sum(map(len, groups)), len(groups))
    assert test.mean == pytest.approx(sum(means) / len(means) if means else 0.0)
    twins = [[gain, gain] for gain in means]
    assert (
        BettingTest(level, 100).plus(twins).wealth
        == BettingTest(level, 100).plus(alone(means)).wealth
    )


@given(st.floats(0.001, 0.5), st.lists(st.booleans(), max_size=200))
def test_levels_spent_in_vain_never_add_up_to_more_than_the_budget(
    budget: float, accepted: list[bool]
) -> None:
    left, spent = budget, 0.0
    for comes_back in accepted:
        level = next_level(left, 1 / 8)
        assert 0 < level <= left
        if not comes_back:
            left, spent = left - level, spent + level
    assert spent <= budget * (1 + 1e-9)
    assert spent + left == pytest.approx(budget)


@given(st.lists(st.sampled_from([-1.0, -0.25, 0.0, 0.5]), max_size=40), st.integers(0, 40))
def test_the_mean_gain_is_told_in_standard_errors_of_it(gains: list[float], cut: int) -> None:
    """By these, rules without a proof seem better than chance explains, or do not."""
    test = BettingTest(0.05, 100).plus(alone(gains[:cut])).plus(alone(gains[cut:]))
    spread = pstdev(gains) if gains else 0.0
    expected = fmean(gains) / (spread / len(gains) ** 0.5) if spread else 0.0
    assert test.z_score == pytest.approx(expected)


@pytest.mark.parametrize(("every", "is_futile"), [(48, True), (32, True), (24, False)])
def test_a_slow_gain_is_given_up_unless_three_times_its_pace_would_do(
    every: int, is_futile: bool
) -> None:
    """Looked at when half of the groups are seen."""
    gains = [0.5 * (n % every == 0) for n in range(FIRST)]
    test = BettingTest(0.00625, 2 * FIRST).plus(alone(gains))
    assert (test.is_accepted, test.is_futile) == (False, is_futile)


def test_a_test_that_has_seen_all_groups_is_not_futile() -> None:
    """Nothing is left to give up: it ends without a proof."""
    test = BettingTest(0.01, FIRST).plus(alone([0.0] * FIRST))
    assert (test.seen, test.is_accepted, test.is_futile) == (FIRST, False, False)
    assert BettingTest(0.01, FIRST + 1).plus(alone([0.0] * FIRST)).is_futile
