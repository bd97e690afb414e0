"""A sequential test by betting against the null hypothesis that the mean gain is at most 0, valid at every look.

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


@dataclass(frozen=True, slots=True)
class Wealth:
    """The wealth from betting against "the mean gain is at most 0"."""

    favourite: float = 0.5  # the stake that holds half of the wealth, above 0 and below 1
    logs: tuple[float, ...] = (0.0,) * (len(STAKES) + 1)  # natural log of what became of 1: the favourite's, then STAKES'

    def plus(self, gains: Sequence[float]) -> Wealth:
        """The wealth after further bets, each gain in [-1, 1]."""
        logs = tuple(
            before + sum(log1p(stake * gain) for gain in gains)
            for stake, before in zip((self.favourite, *STAKES), self.logs, strict=True)
        )
        return Wealth(self.favourite, logs)

    @property
    def log(self) -> float:
        """Natural log of the wealth: half the favourite's, half the mean of the others."""
        most = max(self.logs)
        favourite, *others = (exp(each - most) for each in self.logs)
        return most + log((favourite + sum(others) / len(others)) / 2)


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
        """Whether the edit is proven better."""
        return self.wealth.log >= -log(self.level)

    @property
    def futile(self) -> bool:
        """Whether the groups that are left would not do even if they brought ``HOPE`` times what those before did."""
        grown, left = max(0.0, *self.wealth.logs), max(0, self.groups - self.seen)
        return self.seen >= FIRST and left > 0 and grown + HOPE * left * grown / self.seen < -log(self.level)

    @property
    def figures(self) -> Mapping[str, float]:
        """The log of the wealth."""
        return {"log_wealth": self.wealth.log}
