"""What the runs of all loops share: opening their folder, recording what they run on, and releasing it all at the end.

Every rank has its loop's ``Run``, but its methods are called on rank 0 alone (``World.lead``).
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import stageb
from stageb.config import OutputConfig
from stageb.runs.loggers import Loggers
from stageb.store.commits import read_commit
from stageb.store.journal import Journal

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"


def is_finished(folder: Path) -> bool:
    """Whether the folder holds a finished run; whether it is this run, ``open_journal`` checks."""
    state = read_commit(folder)["state"]
    return isinstance(state, dict) and bool(state.get("finished"))


def open_journal(
    output: OutputConfig, shaping: Mapping[str, Any], ignored: tuple[str, ...], limits: tuple[str, ...], fresh: bool
) -> Journal:
    """Open the run's folder, new or to resume: ``Journal.open`` with ``shaping`` as the config that results depend on."""
    return Journal.open(output.root, output.run_name, shaping, fresh=fresh, ignored=ignored, limits=limits)


def describe(journal: Journal, resolved_yaml: str, packages: Sequence[str], facts: Mapping[str, Any]) -> None:
    """Write config.yaml and run.json: the run's config, versions (those of ``packages`` included), and ``facts`` about the
    devices; nothing from the environment. A finished run, which is only shown again, stays as it is."""
    if (journal.state or {}).get("finished"):
        return
    if journal.number == 0 or journal.raised:
        journal.replace("config.yaml", resolved_yaml)
    python = {"stageb": stageb.__version__, "python": platform.python_version(), "platform": platform.platform()}
    machine = {**python, "packages": {name: version(name) for name in packages}, **facts}
    journal.replace("run.json", json.dumps(machine, indent=2) + "\n")


class RecordedRun:
    """A run's resources, released when it ends or fails."""

    journal: Journal  # once it has begun, as this
    loggers: Loggers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release what the run holds. A run that finished has already closed its loggers as successful."""
        if hasattr(self, "loggers"):
            self.loggers.close("aborted")
        for held in ("logs", "progress", "journal"):
            if hasattr(self, held):
                getattr(self, held).close()
