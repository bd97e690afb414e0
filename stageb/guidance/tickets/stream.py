"""Ticket files as a stream: looked over once before any work starts, then read a round at a time.

Memory does not grow with their number: no pass holds more than a round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.guidance.config import UseImages
from stageb.guidance.tickets.images import attach_images
from stageb.guidance.tickets.tickets import (
    KIND,
    Entry,
    claim_place,
    name_strange_label,
    read_entries,
    reporting,
)
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import PASS_FAIL, UNKNOWN, Guidance, Ticket, Verdict
from stageb.untrusted.strict_json import FaultError, open_named, reading, short

_BY_COLUMN_NAMES = ColumnsConfig()
MOST_FAULTS = 1000  # gathered before the survey gives up

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TicketStream(Generic[Item]):
    """Ticket files, and what is made of each ticket in them."""

    files: Sequence[str]
    read: Callable[[str, Entry], Item]
    """Of a file's name and one of its entries. Raises ``FaultError``."""
    columns: ColumnsConfig = _BY_COLUMN_NAMES
    """Where a table's cells belong."""
    labelled: bool = True
    """Whether a table needs a column of labels."""
    places: Container[str] | None = None
    """FILE:LINE of those that are taken; None: all."""

    def digest(self) -> str:
        """A short name for the bytes of the files. Raises ``BadInputError`` where one cannot be
        read."""
        digest = hashlib.blake2b(digest_size=16)
        for file in self.files:
            with reporting(file, "ticket files"), reading(KIND), open_named(file) as opened:
                while block := opened.read(1 << 20):
                    digest.update(block)
            digest.update(b"\0end of file\0")
        return digest.hexdigest()

    def survey(self, check: Callable[[Item], None] = lambda item: None) -> int:
        """The number of tickets, once all of them were looked at; ``check`` raises ``FaultError``
        for one that is sound and cannot be used.

        Raises ``BadInputError`` with everything that is wrong.
        """
        count = 0
        bad: list[BadLine] = []
        for file, entry in self._entries(bad):
            try:
                check(self.read(file, entry))
                count += 1
            except FaultError as fault:
                bad.append(fault.in_file(file, entry.line))
            if len(bad) >= MOST_FAULTS:
                break
        if bad:
            raise BadInputError("places in the ticket files", bad)
        return count

    def glance(self, most: int, make_check: Callable[[], Callable[[Item], None]]) -> int:
        """The number of tickets, counted up to ``most``, before all of them are looked at: a fault
        among them is one that shows at once, and ``survey``, with a check of its own, then tells of
        every other."""
        count, bad = 0, list[BadLine]()
        check = make_check()
        try:
            for file, entry in islice(self._entries(bad), most):
                check(self.read(file, entry))
                count += 1
        except FaultError:
            return self.survey(make_check())
        return (
            count
            if not bad and all(Path(file).exists() for file in self.files)
            else self.survey(make_check())
        )

    def items(self, skip: int = 0) -> Iterator[Item]:
        """The tickets in order, but for the first ``skip``. Raises ``InputError`` where they are no
        longer as they were."""
        bad: list[BadLine] = []
        for file, entry in islice(self._entries(bad), skip, None):
            try:
                yield self.read(file, entry)
            except FaultError as fault:
                raise InputError(
                    f"{file}:{entry.line}: changed since it was looked at: {fault.what}"
                ) from None
        if bad:
            raise InputError(f"{bad[0].path}: changed since it was looked at: {bad[0].what}")

    def _entries(self, bad: list[BadLine]) -> Iterator[tuple[str, Entry]]:
        """Yield the entries of the files; what is wrong with a file as a whole goes to ``bad``."""
        for file in self.files:
            try:
                for entry in read_entries(file, self.columns, self.labelled):
                    if not entry.is_skipped and (
                        self.places is None or f"{file}:{entry.line}" in self.places
                    ):
                        yield file, entry
            except FaultError as fault:
                bad.append(fault.in_file(file))


@dataclass(frozen=True, slots=True)
class TicketLine:
    """One ticket to judge, and where it stands."""

    file: str  # as the user named it
    line: int  # from 1
    ticket: Ticket  # without its label: it plays no part in how a ticket is judged
    label: Verdict | None  # where the file tells

    @classmethod
    def read(cls, file: str, entry: Entry, labelled: bool, use_images: UseImages) -> TicketLine:
        """Read an entry of a ``file``, which needs a label where it is ``labelled``. Raises
        ``FaultError``."""
        ticket = attach_images(entry.ticket(labelled), file, use_images)
        unlabelled = replace(ticket, label=UNKNOWN) if ticket.label else ticket
        return cls(file, entry.line, unlabelled, ticket.label or None)


def make_check(
    missions: Mapping[str, Guidance], columns: ColumnsConfig, once: bool
) -> Callable[[TicketLine], None]:
    """Make a check that raises ``FaultError`` for a ticket of none of the ``missions``, for one
    with a label that its mission does not have and, where each may come ``once`` alone, for one
    that came before."""
    places: dict[tuple[str, str], str] = {}

    def check(line: TicketLine) -> None:
        if line.ticket.mission not in missions:
            what = f"mission {line.ticket.mission!r}, for which there is no guidance"
            known = shown(", ".join(sorted(missions)), 400) or "none"  # there may be thousands
            raise FaultError(what, f"there is some for {known}; leave the others out")
        labels = missions[line.ticket.mission].labels
        if line.label and line.label not in labels:
            if labels == PASS_FAIL:
                raise name_strange_label(line.label, columns)
            raise FaultError(f"label {short(line.label)}", f"write one of {', '.join(labels)}")
        if once and line.label:
            ticket, place = replace(line.ticket, label=line.label), f"{line.file}:{line.line}"
            claim_place(ticket, place, places, columns)

    return check
