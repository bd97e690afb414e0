"""The train tickets that edits are tested on: whole groups, without those that an edit was shown, no more than are needed.

A group may come twice, once as ``pass`` and once as ``fail``. Its tickets tell much the same, so nothing may cut it in two:
neither the end of a pool, nor the look of a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stageb.guidance.types import Ticket

Group = tuple[int, ...]
"""The positions of one group's tickets."""


def whole_groups(positions: Iterable[int], tickets: Sequence[Ticket]) -> list[Group]:
    """``positions`` of one mission by group, in the order in which the groups first appear. Made once for a run."""
    groups: dict[str, list[int]] = {}
    for position in positions:
        groups.setdefault(tickets[position].group_id, []).append(position)
    return [tuple(group) for group in groups.values()]


@dataclass(frozen=True, slots=True)
class Pool:
    """What the edits of one mission may be tested on."""

    groups: Sequence[Group]  # in the order in which tests see them
    tickets: Sequence[Ticket]  # what stands at a position
    size: int  # tickets that one edit is tested on, at most

    def without(self, shown: Iterable[int]) -> list[Group]:
        """The first groups of which no ticket stands in ``shown``, ``size`` tickets at most. Groups further on are not
        looked at, however many there are."""
        told = {self.tickets[position].group_id for position in shown}
        kept: list[Group] = []
        room = self.size
        for group in self.groups:
            if self.tickets[group[0]].group_id in told:
                continue
            if len(group) > room:
                break
            kept.append(group)
            room -= len(group)
        return kept


def looks(groups: Sequence[Group], least: int) -> Iterator[list[Group]]:
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
