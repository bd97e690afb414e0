"""Learning curves: the rows of metrics.jsonl as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ACROSS = 3  # panels beside each other

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Curves:
    """What of a loop's rows is drawn."""

    step: str  # the column that counts
    axis: str  # what it counts, for people
    panels: Sequence[tuple[str, str]]  # a column, and what it is for people
    tested: Mapping[str, str] = field(default_factory=dict)  # a panel's column -> that of the same apart from learning
    apart: str = ""  # what "apart from learning" means here


def draw(runs: Sequence[Rows], curves: Curves, path: Path) -> None:
    """Draw a panel for each of ``curves``, as a PNG file: of a run, or of runs that counted alike their mean, in a band from
    the least to the most."""
    from matplotlib.figure import Figure

    down = -(-len(curves.panels) // ACROSS)
    figure = Figure(figsize=(12, 3.25 * down), layout="constrained")
    for place, (name, label) in enumerate(curves.panels, start=1):
        axes = figure.add_subplot(down, ACROSS, place)
        known = _known(runs, curves.step, name)
        axes.plot(list(known), [sum(values) / len(values) for values in known.values()], linewidth=1, label="while learning")
        if len(runs) > 1:
            axes.fill_between(list(known), list(map(min, known.values())), list(map(max, known.values())), alpha=0.2)
        if name in curves.tested:
            tested = _known(runs, curves.step, curves.tested[name])
            steps, values = (
                [at for at, each in tested.items() for _ in each],
                [one for each in tested.values() for one in each],
            )
            axes.plot(steps, values, "o", markersize=4, label=curves.apart)
            axes.legend(frameon=False, fontsize=8)
        axes.set_ylabel(label)
        axes.set_xlabel(curves.axis)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _known(runs: Sequence[Rows], step: str, name: str) -> dict[int, list[float]]:
    """The figures of runs in a column, by when they are known."""
    known = dict[int, list[float]]()
    for row in sorted((row for rows in runs for row in rows if row.get(name) is not None), key=lambda row: int(row[step])):
        known.setdefault(row[step], []).append(row[name])
    return known
