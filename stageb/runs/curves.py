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


def draw(rows: Rows, curves: Curves, path: Path) -> None:
    """Draw a panel for each of ``curves``, as a PNG file."""
    from matplotlib.figure import Figure

    down = -(-len(curves.panels) // ACROSS)
    figure = Figure(figsize=(12, 3.25 * down), layout="constrained")
    for place, (name, label) in enumerate(curves.panels, start=1):
        axes = figure.add_subplot(down, ACROSS, place)
        axes.plot(*_points(rows, curves.step, name), linewidth=1, label="while learning")
        if name in curves.tested:
            axes.plot(*_points(rows, curves.step, curves.tested[name]), "o", markersize=4, label=curves.apart)
            axes.legend(frameon=False, fontsize=8)
        axes.set_ylabel(label)
        axes.set_xlabel(curves.axis)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _points(rows: Rows, step: str, name: str) -> tuple[list[int], list[float]]:
    """Where a figure is known."""
    known = [(row[step], row[name]) for row in rows if row.get(name) is not None]
    return [at for at, _ in known], [value for _, value in known]
