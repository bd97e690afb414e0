"""Tickets to judge, as they stand in their files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from stageb.errors import shown
from stageb.guidance.files.images import attach_images
from stageb.guidance.files.stream import TicketStream
from stageb.guidance.files.tickets import Entry, claim_place
from stageb.guidance.types import UNKNOWN, Ticket, Verdict
from stageb.guidance.use.code import list_read_files
from stageb.guidance.use.config import EvaluateConfig, UseConfig, list_ticket_files, list_vocabulary
from stageb.untrusted.json_lines import FaultError


@dataclass(frozen=True, slots=True)
class TicketLine:
    """One ticket to judge, and where it stands."""

    file: str  # as the user named it
    line: int  # from 1
    ticket: Ticket  # without its label: it plays no part in how a ticket is judged
    label: Verdict | None  # where the file tells


def stream_tickets(config: UseConfig) -> TicketStream[TicketLine]:
    """The tickets that a config names. To evaluate, each needs a label."""
    labelled = isinstance(config, EvaluateConfig)

    def read(file: str, entry: Entry) -> TicketLine:
        ticket = attach_images(entry.ticket(labelled), file, config.sampler.use_images)
        return TicketLine(file, entry.line, replace(ticket, label=UNKNOWN) if ticket.label else ticket, ticket.label or None)

    return TicketStream(list_ticket_files(config), read, config.columns, labelled)


def list_inputs(config: UseConfig) -> dict[str, list[str]]:
    """The files that a config has read, by what they hold."""
    found = {"tickets": [*list_ticket_files(config)], "vocabulary": [*list_vocabulary(config)]}
    compared = config.compare if isinstance(config, EvaluateConfig) else None
    for source in (config.guidance, compared):
        for what, files in list_read_files(source).items() if source else ():
            found[what] = [*found.get(what, []), *files]
    return found


def make_check(missions: Collection[str], once: bool) -> Callable[[TicketLine], None]:
    """What raises ``FaultError`` for a ticket of none of the ``missions`` and, where each may come ``once`` alone, for one
    that came before."""
    places: dict[tuple[str, str], str] = {}

    def check(line: TicketLine) -> None:
        if line.ticket.mission not in missions:
            what = f"mission {line.ticket.mission!r}, for which there is no guidance"
            known = shown(", ".join(sorted(missions)), 400) or "none"  # there may be thousands
            raise FaultError(what, f"there is some for {known}; leave the others out")
        if once and line.label:
            claim_place(replace(line.ticket, label=line.label), f"{line.file}:{line.line}", places)

    return check


def group_by_mission(lines: Sequence[TicketLine]) -> Mapping[str, list[int]]:
    """Positions of the lines of each mission, missions in order of first appearance."""
    found: dict[str, list[int]] = {}
    for position, line in enumerate(lines):
        found.setdefault(line.ticket.mission, []).append(position)
    return found
