"""Tests that look at tickets chunk by chunk, and what share of a chance of going wrong each of them gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

FIRST = 96  # groups to see before an edit is given up


@dataclass(frozen=True, slots=True)
class Test:
    """A test of one edit, that it is better: goes on until the edit is proven, is given up, or the groups end.

    A *gain* is a number in [-1, 1]: how much more probable the right verdict is under the edited guidance than under the
    present one, weighed by the price of errors. Whoever doubts the edit says that the mean gain over groups is at most 0.
    If the doubter is right, and groups are drawn independently, the edit is proven with a chance of at most ``level``,
    however often one looks. Each group of tickets counts once, by the mean of its tickets' gains: tickets of one group may
    gain or lose as one, and would count twice.
    """

    level: float  # the chance of accepting an edit that is no better
    groups: int  # that there are to look at
    gains: tuple[float, ...] = ()  # of the groups seen
    tickets: int = 0  # in them

    def plus(self, groups: Sequence[Sequence[float]]) -> Self:
        """The test after one more look, at further groups, each given by the gains of its tickets, one at the least."""
        gains = tuple(mean(group) for group in groups)
        seen = replace(self, gains=self.gains + gains, tickets=self.tickets + sum(map(len, groups)))
        return seen._update(gains)

    def _update(self, gains: Sequence[float]) -> Self:
        """This test, which has all groups seen, with what its proof needs of the new ones."""
        raise NotImplementedError

    @property
    def accepts(self) -> bool:
        """Whether the edit is proven."""
        raise NotImplementedError

    @property
    def futile(self) -> bool:
        """Whether what was seen leaves little hope for the groups that are left. Giving up costs no validity, since nothing
        is accepted, and little power."""
        raise NotImplementedError

    @property
    def figures(self) -> Mapping[str, float]:
        """How far the proof has come, for people."""
        raise NotImplementedError

    @property
    def decided(self) -> bool:
        """Whether there is nothing more to look at for."""
        return self.accepts or self.futile

    @property
    def seen(self) -> int:
        """Groups seen."""
        return len(self.gains)

    @property
    def mean(self) -> float:
        """The mean gain so far; 0 before the first group."""
        return mean(self.gains)


def mean(gains: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(gains) / len(gains) if gains else 0.0


def next_level(left: float, share: float) -> float:
    """The level of the next test out of a part of the budget that has ``left`` left: a chance of going wrong, spent in
    geometric shares.

    What an edit's test was given is spent where it accepts nothing and comes back where it accepts; so what is spent never
    adds up to more than the part. That bounds the chance of a false acceptance (``budget.py``) for any ``share`` that is
    fixed before a ticket of the test is looked at.
    """
    return left * share
