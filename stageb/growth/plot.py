"""Learning curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PANELS = (
    ("objective", "objective J (validation)"),
    ("test_accuracy", "test accuracy at episodes' ends"),
    ("fossilized", "seeds kept an episode"),
    ("entropy", "entropy (nats)"),
    ("explained_variance", "explained variance"),
    ("approx_kl", "KL(old, new)"),
)
EVALUATED = {"objective": "eval/objective", "test_accuracy": "eval/test_accuracy", "fossilized": "eval/fossilized"}


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw what the rows of metrics.jsonl say over episodes, a panel each, as a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.5), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (name, label) in enumerate(PANELS, start=1):
        axes = figure.add_subplot(2, 3, place)
        axes.plot(*_points(rows, name), linewidth=1, label="while learning")
        if name in EVALUATED:
            axes.plot(*_points(rows, EVALUATED[name]), "o", markersize=4, label="held-out environments")
            axes.legend(frameon=False, fontsize=8)
        axes.set_ylabel(label)
        axes.set_xlabel("episodes")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Where a figure is known."""
    known = [(row["episodes"], row[name]) for row in rows if row.get(name) is not None]
    return [episodes for episodes, _ in known], [value for _, value in known]
