"""What rank 0 does with what the ranks bring: record, log, commit, say.

A ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import save_file

from stageb.runs import run
from stageb.runs.curves import Curves
from stageb.runs.figures import rounded, short
from stageb.runs.logs import View
from stageb.runs.progress import Plan, finished_already
from stageb.runs.run import METRICS, LearningRun
from stageb.snake import progress
from stageb.snake.config import START_LENGTH, SnakeConfig
from stageb.snake.ranks import Checkpoint
from stageb.snake.schedule import Schedule
from stageb.snake.stored import WEIGHTS
from stageb.snake.types import Played
from stageb.store.commits import committed
from stageb.training.ppo import Figures

CHECKPOINT = "checkpoint.pt"
NOT_SHAPING = (
    "output.",
    "fabric.",
    "log.",
    "log_level",
    "loggers",
    "runner.per_rank_num_envs",
)  # keys that change no result
GROUPS = {  # how TensorBoard groups what rows call plainly
    **dict.fromkeys(("score", "fill", "win_rate", "cut_rate", "length", "games"), "games"),
    **dict.fromkeys(("policy_loss", "value_loss"), "losses"),
    **dict.fromkeys(("entropy", "approx_kl", "clip_frac", "explained_variance", "grad_norm", "epochs"), "ppo"),
    **dict.fromkeys(("skipped", "skipped_so_far", "learning_rate", "entropy_weight"), "ppo"),
}
CURVES = Curves(
    step="steps",
    axis="steps of all environments",
    panels=(
        ("score", "foods a game"),
        ("win_rate", "games won"),
        ("length", "steps a game"),
        ("entropy", "entropy (nats)"),
        ("explained_variance", "explained variance"),
        ("approx_kl", "KL(old, new)"),
    ),
    tested={"score": "eval/score", "win_rate": "eval/win_rate", "length": "eval/length"},
    apart="most probable actions",
)
VIEW = View(CURVES, GROUPS)


class Run(LearningRun):
    """One run: where it stands, and what is written and said of it."""

    config: SnakeConfig
    schedule: Schedule  # from ``begin`` on

    def __init__(self, config: SnakeConfig, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` are of the machine."""
        self.config = config
        self._yaml = resolved_yaml
        self._facts = facts
        self._skipped = 0  # steps of the optimiser, since the run began
        self._since, self._recorded = time.monotonic(), 0  # when the last row was written, and of what update

    # Beginning and end

    def games(self, fresh: bool) -> int:
        """How many games the run in the folder plays at a time, over all ranks; 0 where that is still to be said."""
        if isinstance(self.config.runner.per_rank_num_envs, int) or fresh:
            return 0
        return self._committed_games

    def finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run, finished: then its result is shown again."""
        if fresh or not run.is_finished(self.config.output.folder):
            return False
        self._open(False, self._committed_games)
        finished_already(self.config.output, progress.result(self.journal.rows(METRICS)[-1], self.config))
        return True

    def begin(self, fresh: bool, schedule: Schedule) -> tuple[int, Checkpoint | None]:
        """Open the folder; how many updates are done, and what to go on from. None before the first commit."""
        self.schedule = schedule
        self._open(fresh, schedule.all_games)
        state, path = self.journal.state, self.journal.path(CHECKPOINT)
        done = state["update"] if state else 0
        self._skipped = state["skipped"] if state else 0
        facts = {"games": schedule.all_games, "per_rank_num_envs": schedule.games, **self._facts}
        run.describe(self.journal, self._yaml, ("torch", "lightning"), facts)
        rows = self.journal.rows(METRICS)
        opening = progress.opening(self.config, schedule, done, rows[-1] if rows else None)
        self._show(VIEW, Plan("update", schedule.updates, done), opening)
        self._since, self._recorded = time.monotonic(), done
        return done, torch.load(path, weights_only=True) if path else None

    def end(self) -> None:
        """Nothing is left to do: draw, and say what came of it."""
        self.progress.tells(progress.result(self._end(), self.config))

    @property
    def _committed_games(self) -> int:
        """Of the run in the folder; 0 where there is none."""
        games: int = committed(self.config.output.folder)["config"].get("games", 0)
        return games

    def _open(self, fresh: bool, games: int) -> None:
        precision = self.config.fabric.precision
        shaping = {**asdict(self.config), "games": games, "precision": "bf16-mixed" if precision == "bf16-mixed" else "32"}
        self.journal = run.open_journal(self.config.output, shaping, NOT_SHAPING, fresh)

    # Updates

    def record(self, update: int, figures: Figures, ended: Played, apart: float | None, tested: Played | None) -> None:
        """Write down what an update came to, and the games that ended since the last row."""
        self._skipped += figures.skipped
        row = {
            "update": update + 1,
            "steps": (update + 1) * self.schedule.steps,
            **_averages(ended, self.config.game.cells, ""),
            **{name: rounded(value) for name, value in asdict(figures).items()},
            "skipped_so_far": self._skipped,
            "learning_rate": rounded(self.schedule.learning_rate(update)),
            "entropy_weight": rounded(self.schedule.entropy_weight(update)),
            "ddp/replica_divergence": apart,
            **_averages(tested or Played(), self.config.game.cells, "eval/"),
        }
        now = time.monotonic()
        seconds = max(1e-9, now - self._since)
        fps = (update + 1 - self._recorded) * self.schedule.steps / seconds
        times = {"time/global_fps": round(fps, 1), "time/sps": round(fps / self.schedule.world_size, 1)}
        self._since, self._recorded = now, update + 1
        self._add(row, times, {"update": update + 1, "seconds": round(seconds, 3), **times})
        said = f"{progress.figures(row, self.config)}, {short(times['time/global_fps'])} steps/s"
        self.progress.recorded(update + 1, said, worth_a_line=bool(row["eval/games"]))

    def commit(self, update: int, checkpoint: Checkpoint) -> None:
        """Make this the point to go on from."""
        weights = {name: each.contiguous() for name, each in checkpoint["agent"].items()}
        self.journal.put(WEIGHTS, lambda path: save_file(weights, path))
        self.journal.put(CHECKPOINT, lambda path: torch.save(checkpoint, path))
        self._commit({"update": update + 1, "skipped": self._skipped})


def _averages(played: Played, cells: int, prefix: str) -> dict[str, float | int | None]:
    """What games came to on average; no figures where there were none."""
    games = played.games
    figures: dict[str, float | None] = dict.fromkeys(("score", "fill", "win_rate", "cut_rate", "length"))
    if games:
        figures = {
            "score": played.score / games,
            "fill": (played.score / games + START_LENGTH) / cells,
            "win_rate": played.won / games,
            "cut_rate": played.cut / games,
            "length": played.steps / games,
        }
    return {f"{prefix}games": games} | {f"{prefix}{name}": rounded(value) for name, value in figures.items()}
