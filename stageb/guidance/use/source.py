"""Tickets to judge, as a stream: looked over once before any work starts, then read a round at a time.

Memory does not grow with their number: no pass holds more than a round.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from stageb.errors import BadInputError, BadLine, InputError
from stageb.guidance.config import ColumnsConfig, UseImages
from stageb.guidance.files.images import with_images
from stageb.guidance.files.tickets import Entry, claim, entries
from stageb.guidance.types import UNKNOWN, Ticket, Verdict
from stageb.untrusted.json_lines import FaultError

MOST_FAULTS = 1000  # gathered before the first look gives up


@dataclass(frozen=True, slots=True)
class Line:
    """One ticket to judge, and where it stands."""

    file: str  # as the user named it
    line: int  # from 1
    ticket: Ticket  # without its label: it plays no part in how a ticket is judged
    label: Verdict | None  # where the file tells


@dataclass(frozen=True, slots=True)
class Source:
    """Ticket files, and how they are to be read."""

    files: Sequence[str]
    columns: ColumnsConfig
    labelled: bool  # whether a ticket needs a label, and may come once alone
    use_images: UseImages = False  # whether, and how, a model is shown the images of tickets that name some

    def digest(self) -> str:
        """A short name for the bytes of the files. Raises ``BadInputError`` where one cannot be read."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            try:
                with Path(file).open("rb") as opened:
                    while block := opened.read(1 << 20):
                        digest.update(block)
            except (OSError, ValueError) as error:
                what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
                raise BadInputError("ticket files", [BadLine(file, 0, what, "name a readable file of tickets")]) from error
            digest.update(b"\0end of file\0")
        return digest.hexdigest()

    def survey(self, known: Collection[str]) -> Counter[str]:
        """The number of tickets of each mission, once all of them were looked at.

        Raises ``BadInputError`` with everything that is wrong, missions that are not ``known`` included.
        """
        count: Counter[str] = Counter()
        bad: list[BadLine] = []
        places: dict[tuple[str, str], str] = {}
        for file, entry in self._entries(bad):
            try:
                ticket = with_images(entry.ticket(self.labelled), file, self.use_images)
                if ticket.mission not in known:
                    what = f"mission {ticket.mission!r}, for which there is no guidance"
                    raise FaultError(what, f"there is some for {', '.join(sorted(known)) or 'none'}; leave the others out")
                if self.labelled:
                    claim(ticket, f"{file}:{entry.line}", places)
                count[ticket.mission] += 1
            except FaultError as fault:
                bad.append(BadLine(file, entry.line, fault.what, fault.remedy))
            if len(bad) >= MOST_FAULTS:
                break
        if bad:
            raise BadInputError("places in the ticket files", bad)
        return count

    def lines(self, skip: int) -> Iterator[Line]:
        """The tickets in order, but for the first ``skip``. Raises ``InputError`` where they are no longer as they were."""
        bad: list[BadLine] = []
        for file, entry in islice(self._entries(bad), skip, None):
            try:
                ticket = with_images(entry.ticket(self.labelled), file, self.use_images)
            except FaultError as fault:
                raise InputError(f"{file}:{entry.line}: changed since it was looked at: {fault.what}") from None
            yield Line(file, entry.line, replace(ticket, label=UNKNOWN), ticket.label or None)
        if bad:
            raise InputError(f"{bad[0].path}: changed since it was looked at: {bad[0].what}")

    def _entries(self, bad: list[BadLine]) -> Iterator[tuple[str, Entry]]:
        """What stands in the files; what is wrong with one as a whole goes to ``bad``."""
        for file in self.files:
            try:
                for entry in entries(file, self.columns):
                    yield file, entry
            except FaultError as fault:
                bad.append(BadLine(file, fault.line, fault.what, fault.remedy))


def by_mission(lines: Sequence[Line]) -> Mapping[str, list[int]]:
    """Positions of the lines of each mission, missions in order of first appearance."""
    found: dict[str, list[int]] = {}
    for position, case in enumerate(lines):
        found.setdefault(case.ticket.mission, []).append(position)
    return found
