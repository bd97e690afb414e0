"""A test of learning itself, in which every ticket teaches and tests: does what tickets teach beat
the present guidance?

Groups come block by block, in an order that no label decides. What the blocks before have taught
bets on the next one, before it teaches in its turn (Dawid, "Statistical theory: the prequential
approach", JRSS A 1984). Null hypothesis: nothing that is learnt on the way is better than the
present guidance, so that given all groups before, the mean gain of the next is at most 0. Then the
wealth from betting on gains (``sequential.py``) is a supermartingale, whatever is learnt and how,
since each guidance and each stake are fixed before their groups are looked at; it ever reaches 1 /
level with a probability of at most the level (Ville 1939).

Proven is that learning from these tickets helps. The guidance that is kept is learnt from all of
them, and is no other than the next one that would bet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from stageb.guidance.judging.questions import Dialogue
from stageb.guidance.learning.gate.sequential import BettingTest, kelly_stake
from stageb.guidance.learning.state import LearningStopped
from stageb.guidance.tickets.groups import Group

FIRST = 0.2  # of the groups, that teach before the first bet
GROWTH = 1.5  # from what has taught to what will have, after each block


@dataclass(frozen=True, slots=True)
class Bet:
    """What some groups have taught bets on the block behind them."""

    won: float  # share of tickets that it is hoped to judge better than the present guidance
    lost: float  # that it is feared to judge worse
    # null hypothesis -> what it gained on the tickets of the block, in their order
    gains: Mapping[str, Sequence[float]]


Memory = TypeVar("Memory")

Learn = Callable[[Sequence[Group], Sequence[Group], Memory], Dialogue[tuple[Bet | None, Memory]]]
"""Groups in, the block behind them, and what earlier blocks have left to remember; the bet of what
they teach, or None where that is nothing to bet on, and what to remember next. Of the block nothing
may play a part in what is taught; it is there to be judged. Raises ``LearningStopped`` where
learning was told to stop."""


def prove_learning(
    learn: Learn[Memory], groups: Sequence[Group], level: float, ends: Sequence[int], memory: Memory
) -> Dialogue[tuple[BettingTest, Memory, bool]]:
    """The test of learning from ``groups`` in their order, at its end: at the first block that
    proves it, or the last, or where learning is told to stop, which leaves the bound as it is; what
    is remembered then; and whether it was told to stop. After a proof, further blocks are learnt
    from without a bet, where anything is remembered. ``ends`` are how many groups have taught
    before each block, and after the last.

    Bets name the null hypotheses: that what is learnt is no better than the present guidance, say,
    or than one verdict for every ticket. Each has a test at the level, all must reject theirs, and
    the one that does least is returned. So the bound holds for any of them."""
    begun = BettingTest(level, len(groups) - ends[0])
    tests: dict[str, BettingTest] = {}
    for begin, end in pairwise(ends):
        is_proven = bool(tests) and all(test.accepts for test in tests.values())
        if is_proven and memory is None:
            break
        block = groups[begin:end]
        try:
            bet, memory = yield from learn(groups[:begin], block, memory)
        except LearningStopped:
            return _find_least(tests, begun), memory, True
        if bet and not is_proven:
            stake = kelly_stake(bet.won, bet.lost)
            last = {name: tests.get(name, begun) for name in bet.gains}
            tests = {
                name: test if test.accepts else _place_bets(test, bet.gains[name], block, stake)
                for name, test in last.items()
            }
    return _find_least(tests, begun), memory, False


def _find_least(tests: Mapping[str, BettingTest], begun: BettingTest) -> BettingTest:
    """Of those that have rejected nothing yet the one that has come least far; else the first."""
    failing = [test for test in tests.values() if not test.accepts]
    return min(
        failing, key=lambda test: test.standard_errors, default=next(iter(tests.values()), begun)
    )


def _place_bets(
    test: BettingTest, gains: Sequence[float], block: Sequence[Group], stake: float
) -> BettingTest:
    """The test after a block of which the tickets, in its order, had these gains."""
    each = iter(gains)
    test = replace(test, wealth=replace(test.wealth, favourite=stake))
    return test.plus([[next(each) for _ in group] for group in block])


def block_ends(groups: int, first: int | None = None) -> list[int]:
    """How many groups have taught before each block, and after the last; ``first`` before the first
    of them."""
    ends = [first or max(1, round(FIRST * groups))]
    while ends[-1] < groups:
        ends.append(min(groups, max(ends[-1] + 1, round(ends[-1] * GROWTH))))
    return ends
