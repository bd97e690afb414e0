"""Views of metrics.jsonl: for other programs through Fabric's loggers, and learning curves as a picture.

None of them is what a run goes on from: the CSV file is made anew from the committed rows then, and TensorBoard is told
from which step on to forget what it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.csv_logs import CSVLogger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger

from stageb.config import LogConfig
from stageb.store import disk

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
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    down = -(-len(curves.panels) // ACROSS)
    figure = Figure(figsize=(12, 3.25 * down), layout="constrained")
    FigureCanvasAgg(figure)
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


@dataclass(frozen=True)
class RowView:
    """How a loop's rows are shown."""

    curves: Curves  # their step is TensorBoard's horizontal axis, too
    groups: Mapping[str, str] = field(default_factory=dict)  # how TensorBoard groups what rows call plainly


class Logs:
    """The loggers of a run."""

    def __init__(self, config: LogConfig, view: RowView, folder: Path, rows: Rows) -> None:
        """``rows`` are those committed."""
        self._config, self._view, self._folder = config, view, folder
        self._csv: CSVLogger | None = None
        self._board: TensorBoardLogger | None = None
        if config.csv:
            (folder / "csv" / "metrics.csv").unlink(missing_ok=True)
            self._csv = CSVLogger(folder, name="csv", version="", flush_logs_every_n_steps=1_000_000)
            for row in rows:
                self._csv.log_metrics(dict(row), step=row[view.curves.step])
        if config.tensorboard:
            purge = rows[-1][view.curves.step] + 1 if rows else None
            self._board = TensorBoardLogger(folder, name="tensorboard", version="", purge_step=purge)

    def add(self, row: Mapping[str, Any], times: Mapping[str, float]) -> None:
        """A row; ``times`` are for TensorBoard alone, whose files hold the time anyway."""
        step = row[self._view.curves.step]
        if self._csv:
            self._csv.log_metrics(dict(row), step=step)
        if self._board:
            known = {name: value for name, value in row.items() if value is not None and name != self._view.curves.step}
            self._board.log_metrics({**{self._grouped(name): value for name, value in known.items()}, **times}, step=step)

    def save(self) -> None:
        """Bring what was added to the disk."""
        if self._csv:
            self._csv.save()

    def end(self, rows: Rows) -> None:
        """All rows are there."""
        self.save()
        if self._config.curves:
            disk.place(self._folder / "curves.png", lambda path: draw(rows, self._view.curves, path))

    def close(self) -> None:
        """Let go of the files."""
        if self._board:
            self._board.finalize("success")

    def _grouped(self, name: str) -> str:
        groups = self._view.groups
        return f"{groups[name]}/{name}" if name in groups else name
