"""What rank 0 does with what the ranks bring: record, log, commit, say.

A ``Run`` stands on every rank, and its methods are called on rank 0 alone (``World.lead``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from stageb.runs import run
from stageb.runs.curves import Curves
from stageb.runs.figures import rounded
from stageb.runs.logs import View
from stageb.runs.progress import Plan, finished_already
from stageb.runs.run import METRICS, LearningRun
from stageb.store import disk
from stageb.two_channel import evaluate, metrics, model, progress, stored
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.correct import summary
from stageb.two_channel.inputs import Inputs
from stageb.two_channel.ranks import Came, Checkpoint, Ranks, Tested
from stageb.two_channel.schedule import Schedule

CHECKPOINT = "checkpoint.pt"
PICTURE = "boxes.png"
CURVES = Curves(
    step="step",
    axis="steps",
    panels=(
        ("loss/text", "cross-entropy of text"),
        ("loss/coordinates", "cross-entropy of coordinates"),
        ("loss/giou", "1 - GIoU"),
        ("rollout/f1", "F1 at IoU .50"),
        ("rollout/predicted_per_true", "objects told per true one"),
        ("packing/fill", "fill of packs"),
    ),
    tested={"rollout/f1": "eval/f1_50"},
    apart="most probable tokens, held-out images",
)
VIEW = View(CURVES)
NOT_SHAPING = (
    *("output.", "fabric.", "log.", "log_level", "loggers", "data.", "evaluation.pictures"),
    *("topology.rollout", "topology.learn"),
)  # keys that change no weights, but for rounding


class Run(LearningRun):
    """One run: where it stands, and what is written and said of it."""

    config: TwoChannelConfig
    schedule: Schedule  # from ``ready`` on

    def __init__(self, config: TwoChannelConfig, inputs: Inputs, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` are of the machine."""
        self.config, self.inputs = config, inputs
        self.folder = config.output.folder
        self._yaml, self._facts = resolved_yaml, facts
        self._skipped = 0  # steps of the optimiser, since the run began
        self._f1: float | None = None  # of the last rollouts
        self._since = time.monotonic()  # when the last row was written

    # Beginning and end

    def finished(self, fresh: bool) -> bool:
        """Whether the folder holds this run, finished: then its result is shown again."""
        if fresh or not run.is_finished(self.config.output.folder):
            return False
        self._open(False)
        finished_already(self.config.output, progress.result(self.journal.rows(METRICS)[-1], self.config))
        return True

    def begin(self, fresh: bool) -> tuple[int, str | None, str]:
        """Open the folder: how many steps are done, the file to go on from (None before the first commit), and the folder
        or name of the checkpoint to begin with."""
        self._open(fresh)
        state, path = self.journal.state, self.journal.path(CHECKPOINT)
        self._skipped = state["skipped"] if state else 0
        run.describe(self.journal, self._yaml, ("torch", "lightning", "transformers", "peft"), self._facts)
        named = self.config.model.model_name_or_path
        if named is None:
            base = self.folder / stored.BASE
            stored.clear(base)
            with disk.reporting(base):
                model.make(base, self.config.model.small, self.inputs.descs)
            named = str(base)
        return state["step"] if state else 0, str(path) if path else None, named

    def ready(self, ranks: Ranks, done: int) -> None:
        """``ranks`` are; ``done`` steps lie behind."""
        self.schedule, aside = ranks.schedule, ranks.aside
        with disk.reporting(self.folder):
            ranks.describe(self.folder / stored.MODEL)
        self._index()
        also = []
        if aside:
            also.append(f"{len(aside)} samples are longer than packing.max_length and set aside: {', '.join(aside)}")
        plan = Plan("step", self.schedule.steps, done)
        self._show(VIEW, plan, progress.opening(self.config, self.schedule, done), also)
        self._since = time.monotonic()

    def end(self) -> None:
        """Nothing is left to do: say what came of it."""
        stored.clear(self.folder / stored.BASE)
        self.progress.tells(progress.result(self._end(), self.config))

    def _open(self, fresh: bool) -> None:
        precision = self.config.fabric.precision
        read = {"data_digest": self.inputs.digest, "precision": "bf16-mixed" if precision == "bf16-mixed" else "32"}
        self.journal = run.open_journal(self.config.output, {**asdict(self.config), **read}, NOT_SHAPING, fresh)

    # Steps

    def record(self, step: int, came: Came, tested: Tested | None) -> None:
        """Write down what a step came to; on rank 0 ``came`` holds all ranks' rollouts and times."""
        figures = came.figures
        assert figures  # rank 0 learns
        self._skipped += figures.skipped
        channel = self.schedule.channel(step)
        found = metrics.figures(tested.samples, tested.told) if tested else {}
        row: dict[str, Any] = {
            "step": step + 1,
            "epoch": self.schedule.epoch(step + 1),
            "stage2/channel_a": int(channel == "A"),
            "stage2/channel_b": int(channel == "B"),
            **{f"loss/{name}": value for name, value in figures.losses.items() if name != "mass"},
            "coordinates/mass": figures.losses["mass"],
            "grad_norm": figures.grad_norm,
            "learning_rate": self.schedule.learning_rate(step),
            "skipped": self._skipped,
            "samples": self.schedule.size(step),
            "set_aside": figures.set_aside,
            "packing/packs": figures.packs,
            "packing/tokens": figures.tokens,
            "packing/fill": figures.fill,
            **(summary(came.outcomes) if came.outcomes else {}),
            **{f"eval/{name}": value for name, value in found.items()},
        }
        row = {name: value if isinstance(value, int) else rounded(value) for name, value in row.items()}
        now = time.monotonic()
        times = {"time/step_s": round(now - self._since, 3), **_tails(came.times)}
        if came.outcomes and times.get("time/rollout_generate_s"):
            made = sum(each.tokens for each in came.outcomes)
            times["rollout/gen_tokens_per_s"] = round(made / times["time/rollout_generate_s"], 1)
        self._since = now
        self._add(row, times, {"step": step + 1, **times, "ranks": came.times})
        self._f1 = row.get("rollout/f1", self._f1)
        loss = progress.figures(row, self._f1)
        said = f"evaluated: {progress.tested(row)}" if tested else loss
        line = f"{said}, {times['time/step_s']:.2f} s"
        self.progress.recorded(step + 1, loss, worth_a_line=tested is not None, line=line)
        if tested and step + 1 == self.schedule.steps and self.config.evaluation.pictures:
            shown = tested.samples[: self.config.evaluation.pictures]
            evaluate.draw(shown, tested.told, self.config.channel_b.min_iou, self.folder / PICTURE)

    def commit(self, step: int, checkpoint: Checkpoint) -> None:
        """Make this the point to go on from."""
        self.journal.put(stored.WEIGHTS, lambda path: stored.put(checkpoint.weights, path))
        self.journal.put(CHECKPOINT, lambda path: torch.save(checkpoint.state, path))
        self._commit({"step": step + 1, "skipped": self._skipped})
        self._index()

    def _index(self) -> None:
        """Have the checkpoint's folder say where its newest weights lie."""
        if path := self.journal.path(stored.WEIGHTS):
            self.journal.replace(stored.INDEX, stored.index_of(path))


def _tails(times: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of every time the slowest rank's, by the names that records use."""
    names = sorted({name for each in times for name in each if name != "rank"})
    return {f"time/{name}": round(max(each.get(name, 0.0) for each in times), 3) for name in names}
