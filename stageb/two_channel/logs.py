"""metrics.jsonl as TensorBoard shows it, through Fabric's logger. Nothing that a run goes on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.tensorboard import TensorBoardLogger

from stageb.two_channel.config import LogConfig


class Logs:
    """The event files of a run."""

    def __init__(self, config: LogConfig, folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
        """``rows`` are those committed: TensorBoard is told to forget what it was shown behind them."""
        purge = rows[-1]["step"] + 1 if rows else None
        made = TensorBoardLogger(folder, name="tensorboard", version="", purge_step=purge) if config.tensorboard else None
        self._board = made

    def add(self, row: Mapping[str, Any], times: Mapping[str, float]) -> None:
        """A row, and the times that belong to it."""
        if self._board:
            figures = {name: value for name, value in row.items() if value is not None and name != "step"}
            self._board.log_metrics({**figures, **times}, step=row["step"])

    def close(self) -> None:
        """Let go of the files."""
        if self._board:
            self._board.finalize("success")
