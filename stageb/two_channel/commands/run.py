"""What rank 0 does with the results of the ranks: record, log, commit, print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stageb.runs.figures import Curves, rounded
from stageb.runs.folder import METRICS
from stageb.store import disk
from stageb.training.run import CHECKPOINT, NOT_SHAPING, LearningRun
from stageb.two_channel.boxes import metrics
from stageb.two_channel.boxes.data import DetectorData
from stageb.two_channel.boxes.drawing import draw_all
from stageb.two_channel.commands.card import advise, write_card
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning.ranks import (
    BestWeights,
    Checkpoint,
    DetectedImages,
    DetectorRanks,
    StepResult,
)
from stageb.two_channel.learning.schedule import DetectorSchedule
from stageb.two_channel.learning.targets import summarise
from stageb.two_channel.model import model, stored

CURVES = Curves(
    step="step",
    axis="steps",
    panels=(
        ("loss/text", "cross-entropy of text"),
        ("loss/coordinates", "cross-entropy of coordinates"),
        ("rollout/f1", "F1 at IoU .50"),
        ("rollout/predicted_per_true", "objects told per true one"),
        ("packing/fill", "fill of packs"),
    ),
    tested={"rollout/f1": "val/f1_50"},
    apart="most probable tokens, val",
)


def make_row(
    schedule: DetectorSchedule,
    step: int,
    result: StepResult,
    skipped: int,
    val: DetectedImages | None,
    test: DetectedImages | None,
) -> dict[str, Any]:
    """The row of metrics.jsonl after a step; ``skipped`` is the number of skipped optimiser steps
    since the run began."""
    figures, channel = result.figures, schedule.channel(step)
    row: dict[str, Any] = {
        "step": step + 1,
        "epoch": schedule.epoch(step + 1),
        "stage2/channel_a": int(channel == "A"),
        "stage2/channel_b": int(channel == "B"),
        **{f"loss/{name}": value for name, value in figures.losses.items() if name != "mass"},
        "coordinates/mass": figures.losses["mass"],
        "grad_norm": figures.grad_norm,
        "learning_rate": schedule.learning_rate(step),
        "skipped": skipped,
        "samples": schedule.size(step),
        "set_aside": figures.set_aside,
        "packing/packs": figures.packs,
        "packing/tokens": figures.tokens,
        "packing/fill": figures.fill,
        **(summarise(result.outcomes) if result.outcomes else {}),
    }
    for part, each in (("val", val), ("eval", test)):
        if each:
            row |= {
                f"{part}/{name}": value
                for name, value in metrics.compute_figures(each.samples, each.detections).items()
            }
    return {
        name: value if isinstance(value, int) else rounded(value) for name, value in row.items()
    }


def summarise_times(result: StepResult, seconds: float) -> dict[str, float]:
    """The times of a step by their names in the logs: for each, that of the slowest rank;
    ``seconds`` is the whole step."""
    names = sorted({name for each in result.times for name in each if name != "rank"})
    slowest = {
        f"time/{name}": round(max(each.get(name, 0.0) for each in result.times), 3)
        for name in names
    }
    times = {"time/step_s": round(seconds, 3), **slowest}
    if result.outcomes and times.get("time/rollout_generate_s"):
        made = sum(each.tokens for each in result.outcomes)
        times["rollout/gen_tokens_per_s"] = round(made / times["time/rollout_generate_s"], 1)
    return times


def describe_losses(row: Mapping[str, Any], f1: float | None) -> str:
    """The losses of text and coordinates, and ``f1`` of the last rollouts, in a few words."""
    losses = (row["loss/text"], row["loss/coordinates"])
    said = " + ".join("none" if value is None else f"{value:.3f}" for value in losses)
    return f"loss {said}" if f1 is None else f"loss {said}, rollouts F1 {f1:.2f}"


def describe_evaluation(row: Mapping[str, Any], part: str = "eval") -> str:
    """The metrics on the test images, or on val, in a few words."""
    return (
        f"mAP {row[f'{part}/mAP']:.3f}, mAP50 {row[f'{part}/mAP50']:.3f}, F1 "
        f"{row[f'{part}/f1_50']:.3f}"
    )


PICTURE, CARD = "boxes.png", "README.md"
SPLITS = ("train", "val", "test")
# These may have moved; what they hold is in ``data_digest``.
FILES = ("data.images", *(f"data.{split}{kind}" for split in SPLITS for kind in ("", "_images")))


@dataclass(frozen=True)
class DetectorStart:
    """Where a run starts or resumes."""

    done: int  # steps
    model: str  # folder or name of the checkpoint that it started from
    checkpoint: str | None  # the file to resume from; None: from the beginning
    ended: bool  # whether no step is left


@dataclass(frozen=True)
class ValOutcome:
    """The consequences of a step's evaluation on val."""

    ends: bool  # whether the step was the last
    best: BestWeights | None  # the best weights on val, if they are not those after this step


class DetectorRun(LearningRun):
    """The state of a run on rank 0, and all that is written and printed about it."""

    config: TwoChannelConfig
    schedule: DetectorSchedule  # from ``ready`` on
    curves, unit = CURVES, "step"
    not_shaping = (*NOT_SHAPING, *FILES, "evaluation.pictures")
    packages = ("torch", "lightning", "transformers", "peft")

    def __init__(
        self,
        config: TwoChannelConfig,
        inputs: DetectorData,
        resolved_yaml: str,
        facts: Mapping[str, Any],
    ) -> None:
        """``facts`` describe the machine."""
        super().__init__(resolved_yaml, facts)
        self.config, self.inputs = config, inputs
        self.folder = config.output.folder
        self._skipped = 0  # steps of the optimiser, since the run began
        # best on val: step, F1, threshold; evaluations since F1 rose
        self._best: dict[str, Any] | None = None
        self._f1: float | None = None  # of the last rollouts
        self._tested: float | None = None  # F1 on test

    def shaping(self) -> Mapping[str, Any]:
        """See ``LearningRun``."""
        return {"data_digest": self.inputs.digest}

    def result(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        place = f"{self.config.output}/{stored.BEST if self.config.data.val else stored.MODEL}"
        tested = f"; on the test images {describe_evaluation(row)}" if "eval/mAP" in row else ""
        hindered = (
            f"; {advice}"
            if (advice := advise(self.inputs, self.journal.rows(METRICS), row))
            else ""
        )
        done = self._state("step", 0)
        steps = f"{row['step']} of {done}" if row["step"] < done else str(done)
        return (
            f"{steps} steps, {row['epoch']:.1f} epochs{tested}{hindered}; the checkpoint: {place}"
        )

    def begin(self, fresh: bool) -> DetectorStart | None:
        """Open the folder, and create the small model if no checkpoint is named. None if the run is
        finished."""
        if self.is_finished(fresh):
            return None
        done, path = self._open(fresh), self.journal.path(CHECKPOINT)
        self._skipped, self._best = self._state("skipped", 0), self._state("best", None)
        self._describe({})
        named = self.config.model.model_name_or_path
        if named is None:
            base = self.folder / stored.BASE
            stored.clear(base)
            with disk.reporting(base):
                model.make_small(
                    base, self.config.model.small, self.inputs.descs, self.config.answer.box_first
                )
            named = str(base)
        return DetectorStart(done, named, str(path) if path else None, self._ends(done))

    def ready(self, ranks: DetectorRanks, done: int) -> None:
        """Called once ``ranks`` have loaded their models; ``done`` steps are done."""
        self.schedule, aside = ranks.schedule, ranks.aside
        self._size = sum(weight.numel() for weight in ranks.reader.model.parameters())
        for name in (stored.MODEL, stored.BEST) if self.inputs.val else (stored.MODEL,):
            with disk.reporting(self.folder):
                ranks.describe(self.folder / name)
        stored.write_indexes(self.journal)
        also = (
            [
                f"{len(aside)} samples are longer than packing.max_length and set aside: "
                f"{', '.join(aside)}"
            ]
            if aside
            else []
        ) + self.inputs.shared
        images = (
            f"{self.schedule.samples:,} images, channels {' '.join(self.config.schedule.pattern)}"
        )
        self._show(self.schedule.steps, done, f"{self.schedule.steps:,} steps over {images}", also)

    def choose(self, step: int, val: DetectedImages | None) -> ValOutcome:
        """Whether the weights after ``step`` are the best on ``val`` so far, and whether the run
        ends here."""
        if val:
            told = [each.objects for each in val.detections]
            f1 = metrics.measure_f1(val.samples, told)["f1_50"]
            before = self._best or {"f1_50": -1.0, "since": 0}
            since = 0 if f1 > before["f1_50"] else before["since"] + 1
            # of equals the last, which has learnt longest; to patience it is no better
            if f1 >= before["f1_50"]:
                threshold = metrics.choose_threshold(val.samples, val.detections)
                self._best = {"step": step + 1, "f1_50": f1, "since": since, "threshold": threshold}
            else:
                self._best = {**before, "since": since}
        ends, best = self._ends(step + 1), None
        if self._best and self._best["step"] <= step:
            best = BestWeights(
                str(self.journal.path(stored.weights_in(stored.BEST))), self._best["step"]
            )
        return ValOutcome(ends, best)

    def record(
        self, step: int, result: StepResult, val: DetectedImages | None, test: DetectedImages | None
    ) -> None:
        """Record the result of a step; on rank 0 it has the rollouts and the times of all ranks."""
        self._skipped += int(result.figures.skipped)
        row, times = (
            make_row(self.schedule, step, result, self._skipped, val, test),
            summarise_times(result, self._lap()),
        )
        self._add(row, times, {**times, "ranks": result.times})
        self._f1, self._tested = row.get("rollout/f1", self._f1), row.get("eval/f1_50")
        loss = describe_losses(row, self._f1)
        said = [f"val {describe_evaluation(row, 'val')}"] if val else []
        said += [f"evaluated: {describe_evaluation(row)}"] if test else []
        line = f"{'; '.join(said) or loss}, {times['time/step_s']:.2f} s"
        self.progress.show_row(step + 1, loss, worth_a_line=bool(said), line=line)
        if test and self.config.evaluation.pictures:
            shown = test.samples[: self.config.evaluation.pictures]
            draw_all(shown, test.detections, self.config.channel_b.min_iou, self.folder / PICTURE)
        if self._ends(step + 1) and not self._is_over and step + 1 < self.schedule.steps:
            patience = self.config.evaluation.patience
            self.progress.tells(
                f"val F1 has not risen for {patience} evaluations: ended after step {step + 1}"
            )

    def commit(self, step: int, checkpoint: Checkpoint) -> None:
        """Commit: from now on the run resumes here."""
        is_best = self._best is not None and self._best["step"] == step + 1
        for name in (stored.MODEL, stored.BEST) if is_best else (stored.MODEL,):
            self.journal.put(
                stored.weights_in(name), lambda path: stored.write_weights(checkpoint.weights, path)
            )
        f1 = self._best["f1_50"] if self._best else self._tested
        state = {"skipped": self._skipped, "best": self._best, "categories": self.inputs.descs}
        self._commit(step + 1, checkpoint.learner, **state, f1_50=f1)
        stored.write_indexes(self.journal)

    def end(self) -> None:
        """See ``LearningRun``."""
        stored.clear(self.folder / stored.BASE)
        rows = self.journal.rows(METRICS)
        self.journal.replace(
            CARD, write_card(self.config, self.inputs, rows, self._best, self._size)
        )
        super().end()

    def _ends(self, done: int) -> bool:
        """Whether the run ends when ``done`` steps are done."""
        patience = self.config.evaluation.patience
        stops = bool(patience and self._best and self._best["since"] >= patience)
        return done >= self.config.schedule.steps or self._is_over or stops
