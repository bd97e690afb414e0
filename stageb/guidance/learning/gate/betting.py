"""A sequential test by betting against the null hypothesis that the mean gain is at most ``margin``, valid at every look.

There is one bet per group of tickets, on its gain, from a wealth of 1. If the null hypothesis holds and groups are drawn
independently, the wealth ever reaches ``1 / level`` with a probability of at most ``level``, whenever one stops (Ville
1939). So a test may look after each chunk, end early, and keep its level. Bets on the mean of bounded variables:
Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting" (JRSS B 2024), section 4.

The stake that grows fastest depends on the edit: large if it only mends, small if it also breaks. Half of the wealth bets
the stake that an earlier look at other tickets suggests, half is spread over the fixed ``STAKES``: the log-wealth is at
most log(2 x their number) behind the best of them, and does not depend on the order of the groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, log1p
from typing import Self

from stageb.guidance.learning.gate.sequential import FIRST, Test

STAKES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.99)
HOPE = 3.0
MISSED = 1.0  # groups that may be lost, on balance, where a rule goes
STEPS = 12  # of the search for the least margin: to a four-thousandth of what is left


@dataclass(frozen=True, slots=True)
class Wealth:
    """The wealth from betting against "the mean gain is at most ``margin``", with ``margin`` above -1 and below 1."""

    margin: float = 0.0
    favourite: float = 0.5  # the stake that holds half of the wealth, above 0 and below 1
    bets: int = 0  # made so far
    logs: tuple[float, ...] = (0.0,) * (len(STAKES) + 1)  # natural log of what became of 1: the favourite's, then STAKES'

    def plus(self, gains: Sequence[float]) -> Wealth:
        """The wealth after further bets, each gain in [-1, 1]."""
        scaled = [(gain - self.margin) / (1 + self.margin) for gain in gains]
        logs = tuple(
            before + sum(log1p(stake * x) for x in scaled)
            for stake, before in zip((self.favourite, *STAKES), self.logs, strict=True)
        )
        return Wealth(self.margin, self.favourite, self.bets + len(gains), logs)

    @property
    def log(self) -> float:
        """Natural log of the wealth: half the favourite's, half the mean of the others."""
        most = max(self.logs)
        favourite, *others = (exp(each - most) for each in self.logs)
        return most + log((favourite + sum(others) / len(others)) / 2)

    def proves(self, level: float) -> bool:
        """Whether the null hypothesis is rejected at ``level``."""
        return self.log >= -log(level)

    def projected_log(self, bets: int) -> float:
        """The log-wealth after ``bets`` in all if the others go like those so far; 0 before the first bet."""
        return max(0.0, *self.logs) / self.bets * bets if self.bets else 0.0


def kelly_stake(won: float, lost: float) -> float:
    """A stake for an edit by which of each group ``won`` seemed to be won outright and ``lost`` to be lost.

    Four fifths of the one that would grow fastest (Kelly, "A new interpretation of information rate", 1956), since losses
    are easily overlooked; at least the smallest of ``STAKES``.
    """
    return max(STAKES[0], 0.8 * ((won - lost) / (won + lost))) if won > lost else STAKES[0]


@dataclass(frozen=True, slots=True)
class BettingTest(Test):
    """A sequential test by betting: of gains that are small and many."""

    wealth: Wealth = Wealth()

    def _update(self, gains: Sequence[float]) -> Self:
        return replace(self, wealth=self.wealth.plus(gains))

    @property
    def accepts(self) -> bool:
        """Whether the edit is proven better than the margin."""
        return self.wealth.proves(self.level)

    @property
    def futile(self) -> bool:
        """Whether the groups that are left would not do even if they brought ``HOPE`` times what those before did."""
        grown, left = max(0.0, *self.wealth.logs), max(0, self.groups - self.seen)
        return self.seen >= FIRST and left > 0 and grown + HOPE * left * grown / self.seen < -log(self.level)

    @property
    def figures(self) -> Mapping[str, float]:
        """The log of the wealth."""
        return {"log_wealth": self.wealth.log}


@dataclass(frozen=True, slots=True)
class RemovalTest(BettingTest):
    """A test of guidance without a rule: goes on to the end, since what it cannot rule out is what the removal may cost.

    ``wealth`` bets against "more than the whole margin is lost", ``Wealth(-margin)``.
    """

    @property
    def accepts(self) -> bool:
        """Whether it is proven that less than the margin is lost, and hardly anything was seen to be lost, so that no rule
        which earns a little goes while the margin is wide."""
        return self.wealth.proves(self.level) and sum(self.gains) >= -MISSED

    @property
    def decided(self) -> bool:
        """Whether further looks are pointless."""
        return self.futile

    @property
    def bound(self) -> float:
        """What may be lost at most, as a mean gain: the least margin, from 0 to the whole one, that the groups seen prove.

        The true loss exceeds it with a probability of at most ``level``: then the null hypothesis "at least this much is
        lost" was rejected although it holds, since rejecting a smaller loss rejects every larger one. 1 if the whole margin
        is not proven.
        """
        if not self.wealth.proves(self.level):
            return 1.0
        low, high = 0.0, -self.wealth.margin
        if Wealth(0.0, self.wealth.favourite).plus(self.gains).proves(self.level):
            return low
        for _ in range(STEPS):
            middle = (low + high) / 2
            proven = Wealth(-middle, self.wealth.favourite).plus(self.gains).proves(self.level)
            low, high = (low, middle) if proven else (middle, high)
        return high
