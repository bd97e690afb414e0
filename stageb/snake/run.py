"""What rank 0 does with what the ranks bring: record, log, commit, say.

A ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``).
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import save_file

import stageb
from stageb import launching
from stageb.commits import committed
from stageb.curves import Curves
from stageb.figures import rounded, short
from stageb.journal import Journal
from stageb.loggers import Loggers
from stageb.logs import Logs, View
from stageb.progress import Plan, Progress, finished_already
from stageb.snake import progress
from stageb.snake.config import START_LENGTH, SnakeConfig
from stageb.snake.learner import Figures
from stageb.snake.ranks import Checkpoint
from stageb.snake.schedule import Schedule
from stageb.snake.stored import WEIGHTS
from stageb.snake.types import Played

METRICS, TIMINGS = "metrics.jsonl", "timings.jsonl"
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


class Run:
    """One run: where it stands, and what is written and said of it."""

    journal: Journal  # from ``begin`` on, as these
    progress: Progress
    logs: Logs
    loggers: Loggers
    schedule: Schedule

    def __init__(self, config: SnakeConfig, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` are of the machine."""
        self.config = config
        self._yaml = resolved_yaml
        self._facts = facts
        self._skipped = 0  # steps of the optimiser, since the run began
        self._since, self._recorded = time.monotonic(), 0  # when the last row was written, and of what update

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of what ``begin`` took, where the run broke before its end."""
        if hasattr(self, "loggers"):
            self.loggers.close("aborted")
        for held in ("logs", "progress", "journal"):
            if hasattr(self, held):
                getattr(self, held).close()

    # Beginning and end

    def games(self, fresh: bool) -> int:
        """How many games the run in the folder plays at a time, over all ranks; 0 where that is still to be said."""
        if isinstance(self.config.runner.per_rank_num_envs, int) or fresh:
            return 0
        held: int = committed(self._folder)["config"].get("games", 0)
        return held

    def finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run, finished: then its result is shown again."""
        last = {} if fresh else committed(self._folder)
        if not last or not (last["state"] or {}).get("finished"):
            return False
        self._open(False, last["config"].get("games", 0))
        finished_already(self.config.output, progress.result(self.journal.rows(METRICS)[-1], self.config))
        return True

    def begin(self, fresh: bool, schedule: Schedule) -> tuple[int, Checkpoint | None]:
        """Open the folder; how many updates are done, and what to go on from. None before the first commit."""
        self.schedule = schedule
        self._open(fresh, schedule.all_games)
        state, path = self.journal.state, self.journal.path(CHECKPOINT)
        done = state["update"] if state else 0
        self._skipped = state["skipped"] if state else 0
        if self.journal.number == 0:
            self.journal.replace("config.yaml", self._yaml)
        self.journal.replace("run.json", json.dumps(self._machine(), indent=2) + "\n")
        rows = self.journal.rows(METRICS)
        self.logs = Logs(self.config.log, VIEW, self.journal.folder, rows)
        opening = progress.opening(self.config, schedule, done, rows[-1] if rows else None)
        plan = Plan("update", schedule.updates, done, self.config.runner.commit_every)
        self.progress = Progress(opening, plan, self.config.log_level)
        launching.heed(self.progress.stops)
        self.loggers = Loggers(self.config.loggers, self.journal.folder, self.progress.tells)
        self._since, self._recorded = time.monotonic(), done
        return done, torch.load(path, weights_only=True) if path else None

    def stop(self) -> int:
        """Somebody has asked for it: say how to go on. The exit code; all that was done is committed."""
        self.progress.close()
        self.progress.stopped(self.journal.state["update"])
        return launching.INTERRUPTED

    def end(self) -> None:
        """Nothing is left to do: draw, and say what came of it."""
        self.progress.close()
        rows = self.journal.rows(METRICS)
        self.logs.end(rows)
        self.loggers.close("success")
        self.journal.commit({**self.journal.state, "finished": True})
        self.progress.tells(progress.result(rows[-1], self.config))

    @property
    def _folder(self) -> Path:
        return Path(self.config.output.root, self.config.output.run_name)

    def _open(self, fresh: bool, games: int) -> None:
        output, precision = self.config.output, self.config.fabric.precision
        shaping = {**asdict(self.config), "games": games, "precision": "bf16-mixed" if precision == "bf16-mixed" else "32"}
        self.journal = Journal.open(
            output.root,
            output.run_name,
            shaping,
            fresh=fresh,
            ignored=NOT_SHAPING,
            ways_out=("--fresh", "another output.run_name"),
        )

    def _machine(self) -> dict[str, Any]:
        """What runs the run: versions and devices, and nothing of the environment."""
        packages = {name: version(name) for name in ("torch", "lightning")}
        python = {"stageb": stageb.__version__, "python": platform.python_version(), "platform": platform.platform()}
        return {**python, "packages": packages, "per_rank_num_envs": self.schedule.games, **self._facts}

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
        self.journal.append(METRICS, [row])
        now = time.monotonic()
        seconds = max(1e-9, now - self._since)
        fps = (update + 1 - self._recorded) * self.schedule.steps / seconds
        times = {"time/global_fps": round(fps, 1), "time/sps": round(fps / self.schedule.world_size, 1)}
        self.journal.note(TIMINGS, [{"update": update + 1, "seconds": round(seconds, 3), **times}])
        self._since, self._recorded = now, update + 1
        self.logs.add(row, times)
        self.loggers.log({**row, **times}, (update + 1) * self.schedule.steps)
        said = f"{progress.figures(row, self.config)}, {short(times['time/global_fps'])} steps/s"
        self.progress.recorded(update + 1, said, worth_a_line=bool(row["eval/games"]))

    def commit(self, update: int, checkpoint: Checkpoint) -> None:
        """Make this the point to go on from."""
        weights = {name: each.contiguous() for name, each in checkpoint["agent"].items()}
        self.journal.put(WEIGHTS, lambda path: save_file(weights, path))
        self.journal.put(CHECKPOINT, lambda path: torch.save(checkpoint, path))
        self.logs.save()
        self.loggers.save()
        self.journal.commit({"update": update + 1, "skipped": self._skipped, "finished": False})


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
