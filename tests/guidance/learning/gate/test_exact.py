import random
from collections.abc import Callable, Sequence
from itertools import product
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.learning.gate.sequential import (
    FIRST,
    ExactTest,
    count_fewest_wins,
    is_promising,
    mcnemar_p,
)

LEVEL = st.floats(1e-4, 0.4)
WHOLE = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), max_size=60)
KEYS = st.integers(0, 2**64 - 1)
LOOKS = st.lists(WHOLE, min_size=1, max_size=6)


def looked(
    level: float, looks: Sequence[Sequence[float]], groups: int | None = None, key: int = 0
) -> ExactTest:
    """A test after these looks, of which the last is at the end of the pool unless it has more
    ``groups``."""
    test = ExactTest(level, groups or max(1, sum(map(len, looks))), key=key)
    for gains in looks:
        test = test.plus([[gain] for gain in gains])
    return test


# The last look


@given(st.integers(0, 40), st.integers(0, 40))
def test_the_chance_of_fair_coins_is_that_of_the_binomial(won: int, lost: int) -> None:
    assert mcnemar_p(won, lost) == pytest.approx(
        sum(comb(won + lost, k) for k in range(won, won + lost + 1)) / 2 ** (won + lost)
    )
    assert mcnemar_p(won + 1, lost) <= mcnemar_p(won, lost) <= mcnemar_p(won, lost + 1)


@given(LEVEL, WHOLE)
def test_one_look_at_the_end_of_a_pool_is_mcnemars_exact_test(
    level: float, gains: list[float]
) -> None:
    won, lost = gains.count(1.0), gains.count(-1.0)
    test = looked(level, [gains])
    assert (test.won, test.lost, test.is_futile) == (won, lost, False)
    if abs(mcnemar_p(won, lost) - level) > 1e-9:
        assert test.is_accepted == (mcnemar_p(won, lost) <= level)


@given(LEVEL, WHOLE, st.randoms(use_true_random=False))
def test_the_order_within_a_look_makes_no_difference(
    level: float, gains: list[float], chance: random.Random
) -> None:
    other = chance.sample(gains, len(gains))
    one, two = looked(level, [gains], 80), looked(level, [other], 80)
    assert (one.won, one.lost, one.spent, one.is_accepted) == (
        two.won,
        two.lost,
        two.spent,
        two.is_accepted,
    )


# However often it looks


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.floats(0.01, 0.5),
    st.integers(0, 8),
    st.floats(0, 0.5),
)
def test_fair_coins_and_worse_ones_prove_no_more_than_the_level(
    turned: list[int], level: float, more: int, share: float
) -> None:
    """All ways in which so many coins can fall, look by look; groups that are not turned come
    between."""
    looks = [count + more for count in turned]
    proven = {0.5: 0.0, share: 0.0}
    spent = 0.0
    for fallen in product([1.0, -1.0], repeat=sum(turned)):
        coins, test = iter(fallen), ExactTest(level, sum(looks))
        for count in turned:
            if not test.is_accepted:
                test = test.plus([[next(coins)] for _ in range(count)] + [[0.0]] * more)
        won = fallen.count(1.0)
        for chance in proven:
            proven[chance] += test.is_accepted * chance**won * (1 - chance) ** (len(fallen) - won)
        spent = max(spent, test.spent)
    assert proven[share] <= proven[0.5] + 1e-12
    assert proven[0.5] <= level + 1e-12
    assert spent <= level + 1e-12
    assert proven[0.5] == pytest.approx(spent)  # not a bit less either


@given(LEVEL, LOOKS, st.data())
def test_a_win_in_place_of_a_loss_never_hurts(
    level: float, looks: list[list[float]], data: st.DataObject
) -> None:
    losses = [(i, j) for i, gains in enumerate(looks) for j, gain in enumerate(gains) if gain < 0]
    before = looked(level, looks).is_accepted
    for i, j in data.draw(st.sets(st.sampled_from(losses))) if losses else ():
        looks[i][j] = 1.0
    assert looked(level, looks).is_accepted >= before


@given(LEVEL, LOOKS, WHOLE)
def test_what_is_proven_stays_proven(
    level: float, looks: list[list[float]], more: list[float]
) -> None:
    groups = max(1, sum(map(len, [*looks, more])))
    if looked(level, looks, groups).is_accepted:
        assert looked(level, [*looks, more], groups).is_accepted


@given(LEVEL, LOOKS)
def test_looking_on_the_way_costs_less_than_it_could(
    level: float, looks: list[list[float]]
) -> None:
    """What is not used on the way is there at the end, and proves there what it would prove
    alone."""
    test, won, lost = (
        looked(level, looks),
        sum(g.count(1.0) for g in looks),
        sum(g.count(-1.0) for g in looks),
    )
    assert 0 <= test.spent <= level + 1e-12
    groups = max(1, sum(map(len, looks)))
    before = looked(level, looks[:-1], groups)
    assert before.spent <= level * before.seen / groups + 1e-12
    if mcnemar_p(won, lost) < level - before.spent - 1e-9:
        assert test.is_accepted


def skewed(chance: random.Random) -> float:
    return 0.05 if chance.random() < 0.95 else -0.95


def even(chance: random.Random) -> float:
    return chance.choice((-1.0, 0.0, 1.0))


def priced(chance: random.Random) -> float:
    """A win is worth a quarter of a loss, and comes four times as often."""
    return chance.choice((0.25, 0.25, 0.25, 0.25, -1.0))


def small(chance: random.Random) -> float:
    return chance.uniform(-0.4, 0.4)


@pytest.mark.parametrize("shape", [skewed, even, priced, small])
@pytest.mark.parametrize("size", [1, 4])
def test_what_gains_nothing_on_the_average_is_accepted_as_rarely_as_the_level_says(
    shape: Callable[[random.Random], float], size: int
) -> None:
    """Whatever the gains are: verdicts or probabilities, at equal prices or not, and where groups
    gain or lose as one."""
    level, runs, accepted = 0.1, 800, 0
    for run in range(runs):
        chance, test = random.Random(f"{shape.__name__} {run}"), ExactTest(level, 60, key=run)
        for _ in range(4):
            test = (
                test if test.is_accepted else test.plus([[shape(chance)] * size for _ in range(15)])
            )
        accepted += test.is_accepted
    assert accepted <= runs * level + 3 * (runs * level * (1 - level)) ** 0.5
    assert accepted > 0


@given(st.lists(st.floats(-1, 1), max_size=30), st.integers(0, 2**32))
def test_a_group_is_turned_with_the_chance_of_its_gain_the_same_way_each_time(
    gains: list[float], key: int
) -> None:
    test = looked(0.05, [gains], 99, key)
    assert test == looked(0.05, [gains], 99, key)
    assert test.won <= sum(gain > 0 for gain in gains)
    assert test.lost <= sum(gain < 0 for gain in gains)
    halves = [looked(0.05, [[0.5] * 30, [-0.25] * 30], 60, key + n) for n in range(40)]
    assert sum(each.won for each in halves) == pytest.approx(600, abs=90)
    assert sum(each.lost for each in halves) == pytest.approx(300, abs=75)


# Small pools, and hopeless edits


@given(st.lists(st.sampled_from([0.5, -0.5, 0.3]), min_size=4, max_size=60), KEYS)
def test_what_is_drawn_of_a_group_does_not_depend_on_the_look_that_sees_it(
    gains: list[float], key: int
) -> None:
    part = -(-len(gains) // 4)
    one = looked(0.05, [gains], key=key)
    four = looked(
        0.05, [gains[start : start + part] for start in range(0, len(gains), part)], key=key
    )
    assert (one.won, one.lost) == (four.won, four.lost)


def test_ten_won_and_none_lost_of_a_hundred_and_fifteen_are_proof_for_a_late_test() -> None:
    """Not for a bet: log wealth 5.68, where 5.74 would do."""
    gains = ([1.0] + [0.0] * 10) * 10 + [0.0] * 5
    assert looked(0.0032, [gains[at : at + 32] for at in range(0, 115, 32)]).is_accepted


@pytest.mark.parametrize("gains", [[0.0] * 4, [-1.0, 0.0, 0.0, 0.0], [1.0, -1.0, 0.0, 0.0]])
def test_what_gains_nothing_is_given_up_before_the_pool_ends(gains: list[float]) -> None:
    test = looked(0.00625, [gains] * (FIRST // 4 - 1), 352)
    assert (test.is_futile, test.is_accepted) == (False, False)
    assert looked(0.00625, [gains] * (264 // 4), 352).is_futile
    assert not looked(0.00625, [gains] * (352 // 4), 352).is_futile  # its tickets have ended


def test_what_only_loses_is_given_up_as_soon_as_enough_is_seen() -> None:
    assert not looked(0.00625, [[-1.0] * (FIRST - 1)], 352).is_futile
    assert looked(0.00625, [[-1.0] * FIRST], 352).is_futile


@pytest.mark.parametrize(
    ("won", "lost", "groups", "is_futile"),
    [
        (1, 0, 3 * FIRST, False),  # with luck 8 more are won, and 9 of 9 are a proof
        (1, 0, 2 * FIRST, True),  # 4 more are not
        (3, 0, 2 * FIRST, False),  # 7 more are, beside the 3
        (6, 0, 2 * FIRST, False),
        (6, 3, 2 * FIRST, True),  # where 3 more will be lost, 12 more won are not enough
    ],
)
def test_a_slow_start_is_given_up_unless_luck_could_make_up_for_it(
    won: int, lost: int, groups: int, is_futile: bool
) -> None:
    gains = [1.0] * won + [-1.0] * lost + [0.0] * (FIRST - won - lost)
    test = looked(0.00625, [gains], groups)
    assert (test.is_accepted, test.is_futile) == (False, is_futile)


@given(
    LEVEL,
    st.lists(st.sampled_from([-1.0, 0.0, 0.0, 0.0, 1.0]), min_size=FIRST, max_size=FIRST),
    st.integers(1, 8),
)
def test_what_is_given_up_could_not_be_proven_by_going_on_as_before(
    level: float, gains: list[float], times: int
) -> None:
    if looked(level, [gains], FIRST * (times + 1)).is_futile:
        assert not looked(level, [gains * (times + 1)]).is_accepted


# What can be proven


@given(LEVEL)
def test_fewest_is_what_wins_alone_can_prove(level: float) -> None:
    needed = count_fewest_wins(level)
    assert mcnemar_p(needed, 0) <= level < mcnemar_p(needed - 1, 0)


@given(st.floats(0, 0.5), st.floats(0, 0.5), st.integers(1, 500), LEVEL)
def test_what_proves_as_it_stands_is_promising_and_more_lost_is_less_so(
    won: float, lost: float, groups: int, level: float
) -> None:
    if mcnemar_p(round(won * groups), round(lost * groups)) <= level:
        assert is_promising(won, lost, groups, level)
    if is_promising(won, lost + 0.1, groups, level):
        assert is_promising(won, lost, groups, level)
    assert not is_promising(0.0, lost, groups, level)


def test_a_proof_may_use_all_of_its_level() -> None:
    """Two fair coins fall well with a chance of a quarter."""
    assert ExactTest(0.25, 2).plus([[1.0], [1.0]]).is_accepted
    assert not ExactTest(0.249, 2).plus([[1.0], [1.0]]).is_accepted
    assert is_promising(1.0, 0.0, 2, 0.25)
    assert not is_promising(1.0, 0.0, 2, 0.249)
    assert is_promising(0.5, 0.0, 4, 0.0625)  # half of a proof, no less
