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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeVar

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.gate.betting import BettingTest, kelly_stake
from stageb.guidance.learning.gate.judge import Judge
from stageb.guidance.learning.state import LearningStopped
from stageb.guidance.tickets.groups import Group
from stageb.guidance.words.types import Guidance

FIRST = 0.2  # of the groups, that teach before the first bet
GROWTH = 1.5  # from what has taught to what will have, after each block


@dataclass(frozen=True, slots=True)
class Taught:
    """The guidance that some groups have taught, and its expected gains and losses."""

    guidance: Guidance
    won: float  # share of tickets that it is hoped to judge better than the present guidance
    lost: float  # that it is feared to judge worse
    # Where learning has had the block judged already, by position: whether its verdict is right, and whether that of the
    # present guidance is, prepared by the same groups.
    rights: Mapping[int, bool] = field(default_factory=dict)
    before: Mapping[int, bool] = field(default_factory=dict)


Memory = TypeVar("Memory")

Learn = Callable[[Sequence[Group], Sequence[Group], Memory], Dialogue[tuple[Taught | None, Memory]]]
"""Groups in, the block behind them, and what earlier blocks have left to remember; what they teach, or None where that is
nothing to bet on, and what to remember next. Of the block nothing may play a part in what is taught; it is there to be
judged, for what is learnt later. Raises ``LearningStopped`` where learning was told to stop."""


def prove_learning(
    learn: Learn[Memory], groups: Sequence[Group], judge: Judge, level: float, ends: Sequence[int], memory: Memory
) -> Dialogue[tuple[BettingTest, Memory, bool]]:
    """The test of learning from ``groups`` in their order, at its end: at the first block that proves it, or the last, or
    where learning is told to stop, which leaves the bound as it is; what is remembered then; and whether it was told to
    stop. After a proof, further blocks are learnt from without a bet, where anything is remembered.
    ``ends`` are how many groups have taught before each block, and after the last.

    Where ``judge`` names a constant verdict, what is learnt must be right more often, at the prices of errors, than that
    one for every ticket, too: there are two tests, each at the level, both must prove it, and the one that does least is
    returned. So the bound holds for either null hypothesis."""
    names = ("present", "constant") if judge.constant else ("present",)
    tests = {name: BettingTest(level, len(groups) - ends[0]) for name in names}
    is_stopped = False
    for begin, end in pairwise(ends):
        is_proven = all(test.accepts for test in tests.values())
        if is_proven and memory is None:
            break
        block = groups[begin:end]
        positions = [i for group in block for i in group]
        try:
            taught, memory = yield from learn(groups[:begin], block, memory)
        except LearningStopped:
            is_stopped = True
            break
        if taught is None or is_proven:
            continue
        rights = taught.rights
        if taught.before:
            over_present = judge.compare(rights, taught.before)
        else:
            (p_correct,) = yield from judge.p_correct([(taught.guidance, positions)])
            rights = {i: p > 0.5 for i, p in zip(positions, p_correct, strict=True)}
            over_present = yield from judge.gains_of(dict(zip(positions, p_correct, strict=True)))
        gains = {"present": over_present, "constant": judge.gains_over_constant(rights)}
        stake = kelly_stake(taught.won, taught.lost)
        tests = {
            name: test if test.accepts else _place_bets(test, gains[name], block, stake) for name, test in tests.items()
        }
    failing = [test for test in tests.values() if not test.accepts]
    return min(failing, key=lambda test: test.standard_errors, default=tests["present"]), memory, is_stopped


def _place_bets(test: BettingTest, gains: Sequence[float], block: Sequence[Group], stake: float) -> BettingTest:
    """The test after a block of which the tickets, in its order, had these gains."""
    each = iter(gains)
    test = replace(test, wealth=replace(test.wealth, favourite=stake))
    return test.plus([[next(each) for _ in group] for group in block])


def block_ends(groups: int, first: int | None = None) -> list[int]:
    """How many groups have taught before each block, and after the last; ``first`` before the first of them."""
    ends = [first or max(1, round(FIRST * groups))]
    while ends[-1] < groups:
        ends.append(min(groups, max(ends[-1] + 1, round(ends[-1] * GROWTH))))
    return ends
