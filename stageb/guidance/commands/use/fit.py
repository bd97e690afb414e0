"""``stageb.fit``: learn rules from a notebook or a program. The command learns, in processes of its
own, as it may take several."""

from __future__ import annotations

import csv
import io
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from stageb.cli import commands
from stageb.cli.draft import Draft
from stageb.cli.parsing import draft_keywords, parse_run
from stageb.errors import CALLER, IN_PYTHON, InputError, StagebError
from stageb.guidance.commands.report import REPORT
from stageb.guidance.commands.report.write import write_report
from stageb.guidance.commands.use.evaluate import evaluate
from stageb.guidance.commands.use.figures import Evaluation
from stageb.guidance.commands.use.guess import Told, lacks_names, read_guessed
from stageb.guidance.commands.use.predict import predict
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.reflection_file import REFLECTION
from stageb.guidance.rules.fields import write_cell
from stageb.guidance.rules.read_guidance import read_guidance
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Guidance
from stageb.runs.folder import RunFolder, RunRow, is_finished
from stageb.store import disk
from stageb.store.commits import COMMIT
from stageb.untrusted import strict_yaml

HEIGHT = 800  # of a report in a notebook, in pixels
SAYS = "stageb: "  # how a command begins to say what ended it
TICKETS = "tickets"  # the mission of rows whose columns are guessed
SELECTIONS = "selections.jsonl"
ROUND = ("mission", "epoch", "split", "round", "guidance_step")
LOOK_S = 0.5  # between two looks for what a run has committed, while it prints nothing

Callback = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Report:
    """A run's report; a notebook shows it."""

    path: Path  # of the HTML file

    def _repr_html_(self) -> str:
        page = escape(self.path.read_text("utf-8"))
        return (
            f'<iframe srcdoc="{page}" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
        )


@dataclass(frozen=True)
class Run:
    """A run that ``fit`` has left."""

    folder: Path  # of its files

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to do; the same call of ``fit`` goes on with a run that was
        interrupted."""
        return is_finished(self.folder)

    @property
    def config(self) -> LoopConfig:
        """Every key of it."""
        config: LoopConfig = parse_run(self.folder).config
        return config

    @property
    def guidance(self) -> dict[str, Guidance]:
        """The rules of each mission."""
        return read_guidance(str(self.folder))

    def report(self) -> Report:
        """The run on one page. Raises ``stageb.StagebError`` where it cannot be written."""
        config, path = self.config, self.folder / REPORT
        write_report(self.folder, config, path, files=config.files)
        return Report(path)

    def predict(self, tickets: Any, **keys: Any) -> Any:
        """``stageb.predict`` under its rules, of what ``fit`` takes; tables have the columns of the
        run's. Files give ``Predictions``; rows, a DataFrame or a set of ``datasets`` give a row for
        each ticket, in their kind."""
        if _name_files(tickets):
            return predict(**self._use(tickets, keys))
        with tempfile.TemporaryDirectory() as folder:
            given = {"output": str(Path(folder, "predictions.jsonl")), **keys}
            found = list(predict(**self._use(tickets, given, Path(folder))))
        return in_kind(
            [{name: row[name] for name in row if name not in ("file", "line")} for row in found],
            tickets,
        )

    def evaluate(self, tickets: Any, **keys: Any) -> Evaluation:
        """``stageb.evaluate`` of its rules, of what ``fit`` takes; tables have the columns of the
        run's."""
        return evaluate(**self._use(tickets, keys))

    def _use(
        self, tickets: Any, keys: Mapping[str, Any], folder: Path | None = None
    ) -> dict[str, Any]:
        config = self.config
        files = _list_files(tickets, folder or self.folder.parent)
        return {
            "guidance": str(self.folder),
            "tickets": files,
            "model": config.model,
            "columns": config.columns,
            **keys,
        }


def fit(
    tickets: Any,
    *,
    fresh: bool = False,
    on_round: Callback | None = None,
    on_edit: Callback | None = None,
    **keys: Any,
) -> Run:
    """Learn rules from labelled tickets, as ``stageb fit`` does, and print what that prints.

    ``tickets`` are files by name, rows (mappings, as of a table, or of JSON Lines with
    ``per_image``), a DataFrame of pandas or polars, or a set of ``datasets``. ``keys`` are those of
    the command: ``output={"run_name": "first"}``, ``seed=3``, ...; ``config`` names YAML files of
    keys, or configs that ship: one, or several of which later ones win. All keys are written into
    ``output.root``, as the run's name with ``.yaml``. An interrupt returns the run as far as its
    last commit (before the first one it raises ``KeyboardInterrupt``); the same call goes on with
    it. Raises ``stageb.StagebError`` if something cannot be used, or fails. Where neither ``keys``
    nor a config say anything of columns, those of a table are guessed as ``stageb new`` guesses
    them, and printed.

    ``on_round`` is called with each round that is committed (its mission, epoch, split, round, step
    of the guidance, and how many of its tickets are right), ``on_edit`` with each bundle that led
    to an edit: its row of ``reflection.jsonl``, and the ``rules`` of the mission then. One that
    raises ``KeyboardInterrupt`` interrupts the run.
    """
    draft = _draft(tickets, keys)
    folder: Path = draft.build().output.folder
    file = folder.parent / f"{folder.name}.yaml"
    disk.write(file, strict_yaml.dump(draft.values), "nothing else")
    news = _News(folder, fresh, on_round, on_edit)
    code, why = _run_command(
        ["fit", "--config", str(file), *(["--fresh"] if fresh else [])], news.tell
    )
    if code == 128 + signal.SIGINT and (folder / COMMIT).exists():
        print(why)
        return Run(folder)
    if code == 128 + signal.SIGINT:
        raise KeyboardInterrupt
    if code:
        path = draft.values["tickets"][0]
        why = _name_rows(why, path) if path.endswith(".csv") and not _name_files(tickets) else why
        raise (InputError if code == 2 else StagebError)(
            why.removeprefix(SAYS) or f"stageb fit ended with code {code}"
        )
    return Run(folder)


def fit_here(tickets: Any, is_table: bool = False, **keys: Any) -> Run:
    """The same in this process, always anew, which is quick where a program learns many times.
    ``keys`` name one device. ``is_table``: rows have columns alone, whatever these are called."""
    draft = _draft(tickets, keys, is_table)
    config = draft.build()
    folder: Path = config.output.folder
    try:
        commands.load_fit("guidance")(config, strict_yaml.dump(draft.values), True)
    except KeyboardInterrupt:
        if not (folder / COMMIT).exists():
            raise
    return Run(folder)


def in_kind(rows: Sequence[Mapping[str, Any]], tickets: Any) -> Any:
    """A row for each ticket, in the kind that these came in: a DataFrame with their index, a set of
    ``datasets``, or a list."""
    made = list(map(dict, rows))
    if hasattr(tickets, "from_list"):
        return type(tickets).from_list(made)
    if hasattr(tickets, "columns"):
        return type(tickets)(
            made, **({"index": tickets.index} if hasattr(tickets, "index") else {})
        )
    return made


# Inside -------------------------------------------------------------------------------------------


class _News:
    """Commits of a run while ``fit`` waits for it, told to callbacks."""

    def __init__(
        self, folder: Path, fresh: bool, on_round: Callback | None, on_edit: Callback | None
    ) -> None:
        given = {SELECTIONS: (on_round, self._list_rounds), REFLECTION: (on_edit, self._list_edits)}
        self._calls = {
            name: (call, list_events) for name, (call, list_events) in given.items() if call
        }
        self._folder = folder
        self._set_aside = folder.stat().st_ino if fresh and folder.exists() else None
        self._seen = {} if fresh else dict(RunFolder(folder).commit["lengths"])  # by file: bytes

    def tell(self) -> None:
        """Call with what was committed since."""
        if (
            not self._calls
            or not (self._folder / COMMIT).exists()
            or self._folder.stat().st_ino == self._set_aside
        ):
            return
        run = RunFolder(self._folder)
        for file, length in run.commit["lengths"].items():
            call, list_events = self._calls.get(Path(file).name, (None, None))
            if call and list_events:
                start, self._seen[file] = self._seen.get(file, 0), length
                for event in list_events(run.read_committed(file, min(start, length))):
                    call(event)

    def _list_rounds(self, rows: Iterable[RunRow]) -> Iterator[dict[str, Any]]:
        for place, judged in groupby(rows, itemgetter(*ROUND)):
            matches = [row["label_match"] for row in judged]
            yield {
                **dict(zip(ROUND, place, strict=True)),
                "tickets": len(matches),
                "right": sum(matches),
            }

    def _list_edits(self, rows: Iterable[RunRow]) -> Iterator[dict[str, Any]]:
        for row in rows:
            if row["applied"]:
                guidance = read_guidance(str(self._folder))[row["mission"]]
                yield {**row, "rules": {rule.key: rule.text for rule in guidance.rules}}


def _run_command(arguments: Sequence[str], look: Callable[[], object]) -> tuple[int, str]:
    """Run a command of stageb, print what it says as it comes, ``look`` now and then, and return
    the command's code and why it ended, in its words, if it says so."""
    command = [sys.executable, "-m", "stageb", *arguments]
    last: list[str] = []  # lines from the one on that says what ended it
    # In a session of its own, so that an interrupt reaches it once, whoever was interrupted.
    piped: Any = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "encoding": "utf-8",
        "start_new_session": True,
    }
    piped["env"] = {**os.environ, CALLER.name: IN_PYTHON}
    failed, is_over = None, False
    with subprocess.Popen(command, **piped) as job:
        lines = queue.SimpleQueue[str | None]()
        threading.Thread(target=_put_lines, args=(job.stdout, lines), daemon=True).start()
        while not is_over:
            try:
                with suppress(queue.Empty):
                    line = lines.get(timeout=LOOK_S)
                    is_over = line is None
                    if line:
                        last = [line] if line.startswith(SAYS) else [*last, line] if last else []
                        if not last:  # which an exception tells
                            print(line, end="", flush=True)
                if not failed:
                    look()
            except (KeyboardInterrupt, Exception) as error:
                failed = error
                job.send_signal(signal.SIGINT)
    if failed and not isinstance(failed, KeyboardInterrupt):
        raise failed
    return job.returncode, "".join(last).strip()


def _put_lines(stream: Iterable[str], lines: queue.SimpleQueue[str | None]) -> None:
    """All lines as they come, and None at the end."""
    for line in stream:
        lines.put(line)
    lines.put(None)


def _draft(tickets: Any, keys: Mapping[str, Any], is_table: bool = False) -> Draft:
    """Draft the config of a run on ``tickets``, which are written into its root where they are no
    files."""
    config = draft_keywords("fit", {**keys, "tickets": ["rows.csv"]}).build()
    keys = {**keys, "tickets": _list_files(tickets, Path(config.output.root), is_table)}
    if config.columns == ColumnsConfig() and lacks_names(table := keys["tickets"][0]):
        (columns, notes), _ = read_guessed(table, Told())
        # the name of a file that nobody chose
        if columns.mission_name and not _name_files(tickets):
            columns = replace(columns, mission_name=TICKETS)
        said = {
            name: value
            for name, value in asdict(columns).items()
            if value != getattr(config.columns, name)
        }
        print(f"columns={said!r}, as guessed; say otherwise where that is wrong")
        print("".join(f"Note: {note}\n" for note in notes), end="")
        keys["columns"] = asdict(columns)
    return draft_keywords("fit", keys)


def _list_files(tickets: Any, folder: Path, is_table: bool = False) -> list[str]:
    """The ticket files by name; rows and tables are written into ``folder`` first, under a name
    that says what they hold. Raises ``InputError``."""
    if files := _name_files(tickets):
        return files
    text, suffix = write_table(tickets, is_table)
    data = disk.encode(text)
    path = folder / f"tickets-{disk.digest(data, 6)}.{suffix}"
    disk.write(path, data, "nothing else")
    return [str(path)]


def _name_rows(why: str, path: str) -> str:
    """A message with the rows of a table, written to ``path``, beside its lines there, of which a
    row may take several."""
    rows: dict[str, int] = {}
    with suppress(csv.Error), Path(path).open(newline="", encoding="utf-8") as opened:
        for row, _ in enumerate(reader := csv.reader(opened)):
            rows[f"{path}:{reader.line_num + 1}:"] = row
    return re.sub(
        rf"{re.escape(path)}:\d+:",
        lambda at: f"{at[0]} row {rows[at[0]]}, from 0:" if at[0] in rows else at[0],
        why,
    )


def _name_files(tickets: Any) -> list[str]:
    """The names of files, if that is what ``tickets`` are."""
    given = (
        [tickets]
        if isinstance(tickets, str | Path)
        else tickets
        if isinstance(tickets, Sequence)
        else []
    )
    return list(map(str, given)) if all(isinstance(each, str | Path) for each in given) else []


def write_table(tickets: Any, is_table: bool = False) -> tuple[str, str]:
    """Tickets as the text of a file, and its suffix: rows with summaries as JSON Lines, all else as
    a table, as always where it ``is_table``. What is not a number is an empty cell, a length of
    time a number of hours. Raises ``InputError``."""
    if hasattr(tickets, "write_csv"):  # polars
        return str(tickets.write_csv()), "csv"
    if hasattr(tickets, "columns"):  # pandas
        lengths = [name for name, of in tickets.dtypes.items() if of.kind == "m"]
        hours = {name: tickets[name].dt.total_seconds() / 3600 for name in lengths}
        return str(tickets.assign(**hours).to_csv(index=False)), "csv"
    rows = _list_rows(tickets)
    if not is_table and any("per_image" in row for row in rows):
        return "".join(f"{json.dumps(dict(row), ensure_ascii=False)}\n" for row in rows), "jsonl"
    text, columns = io.StringIO(), _list_columns(rows)
    table = csv.writer(text)
    table.writerow(columns)
    table.writerows(zip(*columns.values(), strict=True))
    return text.getvalue(), "csv"


def read_table(tickets: Any) -> dict[str, Sequence[str]]:
    """The cells of such a table by column, as ``write_table`` writes them. Raises
    ``InputError``."""
    if not hasattr(tickets, "columns"):
        columns = _list_columns(_list_rows(tickets))
        return {write_cell(name): cells for name, cells in columns.items()}
    text, _ = write_table(tickets)
    reader = csv.reader(io.StringIO(text, newline=""))
    header = next(reader)
    # an empty line is no row of one empty cell, which has quotes
    cells = [*chain.from_iterable(reader)]
    return {name: cells[place :: len(header)] for place, name in enumerate(header)}


def _list_rows(tickets: Any) -> Sequence[Mapping[Any, Any]]:
    rows = tickets.to_list() if hasattr(tickets, "to_list") else tickets  # datasets
    if isinstance(rows, Sequence) and rows and all(isinstance(each, Mapping) for each in rows):
        return rows
    what = "nothing" if rows == [] else type(tickets).__name__
    raise InputError(
        f"tickets: {what} was given; give names of files, rows as mappings, or a DataFrame"
    )


def _list_columns(rows: Sequence[Mapping[Any, Any]]) -> dict[Any, Sequence[str]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [write_cell(row.get(name)) for row in rows] for name in names}
