"""What the runs of all loops do alike: take their folder, say what they run on, show how it goes, and let go.

A loop's own ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``).
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
    """Whether a run that needs nothing more lies in the folder; of whose, ``open_journal`` tells."""
    state = read_commit(folder)["state"]
    return isinstance(state, dict) and bool(state.get("finished"))


def open_journal(
    output: OutputConfig, shaping: Mapping[str, Any], ignored: tuple[str, ...], limits: tuple[str, ...], fresh: bool
) -> Journal:
    """The run's folder, new or to go on with: see ``Journal.open``, whose config ``shaping`` is."""
    return Journal.open(
        output.root,
        output.run_name,
        shaping,
        fresh=fresh,
        ignored=ignored,
        limits=limits,
    )


def describe(journal: Journal, resolved_yaml: str, packages: Sequence[str], facts: Mapping[str, Any]) -> None:
    """Write what the run is, and what it runs on: versions, those of ``packages`` among them, and ``facts`` of the devices;
    nothing of the environment. A finished run, which is only shown again, stays as it is."""
    if (journal.state or {}).get("finished"):
        return
    if journal.number == 0 or journal.raised:
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
