"""Views of metrics.jsonl for other programs, through Fabric's loggers: a CSV file, TensorBoard's event files, a picture.

None of them is what a run goes on from: the CSV file is made anew from the committed rows then, and TensorBoard is told
from which step on to forget what it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.csv_logs import CSVLogger
from lightning.fabric.loggers.tensorboard import TensorBoardLogger

from stageb import disk
from stageb.snake.config import LogConfig
from stageb.snake.plot import draw

NAMED = {  # how TensorBoard groups what rows call plainly
    **dict.fromkeys(("score", "fill", "win_rate", "cut_rate", "length", "games"), "games"),
    **dict.fromkeys(("policy_loss", "value_loss"), "losses"),
    **dict.fromkeys(("entropy", "approx_kl", "clip_frac", "explained_variance", "grad_norm", "epochs"), "ppo"),
    **dict.fromkeys(("skipped", "skipped_so_far", "learning_rate", "entropy_weight"), "ppo"),
}


class Logs:
    """The loggers of a run."""

    def __init__(self, config: LogConfig, folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """``rows`` are those committed."""
        self._config, self._folder = config, folder
        self._csv: CSVLogger | None = None
        self._board: TensorBoardLogger | None = None
        if config.csv:
            (folder / "csv" / "metrics.csv").unlink(missing_ok=True)
            self._csv = CSVLogger(folder, name="csv", version="", flush_logs_every_n_steps=1_000_000)
            for row in rows:
                self._csv.log_metrics(dict(row), step=row["steps"])
        if config.tensorboard:
            purge = rows[-1]["steps"] + 1 if rows else None
            self._board = TensorBoardLogger(folder, name="tensorboard", version="", purge_step=purge)

    def add(self, row: Mapping[str, Any], times: Mapping[str, float]) -> None:
        """A row; ``times`` are for TensorBoard alone, whose files hold the time anyway."""
        if self._csv:
            self._csv.log_metrics(dict(row), step=row["steps"])
        if self._board:
            figures = {_grouped(name): value for name, value in row.items() if value is not None and name != "steps"}
            self._board.log_metrics({**figures, **times}, step=row["steps"])

    def save(self) -> None:
        """Bring what was added to the disk."""
        if self._csv:
            self._csv.save()

    def end(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """All rows are there."""
        self.save()
        if self._config.curves:
            disk.place(self._folder / "curves.png", lambda path: draw(rows, path))

    def close(self) -> None:
        """Let go of the files."""
        if self._board:
            self._board.finalize("success")


def _grouped(name: str) -> str:
    return f"{NAMED[name]}/{name}" if name in NAMED else name
