"""``stageb fit --seeds N``: runs that differ in their seed alone, one after the other, and what they come to together."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stageb.config import LearningConfig
from stageb.errors import InputError
from stageb.job import lifetime
from stageb.runs.curves import Curves, Rows, draw
from stageb.runs.figures import make_console, make_table, print_table
from stageb.runs.folder import METRICS, TESTED, RunFolder
from stageb.store import disk

COUNTS = ("steps", "episodes", "step")  # columns that count, of which a loop has one


def fit_all(config: Any, count: int, arguments: Sequence[str]) -> int:
    """So many runs of what ``arguments`` ask for, from the seed of ``config`` on, each a process. A table of what they offer
    follows, and a picture. Returns the exit code of a run that failed, which is the last."""
    check_launcher("--seeds")
    if not isinstance(config, LearningConfig):
        raise InputError("--seeds: for loops that learn weights")
    place, seeds = config.output, range(config.seed, config.seed + count)
    names = {seed: f"{place.run_name}-{seed}" for seed in seeds}
    for seed, name in names.items():
        if code := call_fit(arguments, {"seed": seed, "output.run_name": name, "seeds": 0}):
            return code
    folders = [RunFolder(Path(place.root, name)) for name in names.values()]
    runs, offered = [list(each.read_committed(METRICS)) for each in folders], [each.read_offered() for each in folders]
    step = next(name for name in COUNTS if name in runs[0][0])
    show(f"{count} seeds, from {seeds[0]} to {seeds[-1]}", offered, step)
    picture = Path(place.root, f"{place.run_name}-seeds.png")
    panels = [(name.removeprefix(TESTED), name.removeprefix(TESTED)) for name in _figures(offered)]
    curves = Curves(step, step, panels, {name: f"{TESTED}{name}" for name, _ in panels}, "apart from learning")
    with disk.reporting(picture):
        disk.place(picture, lambda path: draw(runs, curves, path))
    print(picture)
    return 0


def check_launcher(asked: str) -> None:
    """Raise ``InputError`` where a launcher has started the process: what ``asked`` is for starts the ranks of each run."""
    if lifetime.under_torchrun() or lifetime.under_slurm() or "LT_CLI_USED" in os.environ:
        raise InputError(f"{asked}: starts the ranks of each run by itself; call stageb without a launcher")


def call_fit(arguments: Sequence[str], own: Mapping[str, Any]) -> int:
    """A run of what ``arguments`` ask for with keys of its ``own``; its exit code, as shells tell it."""
    words = (f"--{key}={value}" for key, value in own.items())
    code = subprocess.call([sys.executable, "-m", "stageb", "fit", *arguments, *words])
    return code if code >= 0 else 128 - code


def show(title: str, offered: Rows, step: str) -> None:
    """Print the figures of what runs have ``offered``, and after how many of its ``step`` each was as it is."""
    table = make_table(title, ["figure"], ["mean", "deviation", "least", "most"])
    for name in (*_figures(offered), step):
        found = [float(row[name]) for row in offered]
        deviation = statistics.stdev(found) if len(found) > 1 else 0.0
        figures = (statistics.fmean(found), deviation, min(found), max(found))
        told = (f"{each:,.0f}" if name == step else f"{each:.4g}" for each in figures)
        table.add_row(f"after {step}" if name == step else name.removeprefix(TESTED), *told)
    print_table(make_console(), table)


def _figures(offered: Rows) -> list[str]:
    """The columns that all of what was ``offered`` has a figure in; whole numbers are counts."""
    names = (name for name in offered[0] if name.startswith(TESTED))
    return [name for name in names if all(isinstance(row.get(name), float) for row in offered)]
