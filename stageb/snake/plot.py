"""Learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PANELS = (
    ("score", "foods a game"),
    ("win_rate", "games won"),
    ("length", "steps a game"),
    ("entropy", "entropy (nats)"),
    ("explained_variance", "explained variance"),
    ("approx_kl", "KL(old, new)"),
)
EVALUATED = {"score": "eval/score", "win_rate": "eval/win_rate", "length": "eval/length"}


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw what the rows of metrics.jsonl say over steps, a panel each, as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (name, label) in enumerate(PANELS, start=1):
        axes = figure.add_subplot(2, 3, place)
        axes.plot(*_points(rows, name), linewidth=1, label="while learning")
        if name in EVALUATED:
            axes.plot(*_points(rows, EVALUATED[name]), "o", markersize=4, label="most probable actions")
            axes.legend(frameon=False, fontsize=8)
        axes.set_ylabel(label)
        axes.set_xlabel("steps of all environments")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Where a figure is known."""
    known = [(row["steps"], row[name]) for row in rows if row.get(name) is not None]
    return [step for step, _ in known], [value for _, value in known]
