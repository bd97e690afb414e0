"""Ticket files: JSON Lines read strictly, every fault reported at once; and which split a ticket belongs to.

A line holds ``mission``, ``group_id``, ``label`` (pass or fail) and ``per_image``, an object of summaries whose keys carry
the image's number in any of the usual ways ("1", "image_1", "图片_1"). All other keys are kept and not used.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stageb import strict_json
from stageb.errors import BadInputError, BadLine
from stageb.guidance.texts import text_fault
from stageb.guidance.types import Ticket

_IMAGE = re.compile(r"\D*(\d{1,9})\D*")
_HEADER = re.compile(r"\A\s*<DOMAIN=[^>\n]*>,[ \t]*<TASK=SUMMARY>[ \t\r]*(\n|\Z)")
_FIELDS = ("mission", "group_id", "label", "per_image")


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A line that was set aside."""

    line: BadLine  # where, what, and the remedy
    raw: str  # the line as it came, undecodable bytes escaped


class _FaultError(Exception):
    """What is wrong with a line, and the remedy."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


def read(paths: Sequence[str | Path], on_bad_record: Literal["error", "skip"]) -> tuple[list[Ticket], list[BadRecord]]:
    """The tickets of all files, in order, and the lines set aside (always none under ``error``).

    Raises ``BadInputError`` with everything that is wrong: under ``error`` every unusable line, under ``skip`` only what
    concerns whole files (missing, unreadable, empty) or leaves no ticket at all.
    """
    tickets: list[Ticket] = []
    broken: list[BadLine] = []  # whole files
    bad: list[BadRecord] = []
    places: dict[tuple[str, str], str] = {}
    for path in map(str, paths):
        try:
            lines = _file_lines(path)
        except _FaultError as fault:
            broken.append(BadLine(path, 0, fault.what, fault.remedy))
            continue
        for number, raw in lines:
            try:
                ticket = _ticket(raw)
                _claim(ticket, f"{path}:{number}", places)
                tickets.append(ticket)
            except _FaultError as fault:
                line = BadLine(path, number, fault.what, fault.remedy)
                bad.append(BadRecord(line, raw.decode("utf-8", "backslashreplace")))
    if not tickets and not broken and (on_bad_record == "skip" or not bad):
        broken.append(
            BadLine(", ".join(map(str, paths)) or "stage_a_paths", 0, "no tickets", "name files that hold usable tickets")
        )
    if broken or (bad and on_bad_record == "error"):
        raise BadInputError("places in the ticket files", [*broken, *(record.line for record in bad)])
    return tickets, bad


def digest(tickets: Iterable[Ticket]) -> str:
    """A short name for what tickets say and the order they stand in; what is not used makes no difference."""
    digest = hashlib.blake2b(digest_size=16)
    for ticket in tickets:
        row = json.dumps([ticket.mission, ticket.group_id, ticket.label, ticket.per_image])
        digest.update(f"{row}\n".encode())
    return digest.hexdigest()


def _file_lines(path: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1."""
    try:
        data = Path(path).read_bytes()
    except IsADirectoryError:
        raise _FaultError("a folder", "name the files in it, or a pattern that the shell expands") from None
    except (OSError, ValueError) as error:  # a ValueError is about a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise _FaultError(f"cannot be read: {why}", "name a readable file in stage_a_paths") from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _FaultError("UTF-16, not UTF-8", "save it as UTF-8")
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not filled:
        raise _FaultError("empty", "leave it out, or write a ticket per line")
    return iter(filled)


def _claim(ticket: Ticket, place: str, places: dict[tuple[str, str], str]) -> None:
    """Note where a ticket stands, unless it stands somewhere already."""
    first = places.setdefault((ticket.mission, ticket.key), place)
    if first is not place:
        raise _FaultError(
            f"ticket {ticket.key!r} of mission {ticket.mission!r} stands at {first} already",
            "keep one of the two, or give another group_id",
        )


def _ticket(raw: bytes) -> Ticket:
    """The ticket on one line."""
    try:
        row = strict_json.loads(raw.decode("utf-8").strip())
    except UnicodeDecodeError as error:
        raise _FaultError(f"not UTF-8 at byte {error.start} of the line", "save the file as UTF-8") from None
    except ValueError as error:
        raise _FaultError(f"not JSON: {error}", "write one JSON object per line") from None
    if not isinstance(row, dict):
        raise _FaultError("not a JSON object", 'write {"mission": ..., "group_id": ..., "label": ..., "per_image": {...}}')
    for name in _FIELDS:
        if name not in row:
            raise _FaultError(f"no {name}", f"give every ticket {', '.join(_FIELDS)}")
    if row["label"] not in ("pass", "fail"):
        raise _FaultError(f"label {_short(row['label'])}", 'write "pass" or "fail"')
    return Ticket(
        mission=_name(row, "mission"),
        group_id=_name(row, "group_id"),
        label=row["label"],
        per_image=_per_image(row["per_image"]),
        extra={key: value for key, value in row.items() if key not in _FIELDS},
    )


def _name(row: dict[str, Any], field: str) -> str:
    """A text that names something: one clean line, as prompts and guidance.json need it."""
    value = row[field]
    if not isinstance(value, str) or not value.strip():
        raise _FaultError(f"{field} {_short(value)}", "write a text that is not empty")
    if fault := text_fault(value):
        raise _FaultError(f"{field} holds {fault}", "take it out")
    return value


def _per_image(value: Any) -> tuple[tuple[str, str], ...]:
    """The summaries by image, in numeric order, their headers dropped."""
    if not isinstance(value, dict) or not value:
        raise _FaultError(f"per_image {_short(value)}", 'write an object of summaries: {"image_1": "..."}')
    summaries: dict[int, str] = {}
    for key, summary in value.items():
        match = _IMAGE.fullmatch(key)
        if match is None:
            raise _FaultError(f"per_image: the key {_short(key)}", 'write one number in it: "image_1"')
        number = int(match[1])
        if number in summaries:
            raise _FaultError(f"per_image: two keys for image {number}", "number every image once")
        if not isinstance(summary, str):
            raise _FaultError(f"per_image: {key}: {_short(summary)}", "write the summary as a text")
        summaries[number] = _HEADER.sub("", summary)
        if not summaries[number].strip():
            raise _FaultError(f"per_image: {key}: an empty summary", "write what the image shows, or leave the image out")
    return tuple((f"image_{number}", summaries[number]) for number in sorted(summaries))


def _short(value: Any) -> str:
    """A value for a message."""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
