"""How sure a gain is, looked at as often as one likes: betting against "this edit is not better".

A *gain* is a number in [-1, 1] per ticket: how much more probable the right verdict is under the edited guidance than under
the present one. Whoever doubts the edit says that its mean is at most ``margin``. We start with a wealth of 1 and bet on
every ticket; if the doubter is right, wealth is no more likely than ``level`` ever to reach ``1 / level``, whenever one
stops (Ville 1939). So a test may look after each chunk, end early, and still keep its level. Bets on the mean of bounded
variables: Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting" (JRSS B 2024), section 4.

Which stake grows fastest depends on what the edit does: all of it where an edit only mends, little where it also breaks.
Half of the wealth is put on the stake that an earlier look at other tickets suggests, half is spread over fixed stakes: at
most log(2 x their number) is lost against the best of them. Unlike stakes that learn on the way, this does not depend on the
order of the tickets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, log1p

STAKES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.99)
SHARE = 1 / 8  # of what is left of the budget, for the next test
FIRST = 96  # tickets to see before an edit is given up
HOPE = 3.0


@dataclass(frozen=True, slots=True)
class Wealth:
    """What betting against "the mean gain is at most ``margin``" has come to. ``margin`` lies above -1 and below 1."""

    margin: float = 0.0
    favourite: float = 0.5  # the stake that holds half of the wealth, above 0 and below 1
    tickets: int = 0  # bet on so far
    logs: tuple[float, ...] = (0.0,) * (len(STAKES) + 1)  # natural log of what became of 1: the favourite's, then STAKES'

    def plus(self, gains: Sequence[float]) -> Wealth:
        """The wealth after further tickets, each gain in [-1, 1]."""
        scaled = [(gain - self.margin) / (1 + self.margin) for gain in gains]
        logs = tuple(
            before + sum(log1p(stake * x) for x in scaled)
            for stake, before in zip((self.favourite, *STAKES), self.logs, strict=True)
        )
        return Wealth(self.margin, self.favourite, self.tickets + len(gains), logs)

    @property
    def log(self) -> float:
        """Natural log of the wealth: half the favourite's, half the mean of the others."""
        most = max(self.logs)
        favourite, *others = (exp(each - most) for each in self.logs)
        return most + log((favourite + sum(others) / len(others)) / 2)

    def proves(self, level: float) -> bool:
        """Whether the doubt is refuted at ``level``."""
        return self.log >= -log(level)

    def grown(self, tickets: int) -> float:
        """The log that ``tickets`` tickets would bring, all in all, if they went as these did; 0 where there were none."""
        return max(0.0, *self.logs) / self.tickets * tickets if self.tickets else 0.0


def favourite(won: float, lost: float) -> float:
    """A stake for an edit by which of each ticket ``won`` seemed to be won outright and ``lost`` to be lost.

    Four fifths of the one that would grow fastest (Kelly, "A new interpretation of information rate", 1956), since losses
    are easily overlooked; at least the smallest of ``STAKES``.
    """
    return max(STAKES[0], 0.8 * ((won - lost) / (won + lost))) if won > lost else STAKES[0]


@dataclass(frozen=True, slots=True)
class Test:
    """A sequential test of one edit: goes on until the edit is proven, is given up, or the tickets end."""

    level: float  # the chance of accepting an edit that is no better
    tickets: int  # that there are to look at
    gain: Wealth = Wealth()
    total: float = 0.0  # sum of the gains

    def plus(self, gains: Sequence[float]) -> Test:
        """The test after further tickets."""
        return Test(self.level, self.tickets, self.gain.plus(gains), self.total + sum(gains))

    @property
    def accepts(self) -> bool:
        """Whether the edit is proven better than the margin."""
        return self.gain.proves(self.level)

    @property
    def futile(self) -> bool:
        """Whether the tickets that are left would not do even if they brought ``HOPE`` times what those before did.

        Giving up costs no validity, since nothing is accepted, and a little power: of edits that mend 15 % of the errors, 3
        in 100 where one ticket in three is judged wrong.
        """
        seen, grown = self.gain.tickets, max(0.0, *self.gain.logs)
        left = max(0, self.tickets - seen)
        return seen >= FIRST and grown + HOPE * left * grown / seen < -log(self.level)

    @property
    def mean(self) -> float:
        """The mean gain so far; 0 before the first ticket."""
        return self.total / self.gain.tickets if self.gain.tickets else 0.0


def projected(won: float, lost: float, tickets: int) -> float:
    """The log of the wealth that ``tickets`` tickets would bring under the best stake, where of each ``won`` is won outright
    and ``lost`` is lost, on the average; at least 0."""
    return max(0.0, *(tickets * (won * log1p(stake) + lost * log1p(-stake)) for stake in STAKES))


def smallest(level: float, tickets: int) -> float:
    """The smallest mean gain that ``tickets`` tickets can prove at ``level``, where nothing is lost: the share of them that
    must be won outright. Above 1 where even that would not do."""
    return (log(2) - log(level)) / (log(2) * tickets) if tickets else 2.0


def spend(left: float) -> float:
    """The level of the next test out of a false-acceptance budget that has ``left`` left.

    What a test was given is spent where it accepts nothing and comes back where it accepts; so the levels spent on edits
    that are no better add up to no more than the budget, and with them the chance of ever accepting one (the fallback
    procedure of Tian & Ramdas, "Online control of the familywise error rate", 2021, section 4, with geometric shares).
    """
    return left * SHARE
