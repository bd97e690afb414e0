"""The folder of an audit: what was promised, which tickets were drawn, and what people answered, in
the order of reading.

``audit.json`` holds the promise, what columns mean and which share is drawn. ``drawn.jsonl`` and
``answers.jsonl`` only grow. ``sheet-0001.csv`` is for people: it says what a ticket says, but not
its verdict, since people agree with what they read.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.guidance.commands.govern.sources import parse_columns
from stageb.guidance.commands.use.source import find_columns
from stageb.guidance.tickets.tickets import find_label, reporting
from stageb.guidance.words.automation import Automation
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Ticket, Verdict
from stageb.store import disk
from stageb.store.output import encode_table, read_commit
from stageb.untrusted.strict_json import FaultError, loads, open_named, reading, short

PROMISE, DRAWN, ANSWERS, PAGE = "audit.json", "drawn.jsonl", "answers.jsonl", "audit.html"
RIGHT = "right_label"
HEADER = ("id", "mission", "group_id", "says", RIGHT)
REMEDY = "restore it, or begin another audit: name a new folder"
KIND = "answer"
OF_COLUMNS = "columns."  # begins the keys of a commit that say what columns mean


Edges: TypeAlias = Mapping[str, Mapping[str, Sequence[float]]]
"""Mission -> field -> upper ends of the intervals in which its numbers are counted, ascending, but
for the last one, which has none; empty where values are counted."""


@dataclass(frozen=True, slots=True)
class Promise:
    """Figures of a mission that are watched."""

    labels: tuple[Verdict, ...]
    automation: Automation


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """What an audit watches, and how."""

    promises: Mapping[str, Promise]  # by mission
    columns: ColumnsConfig  # what those of ticket files mean
    share: float  # of the tickets decided alone, that is drawn


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sample of one file of predictions."""

    file: str
    digest: str  # of its bytes
    tickets: Sequence[Mapping[str, Any]]  # drawn for people: id, mission, verdict, rule
    # mission -> what is counted -> value -> tickets
    shares: Mapping[str, Mapping[str, Mapping[str, int]]]
    edges: Edges


class AuditFolder:
    """The files. Methods raise ``InputError`` where somebody else changed one, ``JournalError``
    where the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keep(self, plan: AuditPlan) -> None:
        """Write down what is watched, and how."""
        disk.make_named_folder(self.path, "another folder with --folder")
        missions = {
            mission: {"labels": list(each.labels), "automation": each.automation.to_plain()}
            for mission, each in plan.promises.items()
        }
        plain = {"share": plan.share, "columns": asdict(plan.columns), "missions": missions}
        disk.write(
            self.path / PROMISE,
            json.dumps(plain, ensure_ascii=False, indent=2) + "\n",
            "nothing else",
        )

    def read_plan(self) -> AuditPlan | None:
        """What is watched, and how; None where no audit has begun."""
        path = self.path / PROMISE
        if not path.exists():
            return None
        found = disk.parse_object(path.read_bytes(), str(path), REMEDY)
        missions, promises = found.get("missions"), dict[str, Promise]()
        for mission, plain in missions.items() if isinstance(missions, dict) else ():
            labels = tuple(plain.get("labels", ())) if isinstance(plain, dict) else ()
            automation = Automation.parse(plain.get("automation"), labels) if labels else None
            if automation is None:
                raise InputError(
                    shown(f"{path}: mission {mission!r}: another program changed it; {REMEDY}")
                )
            promises[mission] = Promise(labels, automation)
        share, columns = found.get("share"), found.get("columns")
        if not promises or not isinstance(columns, dict) or not isinstance(share, int | float):
            raise InputError(shown(f"{path}: another program changed it; {REMEDY}"))
        return AuditPlan(promises, parse_columns(json.dumps(columns)), share)

    def read_drawn(self) -> list[Drawn]:
        """In order."""
        return [Drawn(**row) for row in self._read(DRAWN, {each.name for each in fields(Drawn)})]

    def read_answers(self) -> list[dict[str, Any]]:
        """Rows of an id and a label, in the order in which they were read."""
        return self._read(ANSWERS, {"id", "label"})

    def add_drawn(self, drawn: Drawn, says: Mapping[str, Ticket], with_tasks: bool) -> Path:
        """Write a sheet for what was drawn, ``with_tasks`` of Label Studio beside it, and then that
        it was; ``says`` are the tickets by id. Returns the sheet."""
        sheet = self.path / f"sheet-{len(self.read_drawn()) + 1:04}.csv"
        rows = [
            {
                "id": each["id"],
                "mission": each["mission"],
                "group_id": says[each["id"]].group_id,
                "says": " | ".join(text for _, text in says[each["id"]].per_image),
            }
            for each in drawn.tickets
        ]
        disk.write(sheet, encode_table(HEADER, rows), "nothing else")
        if with_tasks:
            tasks = [make_task(each, says[each["id"]]) for each in drawn.tickets]
            text = json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"
            disk.write(sheet.with_suffix(".json"), text, "nothing else")
        self._append(DRAWN, [asdict(drawn)])
        return sheet

    def add_answers(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep further answers."""
        if rows:
            self._append(ANSWERS, rows)

    def collect_answers(
        self,
        promises: Mapping[str, Promise],
        drawn: Sequence[Drawn],
        columns: ColumnsConfig,
        exports: Sequence[str],
    ) -> list[dict[str, str]]:
        """Collect what people have answered since, in sheets and in ``exports`` of Label Studio, as
        rows. Raises ``BadInputError`` where an answer cannot be used, or is another than before."""
        missions = {each["id"]: each["mission"] for of in drawn for each in of.tickets}
        known = {row["id"]: row["label"] for row in self.read_answers()}
        found = chain(
            *(read_sheet(path) for path in sorted(self.path.glob("sheet-*.csv"))),
            *(read_export(Path(path)) for path in exports),
        )
        return take_answers(found, missions, promises, columns, known)

    def _read(self, name: str, keys: set[str]) -> list[dict[str, Any]]:
        path = self.path / name
        rows = disk.whole_rows(path, path.read_bytes(), REMEDY) if path.exists() else []
        if any(row.keys() != keys for row in rows):
            raise InputError(shown(f"{path}: another program changed it; {REMEDY}"))
        return rows

    def _append(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        path = self.path / name
        path.touch()
        disk.write_at(path, disk.json_lines(rows), disk.end_of_rows(path))
        disk.sync(path)


def find_columns_before(predictions: Sequence[str], source: str) -> ColumnsConfig:
    """What columns of ticket files meant when the first of these files was predicted; where nothing
    beside it says so, in the run of the ``source``. Raises ``InputError``."""
    for name in predictions[:1]:
        config = (read_commit(Path(name)) or {}).get("config")
        said = {
            key.removeprefix(OF_COLUMNS): value
            for key, value in (config.items() if isinstance(config, dict) else ())
            if key.startswith(OF_COLUMNS)
        }
        if said:
            return parse_columns(json.dumps(said))
    return find_columns(source)


def read_sheet(path: Path) -> Iterator[tuple[str, str, str]]:
    """The answers of a sheet: place, id and word, of rows that have one. Raises
    ``BadInputError``."""
    try:
        text = _read_text(path)
    except FaultError as fault:
        raise _refuse(str(path), 0, fault.what, "save the sheet as CSV in UTF-8") from None
    separator = max(",;\t", key=text.partition("\n")[0].count)  # as spreadsheets save it
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        names, rows = table.fieldnames or (), [(table.line_num, row) for row in table]
    except csv.Error as error:
        raise _refuse(str(path), table.reader.line_num, str(error), "empty that cell") from None
    if not {"id", RIGHT} <= {*names}:
        raise _refuse(
            str(path),
            1,
            f"no columns id and {RIGHT}",
            "leave the sheet's first row as it was written",
        )
    for line, row in rows:
        word = (row[RIGHT] or "").strip()
        if word:
            yield f"{path}:{line}", str(row["id"]), word


def read_export(path: Path) -> Iterator[tuple[str, str, str]]:
    """The same of what Label Studio exports as JSON: the choice of each task that ``make_task``
    made. Raises ``BadInputError``."""
    with reporting(str(path)):
        text = _read_text(path)
    try:
        tasks = loads(text)
        for number, task in enumerate(tasks, 1):
            done = [each for each in task["annotations"] if not each.get("was_cancelled")]
            choices = [
                part["value"]["choices"][0]
                for each in done[-1:]
                for part in each["result"]
                if "choices" in part["value"]
            ]
            if choices:
                yield f"{path}: task {number}", str(task["data"]["id"]), str(choices[0])
    except (FaultError, ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise _refuse(
            str(path), 0, "no export of these tasks", "export them from Label Studio as JSON"
        ) from None


def _read_text(path: Path) -> str:
    """Read the text of a file. Raises ``FaultError``."""
    with reading(KIND), open_named(str(path)) as opened:
        return opened.read().decode("utf-8-sig")


def make_task(each: Mapping[str, Any], ticket: Ticket) -> dict[str, Any]:
    """A task of Label Studio without a prediction, for the labelling interface of ``stageb tickets
    tasks``."""
    text = "\n".join(said for _, said in ticket.per_image)
    return {
        "data": {
            "id": each["id"],
            "mission": each["mission"],
            "group_id": ticket.group_id,
            "text": text,
        }
    }


def take_answers(
    found: Iterable[tuple[str, str, str]],
    missions: Mapping[str, str],
    promises: Mapping[str, Promise],
    columns: ColumnsConfig,
    known: Mapping[str, str],
) -> list[dict[str, str]]:
    """Answers that are new, as rows; ``missions`` says of each id that was drawn which it is of,
    ``known`` what was answered before. Raises ``BadInputError`` where one cannot be used, or is
    another than before."""
    taken, bad = dict[str, str](), list[BadLine]()
    for place, name, word in found:
        file, _, line = place.rpartition(":")
        at = (file, int(line)) if line.isdigit() else (place, 0)
        if name not in missions:
            bad.append(
                BadLine(*at, f"id {short(name)} was never drawn", "leave ids as they were written")
            )
            continue
        try:
            label = find_label(word, RIGHT, promises[missions[name]].labels, columns)
        except FaultError as fault:
            bad.append(fault.in_file(*at))
            continue
        before = known.get(name) or taken.get(name)
        if before not in (None, label):
            bad.append(
                BadLine(
                    *at,
                    f"{short(name)} was {before} before",
                    "answers stay, since tests have seen them",
                )
            )
        elif before is None:
            taken[name] = label
    if bad:
        raise BadInputError("answers", bad)
    return [{"id": name, "label": label} for name, label in taken.items()]


def _refuse(path: str, line: int, what: str, remedy: str) -> BadInputError:
    return BadInputError("places", [BadLine(path, line, what, remedy)])
