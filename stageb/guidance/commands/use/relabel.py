"""``stageb tickets``: labels that a run doubts, as a table for a person to correct, and a ticket
file that they correct.

Doubted is a label that the run's rules contradict, or where they cannot tell, its last verdict.
Where no rule speaks of a ticket, whose verdict is the headline's, the reason of its label may stand
in no ticket, so these are listed apart from the others (``KINDS``). A ticket file is never changed:
the corrected one is new, and equals the old one but for the labels that a person wrote. ``tasks``
shows verdicts to people in Label Studio.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from stageb.cli.parsing import WordParser
from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.guidance.commands.use.source import find_tickets, list_read_files, read_run_config
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.guidance_file import read_guidance
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.tables import TableReader, table_lines
from stageb.guidance.tickets.tickets import KIND, claim_place, find_label, read_entries
from stageb.guidance.words.column_names import ColumnsConfig, is_sheet, is_table
from stageb.guidance.words.types import PASS_FAIL, Ticket
from stageb.runs.folder import RunFolder
from stageb.store import disk
from stageb.store.journal import safe_name
from stageb.store.output import check_target, encode_table, read_rows, unquote
from stageb.untrusted.strict_json import FaultError, short
from stageb.untrusted.workbook import replace_cells

PLACE, RIGHT = ("file", "line", "group_id", "label"), "right_label"
HEADER = (*PLACE, RIGHT, "mission", "verdict", "kind", "why", "says")
KINDS = {  # of doubted labels, in the order in which they are listed
    "contradicted": "a rule speaks for another label: look for a wrong one",
    "unexplained": "no rule speaks of the ticket: is the reason of its label there at all?",
}
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
WORKBOOKS = (".xlsx", ".xlsm")
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
    doubts.add_argument(
        "--output", type=Path, required=True, metavar="CSV", help="the table to write"
    )
    relabel.add_argument(
        "doubts", metavar="CSV", help=f"that table, where people have filled in {RIGHT}"
    )
    relabel.add_argument(
        "--tickets", required=True, metavar="FILE", help="the ticket file, as the table names it"
    )
    relabel.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="the new ticket file to write"
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
    tasks.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="JSON",
        help="the file to import into Label Studio",
    )
    return parser


def write_doubts(args: argparse.Namespace, config: LoopConfig) -> int:
    """Write the tickets of a run whose labels are doubted."""
    check_target(
        args.output, {**list_read_files(args.run), "tickets": [*config.files, *args.tickets]}
    )
    tickets, why = find_tickets(args.run, "--tickets FILE ...", args.tickets)
    if why:
        raise InputError(shown(f"{args.run}: {why}", 400))
    rows = list_doubts(Path(args.run), config, tickets)
    disk.write(
        args.output,
        encode_table(HEADER, (dict(zip(HEADER, row, strict=True)) for row in rows)),
        "nothing else",
    )
    print(
        shown(
            f"{args.output}: {len(rows):,} of {len(tickets):,} tickets, those of the surest "
            f"rules first of each kind"
        )
    )
    count = Counter(row[HEADER.index("kind")] for row in rows)
    for kind in filter(count.get, KINDS):
        print(f"{kind}: {count[kind]:,}, {KINDS[kind]}")
    if rows:
        suffix = _list_suffixes(rows[0][0])[0]
        print(
            f"{EDIT}; then: stageb tickets relabel RUN {args.output} --tickets FILE --output "
            f"NEW{suffix}"
        )
    return 0


def list_doubts(
    folder: Path, config: LoopConfig, tickets: Sequence[Ticket]
) -> list[tuple[str, ...]]:
    """A row of ``HEADER`` for each ticket that is judged otherwise than it is labelled."""
    guidance = read_guidance(str(folder))
    judge = CodeJudge(code_rules(guidance, tickets, words_of(config.prompt, config.model)))
    last = {
        (mission, row["ticket_key"]): row
        for mission in guidance
        for row in RunFolder(folder).read_committed(f"{safe_name(mission)}/selections.jsonl")
    }
    return [
        (
            *ticket.place.rpartition(":")[::2],
            *(ticket.group_id, ticket.label, "", ticket.mission, verdict, kind, why),
            " | ".join(text for _, text in ticket.per_image),
        )
        for ticket, verdict, kind, why in find_doubts(tickets, judge, last)
    ]


class Doubt(NamedTuple):
    """A doubt about a label."""

    ticket: Ticket
    verdict: str  # which is another
    kind: str  # of ``KINDS``
    why: str


def find_doubts(
    tickets: Sequence[Ticket], judge: CodeJudge, last: Mapping[tuple[str, str], Mapping[str, Any]]
) -> list[Doubt]:
    """Doubts about labels, kind by kind; of each those of a rule that is mostly right first.
    ``last`` are verdicts, with their reasons, by mission and key, for tickets of which rules cannot
    tell."""
    decided, right = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    doubted: list[tuple[tuple[str, str], Doubt]] = []
    for ticket in tickets:
        ruling = judge.judge(ticket)
        row = last.get((ticket.mission, ticket.key), {"verdict": None, "reason": ""})
        verdict, rule = (ruling.verdict or row["verdict"], (ticket.mission, ruling.rule))
        why = judge.explain(ruling, ticket) if ruling.verdict else row["reason"]
        decided[rule] += verdict is not None
        right[rule] += verdict == ticket.label
        if verdict not in (None, ticket.label):
            by_headline = (
                judge.is_silent(ruling) and verdict == judge.rules[ticket.mission].labels[0]
            )
            kind = "unexplained" if by_headline else "contradicted"
            doubted.append((rule, Doubt(ticket, verdict, kind, why)))
    order = [*KINDS]
    doubted.sort(key=lambda each: (order.index(each[1].kind), -right[each[0]] / decided[each[0]]))
    return [
        doubt._replace(
            why=f"{doubt.why} (so labelled: {right[rule]:,} of {decided[rule]:,} tickets)"
        )
        for rule, doubt in doubted
    ]


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
    suffixes = _list_suffixes(path)
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
    with _reporting(args.doubts):
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
            bad.append(BadLine(args.doubts, made.at, fault.what, fault.remedy))
    if bad:
        raise BadInputError("corrections", bad)
    if output.suffix.lower() in WORKBOOKS:
        write_workbook(path, columns, words, output)
    else:
        _write_text(path, columns, words, output)
    print(shown(f"{output}: {path} with {len(words):,} labels corrected"))
    return 0


def _list_suffixes(path: str) -> list[str]:
    """The kinds of file that a ticket file can be written as, first what is nearest to it."""
    own = Path(path).suffix.lower()
    return [*([own] if own in WORKBOOKS else []), ".csv", ".tsv"] if is_sheet(path) else [own]


def write_workbook(
    path: str, columns: ColumnsConfig, words: Mapping[int, str], output: Path
) -> None:
    """Write a workbook anew with other words for the labels in some rows; all else stays. Raises
    ``BadInputError`` where not just these rows would be read otherwise then."""
    with _reporting(path):
        rows = [raw for _, raw in table_lines(path, KIND, columns.sheet)]
        place = TableReader(iter(enumerate(rows, 1)), columns, path, labelled=True).header.index(
            columns.label
        )
        data = replace_cells(
            path, columns.sheet, {(line - 1, place): word for line, word in words.items()}
        )
        wanted = {number: raw for number, raw in enumerate(rows, 1) if number not in words}

        def write(beside: Path) -> None:
            beside.write_bytes(data)
            found = dict(table_lines(str(beside), KIND, columns.sheet))
            labels = {
                line: next(csv.reader([found[line].decode()], "excel-tab"))[place]
                for line in words.keys() & found.keys()
            }
            if {
                number: raw for number, raw in found.items() if number not in words
            } != wanted or labels != words:
                raise FaultError(
                    "its labels cannot be replaced alone (merged cells?)",
                    "name a .csv file with --output",
                )

        disk.write(output, write, "nothing else")


def _write_text(path: str, columns: ColumnsConfig, words: Mapping[int, str], output: Path) -> None:
    """Write a ticket file anew as text."""
    data = b"".join(_write_lines(path, columns, words))
    if is_sheet(path) and output.suffix.lower() == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text).writerows(
            csv.reader(io.StringIO(data.decode(), newline=""), delimiter="\t")
        )
        data = text.getvalue().encode()
    disk.write(output, lambda beside: beside.write_bytes(data), "nothing else")


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
    with _reporting(path):
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
    is_own_word = made.right.casefold() in map(str.casefold, words)
    word = made.right if is_own_word and label in PASS_FAIL else words[0]
    return word, replace(ticket, label=label)


def _write_lines(path: str, columns: ColumnsConfig, words: Mapping[int, str]) -> Iterator[bytes]:
    """The lines of a ticket file, with other words for the labels of those that begin at some
    lines."""
    lines = (
        [raw for _, raw in table_lines(path, KIND, columns.sheet)]
        if is_sheet(path)
        else [*io.BytesIO(Path(path).read_bytes())]
    )
    if is_table(path):
        table = TableReader(table_lines(path, KIND, columns.sheet), columns, path, labelled=True)
        for row in table.rows():
            if row.line in words:
                cells = [*row.cells]
                cells[table.header.index(columns.label)] = words[row.line]
                _replace(lines, row.line, row.raw.count(b"\n") + 1, table.write_row(cells))
    else:
        for line, word in words.items():
            said = json.loads(lines[line - 1].removeprefix(codecs.BOM_UTF8))
            _replace(lines, line, 1, json.dumps({**said, "label": word}, ensure_ascii=False))
    return iter(lines)


def _replace(lines: list[bytes], line: int, count: int, text: str) -> None:
    """Put ``text`` in the place of so many lines from ``line`` on; the others keep theirs."""
    last = lines[line + count - 2]
    end = last[len(last.rstrip(b"\r\n")) :]
    lines[line - 1 : line - 1 + count] = [disk.encode(text) + end, *[b""] * (count - 1)]


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


@contextmanager
def _reporting(path: str) -> Iterator[None]:
    """Turn ``FaultError`` about ``path`` into ``BadInputError``."""
    try:
        yield
    except FaultError as fault:
        raise BadInputError(
            "places", [BadLine(path, fault.line, fault.what, fault.remedy)]
        ) from None
