"""The train tickets that edits are tested on: whole groups, cut into folds that teach in turn.

A bundle's edits are made from tickets of one fold, its cases and its evidence alike, and tested on the others: so no edit is
tested on what speaks for itself, and every ticket serves both ends (cross-fitting). A group may come twice, once as ``pass``
and once as ``fail``, and is joined by tickets that say the same (``guidance/groups.py``). Its tickets tell much the same, so
nothing may cut it in two: neither a fold, nor the end of a pool, nor the look of a test. Of a large group some tickets tell
as much as all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from stageb.guidance.groups import Group
from stageb.guidance.types import FOLDS

TOLD = 8  # tickets of a group that an edit is tested on, at most


@dataclass(frozen=True)
class Pool:
    """What the edits of one mission may be made from and tested on."""

    groups: Sequence[Group]  # in the order in which tests see them; every ``FOLDS``-th is of one fold
    size: int  # tickets that one edit is tested on, at most

    def fold(self, number: int) -> Iterator[int]:
        """The tickets of a fold, in order."""
        return (position for group in islice(self.groups, number % FOLDS, None, FOLDS) for position in group)

    def of_fold(self, number: int, positions: Iterable[int]) -> list[int]:
        """Those of ``positions`` that are tickets of a fold, in order; other tickets are not looked at, however many."""
        placed = ((self._places[position], position) for position in positions if position in self._places)
        return [position for (place, _), position in sorted(placed) if place % FOLDS == number % FOLDS]

    @cached_property
    def _places(self) -> dict[int, tuple[int, int]]:
        """Position -> which group, and which ticket of it."""
        return {i: (place, spot) for place, group in enumerate(self.groups) for spot, i in enumerate(group)}

    def groups_outside(self, number: int | None) -> list[Group]:
        """The first groups outside a fold (None: all), ``TOLD`` tickets of each and ``size`` in all at most. Groups further
        on are not looked at, however many there are."""
        kept: list[Group] = []
        room = self.size
        for place, group in enumerate(self.groups):
            if number is not None and place % FOLDS == number % FOLDS:
                continue
            some = group[:TOLD]
            if len(some) > room:
                break
            kept.append(some)
            room -= len(some)
        return kept


def interim_looks(groups: Sequence[Group], least: int) -> Iterator[list[Group]]:
    """``groups`` in chunks of ``least`` tickets or a few more; the last may be shorter."""
    chunk: list[Group] = []
    tickets = 0
    for group in groups:
        chunk.append(group)
        tickets += len(group)
        if tickets >= least:
            yield chunk
            chunk, tickets = [], 0
    if chunk:
        yield chunk
