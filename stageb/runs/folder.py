"""A run's folder: opened and recorded by the loop that runs, read by commands that look at runs."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import stageb
from stageb.errors import BadInputError, BadLine, JournalError
from stageb.runs.loggers import Loggers
from stageb.store import disk
from stageb.store.commits import REMEDY, read_commit
from stageb.store.journal import Journal
from stageb.store.trust import file_of
from stageb.untrusted import strict_json

RunRow = Mapping[str, Any]


class RunFolder:
    """The files of a run, to be read. Methods raise ``InputError`` where a link leads out of the
    folder. Nothing is locked and nothing is written: the run may go on meanwhile, and another
    program may have changed any file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def commit(self) -> Mapping[str, Any]:
        """The content of commit.json, as of the first look. Raises ``JournalError``."""
        return read_commit(self.path)

    def read_committed(self, file: str, start: int = 0) -> Iterator[RunRow]:
        """The rows of a file of JSON Lines that the last commit covers, from byte ``start`` on;
        none of one that was never written. Rows after it will be written again. Raises
        ``JournalError`` where the file is cut or no JSON."""
        left, path = self.commit["lengths"].get(file, 0) - start, self._place(file)
        try:
            if left > 0:
                with path.open("rb") as opened:
                    opened.seek(start)
                    while left > 0:
                        line = opened.readline()
                        left -= len(line) or left
                        yield json.loads(line)
        except (OSError, ValueError, RecursionError) as error:
            raise JournalError(f"{path}: {error}; {REMEDY}") from error

    def read_offered(self) -> RunRow:
        """``find_result`` of a run that learnt weights."""
        return find_result(list(self.read_committed(METRICS)), self.commit["state"].get("best"))

    def read_whole(self, file: str, having: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows of a file that hold a text, each with its line, committed or not; one that is
        being written is left out.

        Raises ``BadInputError`` where one is no JSON object.
        """
        path = self._place(file)
        if not path.exists():
            return
        with path.open(encoding="utf-8", errors="replace") as opened:
            for number, line in enumerate(opened, 1):
                if having in line and line.endswith("\n"):
                    try:
                        row = strict_json.loads(line)
                    except ValueError as error:
                        raise self.fault(file, number, f"not JSON: {error}") from None
                    if not isinstance(row, dict):
                        raise self.fault(file, number, "not an object")
                    yield number, row

    def fault(self, file: str, line: int, what: str) -> BadInputError:
        """The error for a row that no run writes."""
        bad = BadLine(
            str(self.path / file), line, what, "another program changed it; take the row out"
        )
        return BadInputError("rows of a run", [bad])

    def read_notes(self, file: str) -> list[Any]:
        """The whole rows of a file that stands outside of commits. Raises ``JournalError`` where
        one is no object."""
        path = self._place(file)
        return disk.whole_rows(path, path.read_bytes(), disk.TAKE_OUT) if path.is_file() else []

    def read_machine(self) -> RunRow:
        """Read run.json; nothing where there is none. Raises ``JournalError`` where it is no
        object."""
        path = self._place("run.json")
        return (
            disk.parse_object(path.read_bytes(), str(path), "take it out of the folder")
            if path.is_file()
            else {}
        )

    def _place(self, file: str) -> Path:
        return file_of(self.path, self.path / file)


class RunScore(NamedTuple):
    """How good a run is."""

    figure: str  # its name
    value: float  # the more the better


def find_score(folder: Path) -> RunScore | None:
    """The main figure of what a run that learnt weights offers, on val if it has any; None where
    nothing was evaluated."""
    row = RunFolder(folder).read_offered()
    names = [
        name
        for part in (VAL, TESTED)
        for name in row
        if name.startswith(part) and isinstance(row[name], float)
    ]
    return RunScore(names[0], row[names[0]]) if names else None


# What the runs of all loops share: opening their folder, recording what they run on, and releasing
# it all at the end.
#
# Every rank has its loop's ``Run``, but its methods are called on rank 0 alone (``World.lead``).

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"
# begin the columns of what is apart from learning, the main figure first
VAL, TESTED = "val/", "eval/"
# what a loop that learns weights counts: a column of its rows, and a key of its commits
UNITS = ("update", "step")


def find_result(rows: Sequence[RunRow], best: Mapping[str, int] | None) -> RunRow:
    """Return the row of a run's result: the last one, with the figures of its ``best`` evaluation
    in their place where the run has kept what was evaluated there."""
    unit = next(name for name in UNITS if name in rows[-1])
    return {**rows[-1], **next((row for row in rows if best and row[unit] == best[unit]), {})}


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a finished run; whether it is this run, ``Journal.open`` checks."""
    state = read_commit(folder)["state"]
    return isinstance(state, dict) and bool(state.get("finished"))


def describe(
    journal: Journal, resolved_yaml: str, packages: Sequence[str], facts: Mapping[str, Any]
) -> None:
    """Write config.yaml and run.json: the run's config, versions (those of ``packages`` included),
    and ``facts`` about the devices; nothing from the environment."""
    if journal.number == 0 or journal.raised:
        journal.replace("config.yaml", resolved_yaml)
    python = {
        "stageb": stageb.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    machine = {**python, "packages": {name: version(name) for name in packages}, **facts}
    journal.replace("run.json", json.dumps(machine, indent=2) + "\n")


class RecordedRun:
    """A run's resources, released when it ends or fails."""

    journal: Journal  # once it has begun, as this
    loggers: Loggers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release what the run holds. A run that finished has already closed its loggers as
        successful."""
        if hasattr(self, "loggers"):
            self.loggers.close("aborted")
        for held in ("progress", "journal"):
            if hasattr(self, held):
                getattr(self, held).close()
