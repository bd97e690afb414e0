"""A test of learning itself, in which every ticket teaches and tests: does what tickets teach beat the present guidance?

Groups come block by block, in an order that no label decides. What the blocks before have taught bets on the next one,
before it teaches in its turn (Dawid, "Statistical theory: the prequential approach", JRSS A 1984). Null hypothesis:
nothing that is learnt on the way is better than the present guidance, so that given all groups before, the mean gain of
the next is at most 0. Then the wealth from betting on gains (``betting.py``) is a supermartingale, whatever is learnt and
how, since each guidance and each stake are fixed before their groups are looked at; it ever reaches 1 / level with a
probability of at most the level (Ville 1939).

Proven is that learning from these tickets helps. The guidance that is kept is learnt from all of them, and is no other than
the next one that would bet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from stageb.guidance.gate.betting import BettingTest, Wealth, kelly_stake
from stageb.guidance.gate.judge import Judge
from stageb.guidance.gate.pool import Group
from stageb.guidance.questions import Dialogue
from stageb.guidance.types import Guidance

FIRST = 0.2  # of the groups, that teach before the first bet
GROWTH = 1.5  # from what has taught to what will have, after each block


@dataclass(frozen=True, slots=True)
class Taught:
    """What some groups have taught."""

    guidance: Guidance
    won: float  # share of tickets that it is hoped to judge better than the present guidance
    lost: float  # that it is feared to judge worse


Learn = Callable[[Sequence[Group], Sequence[Group]], Dialogue[Taught | None]]
"""Groups in, and the block behind them; what they teach, or None where that is nothing to bet on. Of the block nothing may
play a part; it is there to be judged, for what is learnt later."""


def prove_learning(
    learn: Learn, groups: Sequence[Group], judge: Judge, level: float, ends: Sequence[int]
) -> Dialogue[BettingTest]:
    """The test of learning from ``groups`` in their order, at its end: at the first block that proves it, or the last. After
    a proof, further blocks are learnt from without a bet.
    ``ends`` are how many groups have taught before each block, and after the last."""
    test = BettingTest(level, len(groups) - ends[0], wealth=Wealth())
    for begin, end in pairwise(ends):
        block = groups[begin:end]
        taught = yield from learn(groups[:begin], block)
        if taught is None or test.accepts:
            continue
        (gains,) = yield from judge.gains([(taught.guidance, [i for group in block for i in group])])
        each = iter(gains)
        stake = kelly_stake(taught.won, taught.lost)
        test = replace(test, wealth=replace(test.wealth, favourite=stake)).plus(
            [[next(each) for _ in group] for group in block]
        )
    return test


def block_ends(groups: int, first: int | None = None) -> list[int]:
    """How many groups have taught before each block, and after the last; ``first`` before the first of them."""
    ends = [first or max(1, round(FIRST * groups))]
    while ends[-1] < groups:
        ends.append(min(groups, max(ends[-1] + 1, round(ends[-1] * GROWTH))))
    return ends
