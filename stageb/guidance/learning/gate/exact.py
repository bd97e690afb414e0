"""An exact sequential test of groups won against groups lost, looked at after each chunk and at the end of the pool.

A group is *turned* if it is won or lost. A group with mean gain 1 is won, with -1 lost. A gain g in between is drawn: won
with probability g if g > 0, lost with probability -g if g < 0, so that E[won - lost] = g, as if verdicts were sampled
from their probabilities. The null hypothesis "the mean gain is at most 0" then says, for all prices and probabilities,
that a turned group is won with probability at most 1/2 (Schlag, "A new method for constructing exact tests without making
any assumptions", 2008). What is drawn depends on the test's name and the group's place alone.

Given which groups are turned, each is a coin that is fair at best under the null hypothesis. On a whole pool this is
McNemar's exact test (1947). Looks after each chunk share the level by the fraction of groups seen (Lan & DeMets,
"Discrete sequential boundaries for clinical trials", Biometrika 1983; by calendar time, 1989): a look proves the edit at
the least number of wins that fair coins, unproven so far, reach with a probability within the level spent so far. Level
that a look cannot use, since wins are whole numbers, passes to the next one; the last look has all that is left.

Compared with betting (``betting.py``): no stake to choose, so whole wins and losses are proven on fewer tickets. Betting
is better where verdicts become a little more probable on many tickets, since drawing those adds noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb, floor, log2, sqrt
from typing import Self

from stageb.guidance.learning.gate.sequential import FIRST, Test
from stageb.seeds import uniform

HOPE = 2.0  # standard errors more, that the groups left may win, than those seen
DOUBT = (
    2.0  # times more of a proof than its race says, an edit may bring: of a few per cent, a race sees a handful of tickets
)


@dataclass(frozen=True, slots=True)
class ExactTest(Test):
    """A sequential test of turned groups, against fair coins."""

    key: int = 0  # names the draws
    won: int = 0
    lost: int = 0
    chances: tuple[float, ...] = (1.0,)  # for each number of wins: that so many of fair coins are, and proved nothing before
    spent: float = 0.0  # of the level: that fair coins had proven it by now
    proven: bool = False

    def _update(self, gains: Sequence[float]) -> Self:
        first = self.seen - len(gains)
        turned = [gain for place, gain in enumerate(gains, first) if uniform(self.key, place) < abs(gain)]
        won = self.won + sum(gain > 0 for gain in turned)
        chances = self.chances
        for _ in turned:
            chances = tuple((lost + one_less) / 2 for lost, one_less in zip((*chances, 0.0), (0.0, *chances), strict=True))
        left = self.level * min(1.0, self.seen / self.groups) - self.spent
        needed, reached = len(chances), 0.0
        while needed and reached + chances[needed - 1] <= left:
            needed -= 1
            reached += chances[needed]
        lost = self.lost + len(turned) - (won - self.won)
        kept, spent, proven = chances[:needed], self.spent + reached, self.proven or won >= needed
        return replace(self, won=won, lost=lost, chances=kept, spent=spent, proven=proven)

    @property
    def accepts(self) -> bool:
        """Whether the edit is proven to win more than it loses."""
        return self.proven

    @property
    def futile(self) -> bool:
        """Whether the last look would prove nothing even if the groups that are left were won ``HOPE`` standard errors more
        often than those before, and lost as often."""
        left = self.groups - self.seen
        if self.seen < FIRST or left <= 0 or self.proven:
            return False
        won = self.won + left * (self.won + HOPE * sqrt(self.won + 1)) / self.seen
        return mcnemar_p(ceil(won), floor(self.lost + left * self.lost / self.seen)) > self.level

    @property
    def figures(self) -> Mapping[str, float]:
        """Groups won and lost."""
        return {"won": self.won, "lost": self.lost}


def mcnemar_p(won: int, lost: int) -> float:
    """The chance that of ``won + lost`` fair coins ``won`` or more fall well: McNemar's exact one-sided p."""
    turned = won + lost
    few = sum(comb(turned, k) for k in range(min(won, lost + 1)))  # of the shorter end: coins are fair, so either will do
    return float((few if lost < won else 2**turned - few) / 2**turned)


def is_promising(won: float, lost: float, groups: int, level: float) -> bool:
    """Whether so many groups, won and lost at these rates each, make 1 / ``DOUBT`` of a proof (in logs), and could make a
    whole one."""
    return mcnemar_p(round(won * groups), round(lost * groups)) <= level ** (1 / DOUBT) and mcnemar_p(groups, 0) <= level


def count_fewest_wins(level: float) -> int:
    """The groups that must be won outright for a proof at ``level``, above 0, where none is lost."""
    return ceil(-log2(level))
