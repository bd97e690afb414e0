"""What rank 0 does with what the ranks bring: learn, record, log, commit, say.

A ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from safetensors.torch import save_file

from stageb.growth import progress, rows
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import Snapshot, snapshot_of
from stageb.growth.learner import Learner, Played
from stageb.growth.ranks import Round
from stageb.growth.schedule import Schedule
from stageb.growth.stored import WEIGHTS
from stageb.runs import run
from stageb.runs.figures import rounded, short
from stageb.runs.logs import View
from stageb.runs.progress import Plan, finished_already
from stageb.runs.run import METRICS, LearningRun
from stageb.training.ppo import Figures
from stageb.training.schedules import entropy_weight, learning_rate

EPISODES = "episodes.jsonl"
CHECKPOINT = "checkpoint.pt"
NOT_SHAPING = ("output.", "fabric.", "log.", "log_level", "loggers")  # keys that change no result
VIEW = View(rows.CURVES, rows.GROUPS)


class Run(LearningRun):
    """One run: where it stands, and what is written and said of it."""

    config: GrowthConfig

    def __init__(self, config: GrowthConfig, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` are of the machine."""
        self.config, self.schedule = config, Schedule(config)
        self.learner: Learner | None = None  # from when it begins on, where the controller learns
        self._yaml, self._facts = resolved_yaml, facts
        self._so_far = {"flops": 0.0, "skipped": 0}  # since the run began
        self._since = time.monotonic()  # when the last update ended
        self._figures: Figures | None = None  # what was learnt in it
        self._learn_s = 0.0  # that this took

    # Beginning and end

    def finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run, finished: then its result is shown again."""
        if fresh or not run.is_finished(self.config.output.folder):
            return False
        self._open(False)
        finished_already(self.config.output, progress.result(self.journal.rows(METRICS)[-1]))
        return True

    def begin(self, fresh: bool, places: Sequence[str]) -> tuple[int, Snapshot]:
        """Open the folder; how many updates are done, and what decides in the next. ``places`` are the ranks' devices."""
        self._open(fresh)
        state, path = self.journal.state, self.journal.path(CHECKPOINT)
        done = state["update"] if state else 0
        if state:
            self._so_far = state["so_far"]
        if self.config.growth.controller == "ppo":
            self.learner = Learner(self.config, places[0])
        if self.learner and path:
            self.learner.load(torch.load(path, map_location="cpu", weights_only=True))
        shares = self.schedule.shares(len(places))
        ranks = [{"device": place, "environments": share} for place, share in zip(places, shares, strict=True)]
        run.describe(self.journal, self._yaml, ("torch", "lightning"), {**self._facts, "ranks": ranks})
        held = self.journal.rows(METRICS)
        opening = progress.opening(self.config, self.schedule, done, held[-1] if held else None)
        also = progress.describe_assignment(places, shares, self.config.growth.block)
        if self.config.growth.ddp and len(places) > 1:
            also.append("growth.ddp: all ranks train each of these together")
        self._show(VIEW, Plan("update", self.schedule.updates, done), opening, also)
        self._since = time.monotonic()
        return done, self._snapshot()

    def end(self) -> None:
        """Nothing is left to do: draw, and say what came of it."""
        self.progress.tells(progress.result(self._end()))

    def _open(self, fresh: bool) -> None:
        precision = self.config.fabric.precision
        mixed = precision if precision in ("bf16-mixed", "16-mixed") else "32"
        shaping = {**asdict(self.config), "precision": mixed}
        self.journal = run.open_journal(self.config.output, shaping, NOT_SHAPING, fresh)

    # Updates

    def learn(self, update: int, played: Round) -> Snapshot:
        """Learn from an update's episodes, if anything learns; what decides in the next."""
        begun = time.monotonic()
        if self.learner:
            self._figures = self.learner.learn(Played.joined(played.played), update, self.schedule.done(update))
        self._learn_s = round(time.monotonic() - begun, 3)
        return self._snapshot()

    def record(self, update: int, played: Round, tested: Round | None) -> None:
        """Write down what an update came to, episode by episode and on average."""
        done, growth, ppo = self.schedule.done(update), self.config.growth, self.config.ppo
        flops, skipped = sum(each.flops for each in played.ended), sum(each.skipped for each in played.ended)
        self._so_far = {"flops": self._so_far["flops"] + flops, "skipped": self._so_far["skipped"] + skipped}
        row = {
            "update": update + 1,
            "episodes": (update + 1) * growth.environments,
            **rows.averages(played.ended),
            "flops": rounded(flops),
            "flops_so_far": rounded(self._so_far["flops"]),
            "host_skipped_so_far": self._so_far["skipped"],
            **rows.of_learning(asdict(self._figures) if self._figures else None),
            "learning_rate": rounded(learning_rate(ppo, done)) if self.learner else None,
            "entropy_weight": rounded(entropy_weight(ppo, done)) if self.learner else None,
            "eval/episodes": len(tested.ended) if tested else 0,
            **rows.averages(tested.ended if tested else (), "eval/"),
        }
        blueprints = self.config.host.blueprints
        self.journal.append(EPISODES, [rows.of_episode(update, each, blueprints) for each in played.ended])
        now = time.monotonic()
        seconds = max(1e-9, now - self._since)
        times = {"time/episodes_per_s": round(growth.environments / seconds, 2)}
        self._since = now
        took = {"seconds": round(seconds, 3), "learn_s": self._learn_s}
        self._add(row, times, {"update": update + 1, **took, **times, "ranks": played.ranks})
        said = f"{progress.figures(row)}, {short(times['time/episodes_per_s'])} episodes/s"
        self.progress.recorded(update + 1, said, worth_a_line=tested is not None)

    def commit(self, update: int) -> None:
        """Make this the point to go on from."""
        if self.learner:
            learner = self.learner
            self.journal.put(WEIGHTS, lambda path: save_file(snapshot_of(learner), path))
            self.journal.put(CHECKPOINT, lambda path: torch.save(learner.state(), path))
        self._commit({"update": update + 1, "so_far": self._so_far})

    def _snapshot(self) -> Snapshot:
        return snapshot_of(self.learner) if self.learner else {}
