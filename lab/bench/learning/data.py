"""The data sets of the benchmark, by name: synthetic ones, the demo's, and ticket files in a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lab.bench.learning import missions
from stageb.demo import TICKETS
from stageb.guidance.files import tickets as ticket_files
from stageb.guidance.types import Ticket, Verdict
from stageb.seeds import shuffled, stream

MADE = tuple(missions.MISSIONS)  # parts of this loop were tuned on them
REAL = ("car_evaluation", "maintie", "monk1", "tic_tac_toe", "balance_scale", "house_votes")  # read from a folder
DEMO = {"demo-rack": "rack cabling", "demo-site": "site photos"}


def load(name: str, folder: Path | None) -> list[Ticket] | None:
    """The tickets of one mission, or None where ``folder`` holds no ``{name}/tickets.jsonl``.

    Raises ``BadInputError`` where the file is there and cannot be used.
    """
    if name in missions.MISSIONS:
        return missions.tickets(name)
    if name in DEMO:
        return [ticket for ticket in _read(TICKETS) if ticket.mission == DEMO[name]]
    path = (folder or Path()) / name / "tickets.jsonl"
    return _read(path) if path.is_file() else None


def shuffled_labels(tickets: Sequence[Ticket], seed: int) -> list[Ticket]:
    """The tickets with their labels dealt anew: there is nothing to learn. Every ticket becomes a group of its own.

    As many fail as pass. Of labels in other shares the commoner one can be learnt: where most fail and the first guidance
    passes all, any rule that fails a ticket is a gain, and a true one.
    """
    both: list[Verdict] = ["pass", "fail"]
    labels = shuffled([both[number % 2] for number in range(len(tickets))], stream("shuffled labels", seed))
    return [
        replace(ticket, label=label, group_id=f"{number:05d}")
        for number, (ticket, label) in enumerate(zip(tickets, labels, strict=True))
    ]


def write(tickets: Sequence[Ticket], path: Path) -> None:
    """A ticket file as ``stageb fit`` reads it."""
    rows = (
        {"mission": t.mission, "group_id": t.group_id, "label": t.label, "per_image": dict(t.per_image)} for t in tickets
    )
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8", newline="\n")


def _read(path: Path) -> list[Ticket]:
    return ticket_files.read([path], "error")[0]
