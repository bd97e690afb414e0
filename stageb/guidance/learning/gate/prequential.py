"""A test of learning itself, in which every ticket teaches and tests: does what tickets teach beat
the present guidance?

Groups come block by block, in an order that no label decides. What the blocks before have taught
bets on the next one, before that one teaches in its turn (Dawid, "Statistical theory: the
prequential approach", JRSS A 1984). Null hypothesis: nothing that is learnt on the way is better
than the present guidance, so that given all groups before, the mean gain of the next is at most 0.
Then the wealth from betting on gains (``sequential.py``) is a supermartingale, whatever is learnt
and how, since each guidance and each stake are fixed before their groups are looked at; it ever
reaches 1 / level with a probability of at most the level (Ville 1939).

What is proven is that learning from these tickets helps. The guidance that is kept is learnt from
all of them, and is the very one that would bet next.
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

FIRST = 0.2  # share of the groups that teach before the first bet
GROWTH = 1.5  # factor by which each block lets the groups that have taught grow


@dataclass(frozen=True, slots=True)
class Bet:
    """A bet of what some groups have taught on the block behind them."""

    won: float  # share of tickets that it is expected to judge better than the present guidance
    lost: float  # share of tickets that it is expected to judge worse
    # null hypothesis -> what it gained on the tickets of the block, in their order
    gains: Mapping[str, Sequence[float]]


Memory = TypeVar("Memory")

Learn = Callable[[Sequence[Group], Sequence[Group], Memory], Dialogue[tuple[Bet | None, Memory]]]
"""Takes the groups so far, the next block, and the memory. Returns the bet of what the groups
teach, or None where there is nothing to bet on, and the new memory. Nothing in the block may
influence what is taught; it is there to be judged. Raises ``LearningStopped`` where learning was
told to stop."""


def prove_learning(
    learn: Learn[Memory], groups: Sequence[Group], level: float, ends: Sequence[int], memory: Memory
) -> Dialogue[tuple[BettingTest, Memory, bool]]:
    """Run the test of learning over ``groups``, block by block, until it is proven, the blocks run
    out, or learning is told to stop (the bound then still holds). Return the test, the memory, and
    whether learning was stopped. After a proof, further blocks are learnt from without a bet, if
    there is a memory. ``ends`` are the numbers of groups that have taught before each block, and
    after the last.

    Bets name the null hypotheses: that what is learnt is no better than the present guidance, say,
    or than one verdict for every ticket. Each has a test at the level, all must reject theirs, and
    the test furthest from its proof is returned. So the bound holds for any of them.
    """
    begun = BettingTest(level, len(groups) - ends[0])
    tests: dict[str, BettingTest] = {}
    for begin, end in pairwise(ends):
        if memory is None and tests and all(test.is_accepted for test in tests.values()):
            break
        block = groups[begin:end]
        try:
            bet, memory = yield from learn(groups[:begin], block, memory)
        except LearningStopped:
            return _find_furthest_from_proof(tests, begun), memory, True
        if bet:
            stake = kelly_stake(bet.won, bet.lost)
            last = {name: tests.get(name, begun) for name in bet.gains}
            tests = {
                name: test if test.is_accepted else _place_bets(test, bet.gains[name], block, stake)
                for name, test in last.items()
            }
    return _find_furthest_from_proof(tests, begun), memory, False


def _find_furthest_from_proof(tests: Mapping[str, BettingTest], begun: BettingTest) -> BettingTest:
    """Find, among the tests without a proof, the one furthest from it; if there is none, the first
    test."""
    failing = [test for test in tests.values() if not test.is_accepted]
    return min(failing, key=lambda test: test.z_score, default=next(iter(tests.values()), begun))


def _place_bets(
    test: BettingTest, gains: Sequence[float], block: Sequence[Group], stake: float
) -> BettingTest:
    """Return the test after a block, given the gains of its tickets in their order."""
    each = iter(gains)
    test = replace(test, wealth=replace(test.wealth, favourite=stake))
    return test.plus([[next(each) for _ in group] for group in block])


def block_ends(groups: int, first: int | None = None) -> list[int]:
    """Return how many groups have taught before each block, and after the last; ``first`` before
    the first block."""
    ends = [first or max(1, round(FIRST * groups))]
    while ends[-1] < groups:
        ends.append(min(groups, round(ends[-1] * GROWTH)))
    return ends
