"""Judging a round in waves of whole groups, whose answers are committed beside the rows every few seconds.

So an interruption costs seconds, however large a round is; yet the groups, which decide the last bits of a model's numbers,
are those of the whole round. On rank 0 alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

EVERY_S = 10.0  # between two commits, about: ranks wait for each other at the end of a wave, so there are few of them

GroupAnswers = Sequence[Any]
"""The answers to the tickets of one group, in its order."""


class Keeper(Protocol):
    """Where the answers of a round are kept until its rows are written (``rounds.Rounds``)."""

    @property
    def answered(self) -> Sequence[GroupAnswers]:
        """What an interrupted process has committed of the round, group by group."""

    def show(self, tickets: int) -> None:
        """So many ``tickets`` of the round are judged."""

    def keep(self, answered: Sequence[GroupAnswers]) -> None:
        """Commit the answers to its first groups."""


class Waves:
    """The waves of the round in progress."""

    def __init__(self, rounds: Keeper) -> None:
        self._rounds = rounds
        self._found: list[GroupAnswers] = []
        self._planned = 0  # groups of the wave in progress
        self._pace = float("inf")  # seconds a group, with all ranks at work; not known yet
        self._began = self._kept = time.monotonic()

    def begin(self) -> None:
        """Begin a round, or continue one that an interrupted process committed in part."""
        self._found = list(self._rounds.answered)

    def plan(self, groups: int, ranks: int) -> tuple[int, int]:
        """Where in the ``groups`` of the round the next wave begins and ends: about as many as take ``EVERY_S``, so many for
        each of the ``ranks``; the first alone tells how long they take."""
        done, self._began = len(self._found), time.monotonic()
        each = max(1, int(EVERY_S / max(self._pace * ranks, 1e-9)))
        return done, min(groups, done + each * ranks)

    def show(self, tickets: int) -> None:
        """So many ``tickets`` of the wave in progress are judged."""
        self._rounds.show(sum(map(len, self._found)) + tickets)

    def add(self, found: Sequence[GroupAnswers], is_last: bool) -> None:
        """Add the answers of a wave, and commit them about every ``EVERY_S``; the last wave is committed with the rows."""
        now = time.monotonic()
        self._pace = (now - self._began) / len(found)
        self._found += found
        if not is_last and now - self._kept >= EVERY_S:
            self._rounds.keep(self._found)
            self._kept = now

    @property
    def answers(self) -> list[Any]:
        """The answers to all tickets so far, group by group."""
        return [answer for group in self._found for answer in group]
