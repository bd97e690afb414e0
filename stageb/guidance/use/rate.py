"""How fast earlier runs were, and so how long the next one may take.

Most of a run's time goes into reflections and their tests, and where code judges, nearly all of it does. So what counts is
not how many verdicts a second a run made, but what a bundle took that it reflected on, and a ticket of its rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stageb.engines.config import HOW_ASKED
from stageb.errors import StagebError
from stageb.guidance.config import LoopConfig
from stageb.runs.folder import RunFolder
from stageb.store.commits import COMMIT, flatten

TIMED_ALIKE = ("model.", "sampler.", "reflection.", "runner.judge")  # keys that tell what a ticket takes


@dataclass(frozen=True)
class Rate:
    """How fast an earlier run was that judged and reflected in the same way."""

    run: str  # its folder
    seconds: float  # that all tickets and bundles to come take at its pace
    verdicts_per_s: float  # rollouts and verdicts for the gate, which a budget counts; 0 where code gave them all
    machine: str  # that it ran on


def find_rate(config: LoopConfig, tickets: int, bundles: int) -> Rate | None:
    """How fast the latest run in ``output.root`` was that had this model, sampler, reflection and judge, and so what so many
    ``tickets`` and ``bundles`` take; None where no such run has timed both."""
    wanted = _pick_keys(flatten(asdict(config)))
    folders = [path.parent for path in Path(config.output.root).glob(f"*/{COMMIT}")]
    for folder in sorted(folders, key=lambda folder: (folder / COMMIT).stat().st_mtime, reverse=True):
        try:
            run = RunFolder(folder)
            if _pick_keys(run.commit["config"]) == wanted:
                return _read_rate(run, tickets, bundles)
        except (StagebError, OSError, ValueError, TypeError, KeyError, ArithmeticError):
            continue  # no run of this loop, not whole, or ended before it reflected: it tells nothing
    return None


def _read_rate(run: RunFolder, tickets: int, bundles: int) -> Rate:
    rows, facts = run.read_notes("timings.jsonl"), run.read_machine()
    rounds = [row for row in rows if row["tickets"]]
    whole, judging = (sum(row["seconds"] for row in some) for some in (rows, rounds))
    seconds = tickets * judging / sum(row["tickets"] for row in rounds)
    if bundles:
        seconds += bundles * (whole - judging) / sum(row["bundles"] for row in rows)
    spent = run.commit["state"]["spent"]
    machine = f"{facts['world_size']} x {facts['device_name']}"
    return Rate(str(run.path), seconds, (spent["rollouts"] + spent["judged"]) / whole, machine)


def _pick_keys(flat: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flat.items() if key.startswith(TIMED_ALIKE) and key not in HOW_ASKED}
