"""Ticket files, JSON Lines and tables (``tables.py``), read strictly, every fault reported at once.

A line holds ``mission``, ``group_id``, ``label`` (pass or fail, or one of three and more that a
mission has of its own) and ``per_image``, an object of summaries whose keys carry the image's
number in any of the usual ways ("1", "image_1", "图片_1"); ``images`` names their files, where they
are shown (``images.py``). All other keys are kept and not used. A row of a table says the same in
columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stageb.errors import BadInputError, BadLine, StagebError, write_option
from stageb.guidance.config import LoopConfig, UseImages
from stageb.guidance.rules.fields import read_images
from stageb.guidance.tickets.groups import join_equal
from stageb.guidance.tickets.images import attach_images, parse_summaries
from stageb.guidance.tickets.splits import leave_out
from stageb.guidance.tickets.tables import TableReader, TableRow, table_lines
from stageb.guidance.words.column_names import ColumnsConfig, is_table
from stageb.guidance.words.texts import label_fault, labels_fault, one_line
from stageb.guidance.words.types import PASS_FAIL, UNKNOWN, Content, Split, Ticket
from stageb.untrusted.clean_text import fold_value, text_fault
from stageb.untrusted.strict_json import FaultError, filled_lines, object_on, short

KIND = "ticket"
SHAPE = '{"mission": ..., "group_id": ..., "label": ..., "per_image": {...}}'
_FIELDS = ("mission", "group_id", "label", "per_image")
_BY_COLUMN_NAMES = ColumnsConfig()
MOST_REASON = 240  # characters of a person's reason that are read
NO_LABEL = (
    "write the right verdict, leave the row out, or all such: columns.unlabelled skip "
    "(new: --unlabelled skip)"
)
LeftOut = Literal["copies", "unlabelled"]
LEFT_OUT: Mapping[LeftOut, str] = {
    "copies": "exact copies of others, which count once",
    "unlabelled": "without a label, and left out",
}
NO_FILES: Mapping[Split, str] = {}
SPLIT_WORDS: Mapping[str, Split] = {
    "train": "train",
    "val": "val",
    "validation": "val",
    "test": "test",
}


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A line that was set aside."""

    line: BadLine  # where, what, and the remedy
    raw: str  # the line as it came, undecodable bytes escaped
    left_out: LeftOut | None = None  # why it is no fault


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of a ticket file, not read yet."""

    line: int  # from 1
    raw: bytes  # as it came
    ticket: Callable[[bool], Ticket]  # (whether a label is needed) -> the ticket; raises FaultError
    # whether it has no label, and the config says that such rows are left out
    is_skipped: bool = False


def read_tickets(
    paths: Sequence[str | Path],
    on_bad_record: Literal["error", "skip"],
    columns: ColumnsConfig = _BY_COLUMN_NAMES,
    use_images: UseImages = False,
    splits: Mapping[Split, str] = NO_FILES,
) -> tuple[list[Ticket], list[BadRecord]]:
    """The tickets of all files, in order, equal ones as one group, and the lines set aside (always
    none under ``error``). Files of ``splits`` come last, and are these splits.

    Raises ``BadInputError`` with everything that is wrong: under ``error`` every unusable line,
    under ``skip`` only what concerns whole files (missing, unreadable, empty) or leaves no ticket
    at all. Images are read where ``use_images`` says so.
    """
    tickets: list[Ticket] = []
    broken: list[BadLine] = []  # whole files
    bad: list[BadRecord] = []
    places: dict[tuple[str, str], str] = {}
    known: dict[tuple[str, str], Ticket] = {}
    # of tickets that are labelled neither pass nor fail, should that be a fault
    others: dict[int, BadRecord] = {}
    files: list[tuple[Split | None, str]] = [
        *((None, str(path)) for path in paths),
        *splits.items(),
    ]
    for split, path in files:
        try:
            for entry in read_entries(path, columns):
                if entry.is_skipped:
                    bad.append(
                        _set_aside(
                            path, entry, FaultError("an empty label", NO_LABEL), "unlabelled"
                        )
                    )
                    continue
                try:
                    ticket = attach_images(entry.ticket(True), path, use_images)
                    place, name = f"{path}:{entry.line}", (ticket.mission, ticket.key)
                    if name in places and known[name] == ticket:
                        copied = FaultError(f"says what {places[name]} says", "leave one out")
                        bad.append(_set_aside(path, entry, copied, "copies"))
                        continue
                    known.setdefault(name, ticket)
                    claim_place(ticket, place, places, columns)
                    if ticket.label not in PASS_FAIL:
                        others[len(tickets)] = _set_aside(
                            path, entry, name_strange_label(ticket.label, columns)
                        )
                    told = split or _read_split(ticket, columns)
                    reason = _read_reason(ticket, columns)
                    tickets.append(replace(ticket, split=told, reason=reason, place=place))
                except FaultError as fault:
                    bad.append(_set_aside(path, entry, fault))
        except FaultError as fault:
            broken.append(fault.in_file(path))
    strange, faults = _find_strange(tickets, columns)
    bad += [others[i] for i in sorted(strange)]
    order = {path: place for place, (_, path) in reversed([*enumerate(files)])}
    bad.sort(key=lambda record: (order[record.line.path], record.line.line))
    broken += faults
    tickets = [ticket for i, ticket in enumerate(tickets) if i not in strange]
    if (
        not tickets
        and not broken
        and (on_bad_record == "skip" or all(record.left_out for record in bad))
    ):
        named = ", ".join(map(str, paths)) or "tickets"
        broken.append(BadLine(named, 0, "no tickets", "name files that hold usable tickets"))
    faults = [record.line for record in bad if not record.left_out]
    if broken or (faults and on_bad_record == "error"):
        raise BadInputError("places in the ticket files", [*broken, *faults])
    return join_equal(tickets), bad


@contextmanager
def reporting(path: str, kind: str = "places") -> Iterator[None]:
    """Turn ``FaultError`` about the file ``path`` into ``BadInputError``."""
    try:
        yield
    except FaultError as fault:
        raise BadInputError(kind, [fault.in_file(path)]) from None


def describe_left_out(records: Sequence[BadRecord]) -> Iterator[str]:
    """Describe the lines that were left out though they are no faults."""
    for why, what in LEFT_OUT.items():
        own = [record.line for record in records if record.left_out == why]
        if own:
            are = "rows are" if len(own) > 1 else "row is"
            yield f"{len(own):,} {are} {what}; the first is {own[0].path}:{own[0].line}"


def _set_aside(
    path: str, entry: Entry, fault: FaultError, left_out: LeftOut | None = None
) -> BadRecord:
    line = fault.in_file(path, entry.line)
    return BadRecord(line, entry.raw.decode("utf-8", "backslashreplace"), left_out)


def name_strange_label(label: str, columns: ColumnsConfig) -> FaultError:
    """Return the fault of a label of a mission that has pass and fail alone."""
    known = ", ".join([*columns.passes, *columns.fails])
    return FaultError(
        f"label {short(label)}",
        f"write one of {known}, or correct {_advise_words()}"
        if columns.has_own_words
        else _advise_labels(),
    )


def _advise_labels() -> str:
    """Say which labels to write."""
    return f'write "pass" or "fail", or set {_advise_words()}'


def _advise_words() -> str:
    """Say where a user tells which words mean pass and fail."""
    return (
        f"columns.passes and columns.fails in the config: "
        f"{write_option('columns', {'passes': 'WORD', 'fails': 'WORD'})}"
    )


def _find_strange(
    tickets: Sequence[Ticket], columns: ColumnsConfig
) -> tuple[set[int], list[BadLine]]:
    """Tickets whose label is neither pass nor fail, though their mission has these; and what is
    wrong with the labels of missions that have others. Of two words, a user has to say which one
    means pass."""
    found: dict[str, dict[str, list[int]]] = {}
    for i, ticket in enumerate(tickets):
        found.setdefault(ticket.mission, {}).setdefault(ticket.label, []).append(i)
    strange, faults = set[int](), list[BadLine]()
    for mission, by_label in found.items():
        others = by_label.keys() - PASS_FAIL
        if columns.has_own_words or len(others) < max(3, len(by_label)):
            strange.update(i for label in others for i in by_label[label])
        elif why := labels_fault(sorted(others)):
            remedy = (
                f"correct them, or name the column of the right verdicts: "
                f"{write_option('columns.label', 'NAME')}"
            )
            faults.append(BadLine("tickets", 0, f"labels of mission {mission!r}: {why}", remedy))
    return strange, faults


def read_entries(path: str, columns: ColumnsConfig, labelled: bool = True) -> Iterator[Entry]:
    """Yield the entries of a file, one after the other, never all at once. Raises ``FaultError``
    about the file as a whole."""
    skips = labelled and columns.unlabelled == "skip"
    if not is_table(path):
        for number, raw in filled_lines(path, KIND):
            yield Entry(
                number, raw, partial(_parse_json, raw, columns), skips and _has_no_label(raw)
            )
        return
    table = TableReader(table_lines(path, KIND, columns.sheet), columns, path, labelled)
    empty = True
    for row in table.rows():
        empty = False
        yield Entry(
            row.line, row.raw, partial(_parse_cells, table, row), skips and table.has_no_label(row)
        )
    if empty:
        raise FaultError("no rows below the header", "leave it out, or write a ticket per row")


def fingerprint(tickets: Iterable[Ticket]) -> str:
    """A short name for what tickets say and the order they stand in; what is not used makes no
    difference."""
    digest = hashlib.blake2b(digest_size=16)
    for ticket in tickets:
        row: list[Any] = [ticket.mission, ticket.group_id, ticket.label, ticket.per_image]
        if ticket.split or ticket.apart or ticket.reason:
            row += [ticket.split, ticket.apart, ticket.reason]
        if ticket.together:
            row.append(ticket.together)
        digest.update(f"{json.dumps(row)}\n".encode())
    return digest.hexdigest()


def claim_place(
    ticket: Ticket, place: str, places: dict[tuple[str, str], str], columns: ColumnsConfig
) -> None:
    """Note where a ticket stands, unless it stands somewhere already."""
    first = places.setdefault((ticket.mission, ticket.key), place)
    if first is not place:
        remedy = (
            "keep one of the two, or give another group_id; where it names a machine rather "
            "than a case, set columns.group_id to null and columns.together to that column"
        )
        if columns.group_id is None and is_table(place.rpartition(":")[0]):
            remedy = (
                "it says the same, and rows have no names of their own: leave one out, or put "
                "both files into one, where equal rows are cases of their own"
            )
        if first == place:
            remedy = "the file is named twice: name it once"
        raise FaultError(
            f"ticket {ticket.key!r} of mission {ticket.mission!r} stands at {first} already", remedy
        )


def _parse_json(raw: bytes, columns: ColumnsConfig, labelled: bool) -> Ticket:
    """The ticket on one line. Words of the user's own for the labels hold beside pass and fail,
    true and false as they are written; numbers are labels like others."""
    row = object_on(raw, SHAPE)
    label = row.get("label")
    if label == "" and not labelled:  # as an empty cell of a table
        label = row["label"] = None
    if isinstance(label, int | float) and not isinstance(label, bool):
        label = row["label"] = json.dumps(int(label) if label == int(label) else label)
    if columns.has_own_words and not isinstance(label, dict | list):
        row["label"] = (
            columns.find_verdict(label if isinstance(label, str) else json.dumps(label)) or label
        )
    return make_ticket(row, labelled, None, apart=columns.repeats == "apart")


def _has_no_label(raw: bytes) -> bool:
    """Whether a line is an object without a label."""
    try:
        return object_on(raw, SHAPE).get("label") in (None, "")
    except FaultError:
        return False


def _parse_cells(table: TableReader, row: TableRow, labelled: bool) -> Ticket:
    """The ticket in one row of a table."""
    said = table.read_row(row)
    if labelled and said["label"] is None:
        raise FaultError("an empty label", NO_LABEL)
    return make_ticket(
        said, labelled, said.pop("content"), said.pop("together"), table.columns.repeats == "apart"
    )


def make_ticket(
    row: dict[str, Any],
    labelled: bool,
    content: Content | None,
    together: str = "",
    apart: bool = False,
) -> Ticket:
    """The ticket that a row of JSON says; or of a table, which has read its ``content``. One
    without a label has the label ``UNKNOWN``."""
    for name in _FIELDS:
        if name not in row and (labelled or name != "label"):
            if name == "per_image" and "images" in row:
                raise FaultError(
                    "images, but no per_image", "stageb summarize writes what each image shows"
                )
            needed = [field for field in _FIELDS if labelled or field != "label"]
            raise FaultError(f"no {name}", f"give every ticket {', '.join(needed)}")
    label = row.get("label")
    if label == "" or (not isinstance(label, str) and (labelled or label is not None)):
        remedy = NO_LABEL if label in (None, "") else _advise_labels()
        raise FaultError(f"label {short(label)}", remedy)
    if label is not None and (why := label_fault(label)):
        raise FaultError(f"label {short(label)}", f"write {why}")
    summaries = parse_summaries(row["per_image"], labelled)
    if content is None:
        summaries, content = read_images(summaries, {})
    is_prose = content == Content((), tuple(text for _, text in summaries))
    return Ticket(
        mission=check_name(row["mission"], "mission"),
        group_id=check_name(row["group_id"], "group_id"),
        label=UNKNOWN if label is None else label,
        per_image=tuple((image, text) for image, text in summaries),
        content=None if is_prose else content,
        apart=apart,
        together=together,
        extra={key: value for key, value in row.items() if key not in _FIELDS},
    )


def _read_split(ticket: Ticket, columns: ColumnsConfig) -> Split | None:
    """The split that a ticket says it is of, where ``columns`` name what says so. Raises
    ``FaultError``."""
    if columns.split is None:
        return None
    if columns.split not in ticket.extra:
        raise FaultError(
            f"no {short(columns.split)} (columns.split)",
            "give every ticket one: train, val or test",
        )
    word = ticket.extra[columns.split]
    split = SPLIT_WORDS.get(str(word).strip().casefold())
    if split is None:
        raise FaultError(f"{short(columns.split)} {short(word)}", "write train, val or test")
    return split


def _read_reason(ticket: Ticket, columns: ColumnsConfig) -> str:
    """Why people gave a ticket its label, where ``columns`` name what says so."""
    said = None if columns.reason is None else ticket.extra.get(columns.reason)
    return one_line(str(said or ""), MOST_REASON)


def check_name(value: Any, field: str) -> str:
    """A text that names something: one clean line, as prompts and guidance.json need it. Raises
    ``FaultError``."""
    if not isinstance(value, str) or not value.strip():
        raise FaultError(f"{field} {short(value)}", "write a text that is not empty")
    if fault := text_fault(value):
        raise FaultError(f"{field} holds {fault}", "take it out")
    return value


def read_same_tickets(
    folder: Path, config: LoopConfig, digest: str, naming: str, named: Sequence[str] = ()
) -> tuple[Sequence[Ticket], str]:
    """The run's tickets, if its files still hold what the run read; otherwise none, and why.
    ``naming`` is the option by which a user names them.

    A config that somebody else wrote names no files but those in or below the folder of the run, or
    the one that the user is in; others the user names.
    """
    files = named or config.files
    if not named and not all(_is_near(Path(path), folder) for path in files):
        return [], f"the run's ticket files lie elsewhere; name them: {naming}"
    skips = config.on_bad_record == "skip"
    # texts need no images, but for lines that were set aside for theirs
    use_images = skips and config.sampler.use_images
    try:
        dealt = len(files) - len(config.split.files)  # the others are named behind them
        splits = dict(zip(config.split.files, files[dealt:], strict=False))
        tickets, _ = read_tickets(
            files[:dealt], config.on_bad_record, config.columns, use_images, splits
        )
        tickets, _ = leave_out(tickets, config.split.leave_out)
    except StagebError:
        return (
            [],
            "the run's ticket files are not found from here; run this command where the run was "
            "started",
        )
    if not digest.startswith(fingerprint(tickets)):  # that of images stands behind it
        return [], "the ticket files have changed since the run"
    return tickets, ""


def _is_near(path: Path, folder: Path) -> bool:
    try:
        real, places = path.resolve(), (Path.cwd(), folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
    return any(map(real.is_relative_to, places)) and (real.is_file() or not real.exists())


def find_label(word: str, column: str, labels: Collection[str], columns: ColumnsConfig) -> str:
    """The label of a mission that a person means by a ``word`` in a ``column`` of answers;
    ``labels`` are those of its tickets. Raises ``FaultError`` where it is none."""
    is_usual = {*labels} <= {*PASS_FAIL}
    known = PASS_FAIL if is_usual else sorted(labels)
    folded = {fold_value(label): label for label in known}
    for meant in (columns.find_verdict(word) or word, word):
        if label := folded.get(fold_value(meant)):
            return label
    words = [*columns.passes, *columns.fails] if is_usual else known
    raise FaultError(f"{column} {short(word)}", f"write one of {', '.join(words)}, or nothing")
