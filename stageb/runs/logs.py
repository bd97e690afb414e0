"""Views of metrics.jsonl for other programs, through Fabric's loggers: a CSV file, TensorBoard's event files, a picture.

None of them is what a run goes on from: the CSV file is made anew from the committed rows then, and TensorBoard is told
from which step on to forget what it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.csv_logs import CSVLogger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger

from stageb.config import LogConfig
from stageb.runs.curves import Curves, Rows, draw
from stageb.store import disk


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
