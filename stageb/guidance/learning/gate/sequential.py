"""Sequential tests of edits, which look at tickets chunk by chunk, and how the error rate is shared among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Self

FIRST = 96  # groups to see before an edit is given up


@dataclass(frozen=True, slots=True)
class Test:
    """A sequential test of whether one edit is better. It ends when the edit is proven, given up, or no group is left.

    A *gain* is a number in [-1, 1]: how much more probable the right verdict is under the edited guidance than under the
    present one, weighed by the price of errors. Null hypothesis: the mean gain over groups is at most 0. If it holds and
    groups are drawn independently, the edit is proven with a probability of at most ``level``, however often one looks. Each
    group of tickets counts once, by the mean gain of its tickets, which may gain or lose together.
    """

    level: float  # bound on the probability of accepting an edit that is no better
    groups: int  # that there are to look at
    gains: tuple[float, ...] = ()  # of the groups seen
    tickets: int = 0  # in them

    def plus(self, groups: Sequence[Sequence[float]]) -> Self:
        """The test after one more look, at further groups, each given by the gains of its tickets, one at the least."""
        gains = tuple(mean(group) for group in groups)
        seen = replace(self, gains=self.gains + gains, tickets=self.tickets + sum(map(len, groups)))
        return seen._update(gains)

    def _update(self, gains: Sequence[float]) -> Self:
        """This test, whose ``gains`` already include the new ones, with its evidence updated by them."""
        raise NotImplementedError

    @property
    def accepts(self) -> bool:
        """Whether the edit is proven."""
        raise NotImplementedError

    @property
    def futile(self) -> bool:
        """Whether a proof is unlikely even with the groups that are left. Giving up costs no validity, since nothing is
        accepted, and little power."""
        raise NotImplementedError

    @property
    def figures(self) -> Mapping[str, float]:
        """How far the proof has come, for people."""
        raise NotImplementedError

    @property
    def decided(self) -> bool:
        """Whether further looks are pointless."""
        return self.accepts or self.futile

    @property
    def seen(self) -> int:
        """Groups seen."""
        return len(self.gains)

    @property
    def mean(self) -> float:
        """The mean gain so far; 0 before the first group."""
        return mean(self.gains)

    @property
    def standard_errors(self) -> float:
        """The mean gain in standard errors of it; 0 before the second group."""
        squares = sum((gain - self.mean) ** 2 for gain in self.gains)
        return self.mean * self.seen / sqrt(squares) if squares else 0.0


def mean(gains: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(gains) / len(gains) if gains else 0.0


def next_level(left: float, share: float) -> float:
    """The level of the next test: the ``share`` of what is ``left`` of a part of the budget.

    A test that accepts nothing spends its level; one that accepts gets it back. So the levels spent never add up to more
    than the part, which bounds the probability of a false acceptance (``budget.py``) for any ``share`` that is fixed before
    the test looks at a ticket.
    """
    return left * share
