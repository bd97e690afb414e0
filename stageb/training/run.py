"""The run of a loop that learns weights: what such runs do alike, from the folder that is opened to the last commit.

A loop's own ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``). It says what its rows
hold, how they are shown, and what a commit holds beside the checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Protocol

import torch

from stageb.config import FabricConfig, Level, LogConfig, LoggerConfig, OutputConfig
from stageb.job import lifetime
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.runs import log_level, loggers, run
from stageb.runs.loggers import Loggers
from stageb.runs.logs import Logs, RowView
from stageb.runs.progress import Plan, Progress, finished_already
from stageb.runs.run import METRICS, TIMINGS

CHECKPOINT = "checkpoint.pt"
NOT_SHAPING = ("output.", "fabric.", "log.", "log_level", "loggers")  # keys that change no result
MIXED = ("bf16-mixed", "16-mixed")


class Settings(Protocol):
    """What the configs of loops that learn weights have in common."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def output(self) -> OutputConfig: ...
    @property
    def fabric(self) -> FabricConfig: ...
    @property
    def log(self) -> LogConfig: ...
    @property
    def loggers(self) -> Sequence[str | LoggerConfig]: ...
    @property
    def log_level(self) -> Level: ...


def launch(config: Settings, main: Callable[[World], int]) -> int:
    """Run ``main`` on every rank; returns its exit code. Raises ``ConfigError`` before any rank starts."""
    log_level.at(config.log_level)
    loggers.check(config.loggers)
    return worlds.run(config.fabric, main)


class LearningRun(run.Run):
    """One run: where it stands, and what is written and said of it."""

    config: Settings
    progress: Progress  # once it has begun, as these
    logs: Logs
    view: ClassVar[RowView]  # of its rows; of a loop's runs, as these
    unit: ClassVar[str]  # what it counts: "update" or "step"; the column and the key of a commit that count it
    not_shaping: ClassVar[tuple[str, ...]] = NOT_SHAPING
    limits: ClassVar[tuple[str, ...]] = ()  # keys of numbers that may be higher when a run resumes
    packages: ClassVar[tuple[str, ...]] = ("torch", "lightning")  # whose versions are written down

    def __init__(self, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` are of the machine."""
        self._yaml, self._facts = resolved_yaml, facts
        self._since = time.monotonic()  # when the last row was written

    # What a loop's run says

    def shaping(self) -> Mapping[str, Any]:
        """What results depend on beside the config."""
        return {}

    def total(self) -> int:
        """Updates, or steps, that a finished run must have done to need nothing more."""
        return 0

    def result(self, row: Mapping[str, Any]) -> str:
        """What the run came to whose last row is ``row``, in a line."""
        raise NotImplementedError

    # Beginning and end

    def is_finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run, finished: then its result is shown again."""
        if fresh or not run.is_finished(self.config.output.folder):
            return False
        done = self._open(fresh=False)
        if done < self.total():
            self.journal.close()
            return False
        finished_already(self.config.output, self.result(self.journal.rows(METRICS)[-1]))
        return True

    def end(self) -> None:
        """Nothing is left to do: draw, commit that it is so, and say what came of it."""
        self.progress.close()
        rows = self.journal.rows(METRICS)
        self.logs.end(rows)
        self.loggers.close("success")
        self.journal.commit({**self.journal.state, "finished": True})
        self.progress.tells(self.result(rows[-1]))

    def _open(self, fresh: bool) -> int:
        """Open the folder; how many updates, or steps, are done."""
        precision = self.config.fabric.precision
        shaping = {**asdict(self.config), **self.shaping(), "precision": precision if precision in MIXED else "32"}
        self.journal = run.open_journal(self.config.output, shaping, self.not_shaping, self.limits, fresh)
        done: int = self._state(self.unit, 0)
        return done

    def _state(self, name: str, otherwise: Any) -> Any:
        """What the last commit holds under ``name``; ``otherwise`` before the first."""
        return (self.journal.state or {}).get(name, otherwise)

    def _checkpoint(self) -> Any:
        """What to go on from, on the CPU; None before the first commit."""
        path = self.journal.path(CHECKPOINT)
        return torch.load(path, map_location="cpu", weights_only=True) if path else None

    def _describe(self, facts: Mapping[str, Any]) -> None:
        """Write what the run is, and what it runs on; ``facts`` beside those of the machine."""
        run.describe(self.journal, self._yaml, self.packages, {**facts, **self._facts})

    def _show(self, total: int, done: int, opening: str, also: Sequence[str] = ()) -> None:
        """Begin to show how it goes, by the lines ``opening`` and ``also``."""
        folder = self.journal.folder
        self.logs = Logs(self.config.log, self.view, folder, self.journal.rows(METRICS))
        self.progress = Progress(opening, Plan(self.unit, total, done), self.config.log_level)
        for line in also:
            self.progress.tells(line)
        lifetime.set_resume("", commit=self.journal.commit_file)
        self.loggers = Loggers(self.config.loggers, folder, self.progress.tells)
        self._since = time.monotonic()

    # On the way

    def _lap(self) -> float:
        """Seconds since the last row."""
        since, self._since = self._since, time.monotonic()
        return max(1e-9, self._since - since)

    def _add(self, row: Mapping[str, Any], times: Mapping[str, float], timing: Mapping[str, Any]) -> None:
        """Write a row down, and ``timing`` beside it, of which ``times`` are shown too."""
        self.journal.append(METRICS, [row])
        self.journal.note(TIMINGS, [{self.unit: row[self.unit], **timing}])
        self.logs.add(row, times)
        self.loggers.log({**row, **times}, row[self.view.curves.step])

    def _commit(self, done: int, checkpoint: Any, **state: Any) -> None:
        """Make what was written, and ``checkpoint`` if any, the point to go on from: ``done`` updates or steps."""
        if checkpoint is not None:
            self.journal.put(CHECKPOINT, lambda path: torch.save(checkpoint, path))
        self.logs.save()
        self.loggers.save()
        self.journal.commit({self.unit: done, **state, "finished": False})
