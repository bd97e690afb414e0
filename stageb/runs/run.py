"""What the runs of all loops do alike: take their folder, say what they run on, show how it goes, and let go.

A loop's own ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self

import stageb
from stageb.config import Level, LogConfig, LoggerConfig, OutputConfig
from stageb.job import launching
from stageb.runs.loggers import Loggers
from stageb.runs.logs import Logs, View
from stageb.runs.progress import Plan, Progress
from stageb.store.commits import committed
from stageb.store.journal import Journal

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"


def is_finished(folder: Path) -> bool:
    """Whether a run that needs nothing more lies in the folder; of whose, ``open_journal`` tells."""
    state = committed(folder)["state"]
    return isinstance(state, dict) and bool(state.get("finished"))


def open_journal(output: OutputConfig, shaping: Mapping[str, Any], ignored: tuple[str, ...], fresh: bool) -> Journal:
    """The run's folder, new or to go on with: see ``Journal.open``, whose config ``shaping`` is."""
    return Journal.open(
        output.root,
        output.run_name,
        shaping,
        fresh=fresh,
        ignored=ignored,
        ways_out=("--fresh", "another output.run_name"),
    )


def describe(journal: Journal, resolved_yaml: str, packages: Sequence[str], facts: Mapping[str, Any]) -> None:
    """Write what the run is, and what it runs on: versions, those of ``packages`` among them, and ``facts`` of the devices;
    nothing of the environment. A finished run, which is only shown again, stays as it is."""
    if (journal.state or {}).get("finished"):
        return
    if journal.number == 0:
        journal.replace("config.yaml", resolved_yaml)
    python = {"stageb": stageb.__version__, "python": platform.python_version(), "platform": platform.platform()}
    machine = {**python, "packages": {name: version(name) for name in packages}, **facts}
    journal.replace("run.json", json.dumps(machine, indent=2) + "\n")


class Run:
    """What a run took, to be let go of where it ends or breaks."""

    journal: Journal  # once it has begun, as this
    loggers: Loggers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what the run took; where it came to its end, its loggers are closed already."""
        if hasattr(self, "loggers"):
            self.loggers.close("aborted")
        for held in ("logs", "progress", "journal"):
            if hasattr(self, held):
                getattr(self, held).close()


class Settings(Protocol):
    """What the configs of loops that learn weights have in common."""

    @property
    def output(self) -> OutputConfig: ...
    @property
    def log(self) -> LogConfig: ...
    @property
    def loggers(self) -> Sequence[str | LoggerConfig]: ...
    @property
    def log_level(self) -> Level: ...


class LearningRun(Run):
    """The run of a loop that learns weights: rows of figures, views of them, a bar. The loop says what stands in a row, and
    what in the state of a commit, which counts what the plan counts."""

    config: Settings
    progress: Progress  # once it has begun, as these
    logs: Logs
    _view: View
    _plan: Plan

    def _show(self, view: View, plan: Plan, opening: str, also: Sequence[str] = ()) -> None:
        """Begin to show how it goes, by the lines ``opening`` and ``also``."""
        folder = self.journal.folder
        self._view, self._plan = view, plan
        self.logs = Logs(self.config.log, view, folder, self.journal.rows(METRICS))
        self.progress = Progress(opening, plan, self.config.log_level)
        for line in also:
            self.progress.tells(line)
        if self.journal.number:
            launching.set_resume("")
        self.loggers = Loggers(self.config.loggers, folder, self.progress.tells)

    def _add(self, row: Mapping[str, Any], times: Mapping[str, float], timing: Mapping[str, Any]) -> None:
        """Write a row down, and ``timing`` beside it, of which ``times`` are shown too."""
        self.journal.append(METRICS, [row])
        self.journal.note(TIMINGS, [timing])
        self.logs.add(row, times)
        self.loggers.log({**row, **times}, row[self._view.curves.step])

    def _commit(self, state: Mapping[str, Any]) -> None:
        """Make what was written and put the point to go on from."""
        self.logs.save()
        self.loggers.save()
        self.journal.commit({**state, "finished": False})
        launching.set_resume("")

    def _end(self) -> Mapping[str, Any]:
        """Nothing is left to do: draw, and commit that it is so. The last row."""
        self.progress.close()
        rows = self.journal.rows(METRICS)
        self.logs.end(rows)
        self.loggers.close("success")
        self.journal.commit({**self.journal.state, "finished": True})
        last: Mapping[str, Any] = rows[-1]
        return last
