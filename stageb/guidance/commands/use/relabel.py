"""``stageb tickets``: labels that a run doubts, as a table for a person to correct, and a ticket
file that they correct.

A ticket file is never changed: the corrected one is new, and equals the old one but for the labels
that a person wrote. ``tasks`` shows verdicts to people in Label Studio.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stageb.cli.parsing import WordParser
from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.guidance.commands.use.doubted_labels import KINDS, list_doubts
from stageb.guidance.commands.use.source import find_tickets, list_read_files, read_run_config
from stageb.guidance.config import LoopConfig
from stageb.guidance.tickets.corrected import list_suffixes, write_corrected
from stageb.guidance.tickets.tables import TableReader, table_lines
from stageb.guidance.tickets.tickets import claim_place, find_label, read_entries, reporting
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import PASS_FAIL, Ticket
from stageb.store import disk
from stageb.store.output import check_target, encode_table, read_rows, unquote
from stageb.untrusted.clean_text import fold_value
from stageb.untrusted.strict_json import FaultError, short

PLACE, RIGHT = ("file", "line", "group_id", "label"), "right_label"
HEADER = (*PLACE, RIGHT, "mission", "verdict", "kind", "why", "says")
TOLD = {
    "file",
    "mission",
    "group_id",
    "label",
    "verdict",
    "reason",
    "agreement",
    "probability",
    "review",
    "why",
}
EDIT = (
    f"write the right label in column {RIGHT} of rows whose label is wrong; rows without one "
    f"stay as they are"
)


def main(arguments: Sequence[str]) -> int:
    """Run ``stageb tickets ARGUMENTS``; returns the exit code. Raises ``InputError``."""
    args = make_parser().parse_args(arguments)
    config = read_run_config(args.run)
    if config is None:
        raise InputError(
            shown(
                f"{args.run}: no run of loop guidance lies there; name a run's folder, such as "
                f"out/first"
            )
        )
    code: int = args.act(args, config)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = WordParser(
        prog="stageb tickets", description="Have people correct labels that a run doubts."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    doubts = commands.add_parser(
        "doubts",
        help="Write tickets whose label a run's rules contradict, or do not explain, to a table. "
        f"{EDIT}.",
    )
    relabel = commands.add_parser(
        "relabel", help="Write a new ticket file with the labels that people corrected."
    )
    tasks = commands.add_parser(
        "tasks", help="Write what predict said as tasks of Label Studio, with its predictions."
    )
    for command, act in ((doubts, write_doubts), (relabel, relabel_tickets), (tasks, write_tasks)):
        command.add_argument("run", metavar="RUN", help="the run's folder, such as out/first")
        command.set_defaults(act=act)
    doubts.add_argument(
        "--tickets",
        nargs="+",
        metavar="FILE",
        default=(),
        help="its ticket files, where they were moved",
    )
    relabel.add_argument(
        "doubts", metavar="CSV", help=f"that table, where people have filled in {RIGHT}"
    )
    relabel.add_argument(
        "--tickets", required=True, metavar="FILE", help="the ticket file, as the table names it"
    )
    tasks.add_argument("predictions", metavar="JSONL", help="what predict wrote")
    tasks.add_argument(
        "--tickets",
        nargs="+",
        required=True,
        metavar="FILE",
        help="the ticket files, as predict was given them",
    )
    tasks.add_argument("--review", action="store_true", help="only those that a person should see")
    for command, name, what in (
        (doubts, "CSV", "the table to write"),
        (relabel, "FILE", "the new ticket file to write"),
        (tasks, "JSON", "the file to import into Label Studio"),
    ):
        command.add_argument("--output", type=Path, required=True, metavar=name, help=what)
    return parser


def write_doubts(args: argparse.Namespace, config: LoopConfig) -> int:
    """Write the tickets of a run whose labels are doubted."""
    check_target(
        args.output, {**list_read_files(args.run), "tickets": [*config.files, *args.tickets]}
    )
    tickets, why = find_tickets(args.run, "--tickets FILE ...", args.tickets)
    if why:
        raise InputError(shown(f"{args.run}: {why}", 400))
    doubts = list_doubts(Path(args.run), config, tickets)
    rows = [
        {
            **dict(zip(("file", "line"), ticket.place.rpartition(":")[::2], strict=True)),
            "group_id": ticket.group_id,
            "label": ticket.label,
            "mission": ticket.mission,
            "verdict": verdict,
            "kind": kind,
            "why": why,
            "says": " | ".join(text for _, text in ticket.per_image),
        }
        for ticket, verdict, kind, why in doubts
    ]
    disk.write(args.output, encode_table(HEADER, rows), "nothing else")
    print(
        shown(
            f"{args.output}: {len(rows):,} of {len(tickets):,} tickets, those of the surest "
            f"rules first of each kind"
        )
    )
    count = Counter(kind for *_, kind, _ in doubts)
    for kind in filter(count.get, KINDS):
        print(f"{kind}: {count[kind]:,}, {KINDS[kind]}")
    if rows:
        suffix = list_suffixes(rows[0]["file"])[0]
        print(
            f"{EDIT}; then: stageb tickets relabel RUN {args.output} --tickets FILE --output "
            f"NEW{suffix}"
        )
    return 0


class LabelCorrection(NamedTuple):
    """A label that a person corrected."""

    at: int  # the line of the table, for messages
    group_id: str
    label: str  # as it was
    right: str


def relabel_tickets(args: argparse.Namespace, config: LoopConfig) -> int:
    """Write a ticket file anew, with the labels that a person corrected. Raises ``BadInputError``
    where one cannot be."""
    path, output, columns = args.tickets, args.output, config.columns
    check_target(
        output,
        {**list_read_files(args.run), "tickets": [*config.files, path], "labels": [args.doubts]},
    )
    suffixes = list_suffixes(path)
    if output.suffix.lower() not in suffixes:
        kinds = " or ".join(suffixes)
        raise InputError(
            shown(
                f"{output}: these tickets are written as a {kinds} file; give it a name that "
                f"ends so"
            )
        )
    if output.exists():
        raise InputError(
            shown(f"{output}: exists already; name another file with --output, or remove it")
        )
    with reporting(args.doubts):
        corrections = _read_corrections(args.doubts, path)
    tickets = dict(_read_tickets(path, columns))
    labels: dict[str, set[str]] = {}
    for ticket in tickets.values():
        labels.setdefault(ticket.mission, set()).add(ticket.label)
    places, words, bad = dict[tuple[str, str], str](), dict[int, str](), list[BadLine]()
    for line in tickets.keys() - corrections:
        # there may be exact copies
        places.setdefault((tickets[line].mission, tickets[line].key), f"{path}:{line}")
    for line, made in corrections.items():
        try:
            words[line], ticket = _correct(tickets.get(line), made, columns, labels)
            claim_place(ticket, f"{path}:{line}", places, columns)
        except FaultError as fault:
            bad.append(fault.in_file(args.doubts, made.at))
    if bad:
        raise BadInputError("corrections", bad)
    write_corrected(path, columns, words, output)
    print(shown(f"{output}: {path} with {len(words):,} labels corrected"))
    return 0


def _read_corrections(path: str, tickets: str) -> dict[int, LabelCorrection]:
    """The labels that a person corrected of the ticket file ``tickets``, by its line there. Raises
    ``FaultError``."""
    columns = ColumnsConfig(mission_name="-", group_id=None, texts=[RIGHT, *PLACE])
    try:
        table = TableReader(table_lines(path, "label"), columns, path, labelled=False)
    except FaultError as fault:
        raise FaultError(
            fault.what, "give the table that stageb tickets doubts wrote", fault.line
        ) from None
    found, others = dict[int, LabelCorrection](), dict[str, None]()
    for row in table.rows():
        said = dict(zip(table.header, map(unquote, row.cells), strict=False))
        if not (right := said.get(RIGHT, "").strip()):
            continue
        if Path(said["file"]) != Path(tickets):
            others[said["file"]] = None
        elif not said["line"].isdecimal():
            raise FaultError(f"line {short(said['line'])}", "leave it as it was written", row.line)
        else:
            found[int(said["line"])] = LabelCorrection(
                row.line, said["group_id"], said["label"], right
            )
    if not found:
        some = f"; it has some of {', '.join(map(short, others))}" if others else ""
        raise FaultError(f"no label of {short(tickets)} is corrected{some}", EDIT)
    return found


def _read_tickets(
    path: str, columns: ColumnsConfig, labelled: bool = True
) -> Iterator[tuple[int, Ticket]]:
    """The tickets of a file by line, those that can be used. Raises ``BadInputError``."""
    with reporting(path):
        for entry in read_entries(path, columns, labelled):
            with suppress(FaultError):
                yield entry.line, entry.ticket(labelled)


def _correct(
    ticket: Ticket | None,
    made: LabelCorrection,
    columns: ColumnsConfig,
    labels: Mapping[str, set[str]],
) -> tuple[str, Ticket]:
    """The word that a corrected label is written as, and the ticket that has it; ``labels`` are
    each mission's. Raises ``FaultError``."""
    if ticket is None or (ticket.group_id, ticket.label) != (made.group_id, made.label):
        there = f"{ticket.group_id!r}, labelled {ticket.label}" if ticket else "no ticket"
        what = (
            f"on its line of the ticket file is {there}, not {made.group_id!r}, labelled "
            f"{made.label}"
        )
        raise FaultError(
            what, "the file has changed; write the table anew with stageb tickets doubts"
        )
    label = find_label(made.right, RIGHT, labels[ticket.mission], columns)
    words = {"pass": columns.passes, "fail": columns.fails}.get(label, [label])
    is_own_word = fold_value(made.right) in map(fold_value, words)
    word = made.right if is_own_word and label in PASS_FAIL else words[0]
    return word, replace(ticket, label=label)


def write_tasks(args: argparse.Namespace, config: LoopConfig) -> int:
    """Write predictions as Label Studio imports them: a choice ``verdict`` and a text ``reason``,
    of a text ``text``."""
    check_target(args.output, {"tickets": args.tickets, "predictions": [args.predictions]})
    tickets = {
        path: dict(_read_tickets(path, config.columns, labelled=False)) for path in args.tickets
    }
    tasks = []
    for row in read_rows(Path(args.predictions)):
        if type(row.get("line")) is not int or not row.keys() >= TOLD:
            raise InputError(
                shown(f"{args.predictions}: no rows of predict; name what it wrote as JSON Lines")
            )
        ticket = tickets.get(row["file"], {}).get(row["line"])
        if ticket is None or ticket.group_id != row["group_id"]:
            said = (
                f"{args.predictions}: {row['file']}:{row['line']} does not hold {row['group_id']!r}"
            )
            raise InputError(shown(f"{said}; name the files that were judged, by --tickets", 400))
        if row["review"] or not args.review:
            tasks.append(make_task(row, ticket))
    disk.write(args.output, json.dumps(tasks, ensure_ascii=False, indent=1) + "\n", "nothing else")
    print(shown(f"{args.output}: {len(tasks):,} tasks"))
    return 0


def make_task(row: Mapping[str, Any], ticket: Ticket) -> dict[str, Any]:
    """A task of Label Studio, with one prediction where there is a verdict."""
    data = {name: row[name] for name in ("file", "line", "mission", "group_id", "label", "why")}
    made = {"verdict": ("choices", "choices"), "reason": ("textarea", "text")}
    result = [
        {"from_name": name, "to_name": "text", "type": kind, "value": {value: [row[name]]}}
        for name, (kind, value) in made.items()
        if row[name]
    ]
    score = row["agreement"] if row["probability"] is None else row["probability"]
    prediction = {
        "model_version": f"guidance step {row['guidance_step']}",
        "score": score,
        "result": result,
    }
    text = "\n".join(said for _, said in ticket.per_image)
    return {"data": {**data, "text": text}, "predictions": [prediction] if row["verdict"] else []}
