"""Sequential tests of edits, which look at tickets chunk by chunk: by betting, where gains are
small and many, and exact tests of groups won and lost; and the sharing of the error rate among
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb, exp, floor, inf, log, log1p, log2, sqrt
from typing import Self

from stageb.seeds import uniform

FIRST = 96  # groups to see before an edit may be given up


@dataclass(frozen=True, slots=True)
class Test:
    """A sequential test of whether one edit is better. It ends when the edit is proven, given up,
    or no group is left.

    A *gain* is a number in [-1, 1]: how much more probable the right verdict is under the edited
    guidance than under the present one, weighed by the price of errors. Null hypothesis: the mean
    gain over groups is at most 0. If it holds and groups are drawn independently, the edit is
    proven with a probability of at most ``level``, however often one looks. Each group of tickets
    counts once, by the mean gain of its tickets, which may gain or lose together.
    """

    level: float  # bound on the probability of accepting an edit that is no better
    groups: int  # number of groups that there are to look at
    gains: tuple[float, ...] = ()  # of the groups seen
    tickets: int = 0  # number of tickets in them

    def plus(self, groups: Sequence[Sequence[float]]) -> Self:
        """Return the test after one more look, at further groups, each given by the gains of its
        tickets, at least one."""
        gains = tuple(mean(group) for group in groups)
        seen = replace(self, gains=self.gains + gains, tickets=self.tickets + sum(map(len, groups)))
        return seen._update(gains)

    def _update(self, gains: Sequence[float]) -> Self:
        """Return this test, whose ``gains`` already include the new ones, with its evidence updated
        by them."""
        raise NotImplementedError

    @property
    def is_accepted(self) -> bool:
        """Whether the edit is proven."""
        raise NotImplementedError

    @property
    def is_futile(self) -> bool:
        """Whether a proof is unlikely even with the groups that are left. Giving up costs no
        validity, since nothing is accepted, and little power."""
        raise NotImplementedError

    @property
    def figures(self) -> Mapping[str, float]:
        """The progress of the proof, for people."""
        raise NotImplementedError

    @property
    def is_decided(self) -> bool:
        """Whether further looks are pointless."""
        return self.is_accepted or self.is_futile

    @property
    def seen(self) -> int:
        """The number of groups seen."""
        return len(self.gains)

    @property
    def mean(self) -> float:
        """The mean gain so far; 0 before the first group."""
        return mean(self.gains)

    @property
    def z_score(self) -> float:
        """The mean gain in standard errors of it; 0 before the second group."""
        squares = sum((gain - self.mean) ** 2 for gain in self.gains)
        return self.mean * self.seen / sqrt(squares) if squares else 0.0


def mean(gains: Sequence[float]) -> float:
    """Return the mean; 0 if there are no gains."""
    return sum(gains) / len(gains) if gains else 0.0


def next_level(left: float, share: float) -> float:
    """Return the level of the next test: the ``share`` of what is ``left`` of a part of the budget.

    A test that accepts nothing spends its level; one that accepts gets it back. So the levels spent
    never add up to more than the part, which bounds the probability of a false acceptance
    (``budget.py``) for any ``share`` that is fixed before the test looks at a ticket.
    """
    return left * share


STAKES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.99)
HOPED_GROWTH = 3.0


@dataclass(frozen=True, slots=True)
class Wealth:
    """The wealth from betting against "the mean gain is at most 0"."""

    favourite: float = 0.5  # the stake that holds half of the wealth, above 0 and below 1
    # natural log of the wealth grown from 1: with the favourite, then with each of STAKES
    logs: tuple[float, ...] = (0.0,) * (len(STAKES) + 1)

    def plus(self, gains: Sequence[float]) -> Wealth:
        """Return the wealth after further bets, each gain in [-1, 1]."""
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
    """Return a stake for an edit by which a share ``won`` of each group seemed to be won outright
    and a share ``lost`` to be lost.

    Four fifths of the stake that would grow fastest (Kelly, "A new interpretation of information
    rate", 1956), since losses are easily overlooked; at least the smallest of ``STAKES``.
    """
    return max(STAKES[0], 0.8 * ((won - lost) / (won + lost))) if won > lost else STAKES[0]


@dataclass(frozen=True, slots=True)
class BettingTest(Test):
    """A sequential test by betting against the null hypothesis that the mean gain is at most 0,
    valid at every look.

    There is one bet per group of tickets, on its gain, from a wealth of 1. If the null hypothesis
    holds and groups are drawn independently, the wealth ever reaches ``1 / level`` with a
    probability of at most ``level``, whenever one stops (Ville 1939). So a test may look after each
    chunk, end early, and keep its level. Bets on the mean of bounded variables: Waudby-Smith &
    Ramdas, "Estimating means of bounded random variables by betting" (JRSS B 2024), section 4.

    The stake that grows fastest depends on the edit: large if it only mends, small if it also
    breaks. Half of the wealth bets the stake that an earlier look at other tickets suggests, half
    is spread over the fixed ``STAKES``: the log-wealth is at most log(2 x their number) behind the
    best of them, and does not depend on the order of the groups.
    """

    wealth: Wealth = Wealth()

    def _update(self, gains: Sequence[float]) -> Self:
        return replace(self, wealth=self.wealth.plus(gains))

    @property
    def is_accepted(self) -> bool:
        """Whether the edit is proven better."""
        return self.wealth.log >= self._needed

    @property
    def is_futile(self) -> bool:
        """Whether the groups that are left would not do even if they brought ``HOPED_GROWTH`` times
        what those before did."""
        grown, left = max(0.0, *self.wealth.logs), max(0, self.groups - self.seen)
        return (
            self.seen >= FIRST
            and left > 0
            and grown + HOPED_GROWTH * left * grown / self.seen < self._needed
        )

    @property
    def _needed(self) -> float:
        """The log of the wealth that is a proof; out of reach where no level is left to spend."""
        return -log(self.level) if self.level else inf

    @property
    def figures(self) -> Mapping[str, float]:
        """The log of the wealth."""
        return {"log_wealth": self.wealth.log}


HOPED_ERRORS = 2.0  # by how many standard errors the groups left may win more than those seen
DOUBT = (
    # an edit may bring so many times the proof that its race promises: if it turns a few per cent
    # of all tickets, a race sees a handful of them
    2.0
)


@dataclass(frozen=True, slots=True)
class ExactTest(Test):
    """An exact sequential test of groups won against groups lost, looked at after each chunk and at
    the end of the pool.

    A group is *turned* if it is won or lost. A group with mean gain 1 is won, with -1 lost. A gain
    g in between is drawn: won with probability g if g > 0, lost with probability -g if g < 0, so
    that E[won - lost] = g, as if verdicts were sampled from their probabilities. The null
    hypothesis "the mean gain is at most 0" then says, for all prices and probabilities, that a
    turned group is won with probability at most 1/2 (Schlag, "A new method for constructing exact
    tests without making any assumptions", 2008). What is drawn depends on the test's name and the
    group's place alone.

    Given which groups are turned, each is a coin that is fair at best under the null hypothesis. On
    a whole pool this is McNemar's exact test (1947). Looks after each chunk share the level by the
    fraction of groups seen (Lan & DeMets, "Discrete sequential boundaries for clinical trials",
    Biometrika 1983; by calendar time, 1989): a look proves the edit at the least number of wins
    that fair coins, unproven so far, reach with a probability within the level spent so far. Level
    that a look cannot use, since wins are whole numbers, passes to the next one; the last look has
    all that is left.

    Compared with betting: no stake to choose, so whole wins and losses are proven on fewer tickets.
    Betting is better where verdicts become a little more probable on many tickets, since drawing
    those adds noise.
    """

    key: int = 0  # names the draws
    won: int = 0
    lost: int = 0
    # for each number of wins: the chance that fair coins win so often and proved nothing before
    chances: tuple[float, ...] = (1.0,)
    spent: float = 0.0  # of the level: the chance that fair coins had proven it by now
    proven: bool = False

    def _update(self, gains: Sequence[float]) -> Self:
        first = self.seen - len(gains)
        turned = [
            gain for place, gain in enumerate(gains, first) if uniform(self.key, place) < abs(gain)
        ]
        won = self.won + sum(gain > 0 for gain in turned)
        chances = self.chances
        for _ in turned:
            chances = tuple(
                (lost + one_less) / 2
                for lost, one_less in zip((*chances, 0.0), (0.0, *chances), strict=True)
            )
        left = self.level * min(1.0, self.seen / self.groups) - self.spent
        needed, reached = len(chances), 0.0
        while reached + chances[needed - 1] <= left:  # never all of them: a level is below 1
            needed -= 1
            reached += chances[needed]
        lost = self.lost + len(turned) - (won - self.won)
        kept, spent, proven = chances[:needed], self.spent + reached, self.proven or won >= needed
        return replace(self, won=won, lost=lost, chances=kept, spent=spent, proven=proven)

    @property
    def is_accepted(self) -> bool:
        """Whether the edit is proven to win more than it loses."""
        return self.proven

    @property
    def is_futile(self) -> bool:
        """Whether the last look would prove nothing even if the groups that are left were won
        ``HOPED_ERRORS`` standard errors more often than those before, and lost as often."""
        left = self.groups - self.seen
        if self.seen < FIRST or left <= 0 or self.proven:
            return False
        won = self.won + left * (self.won + HOPED_ERRORS * sqrt(self.won + 1)) / self.seen
        return mcnemar_p(ceil(won), floor(self.lost + left * self.lost / self.seen)) > self.level

    @property
    def figures(self) -> Mapping[str, float]:
        """Groups won and lost."""
        return {"won": self.won, "lost": self.lost}


def mcnemar_p(won: int, lost: int) -> float:
    """Return the chance that ``won`` or more of ``won + lost`` fair coins fall well: McNemar's
    exact one-sided p."""
    turned = won + lost
    # count the shorter end: coins are fair, so either will do
    few = sum(comb(turned, k) for k in range(min(won, lost + 1)))
    return float((few if lost < won else 2**turned - few) / 2**turned)


def is_promising(won: float, lost: float, groups: int, level: float) -> bool:
    """Whether so many groups, won and lost at these rates each, make 1 / ``DOUBT`` of a proof (in
    logs), and could make a whole one."""
    return (
        mcnemar_p(round(won * groups), round(lost * groups)) <= level ** (1 / DOUBT)
        and mcnemar_p(groups, 0) <= level
    )


def count_fewest_wins(level: float) -> int:
    """Return the number of groups that must be won outright for a proof at ``level``, above 0,
    where none is lost."""
    return ceil(-log2(level))
