"""What rank 0 does with the results of the ranks: record, log, commit, print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stageb.runs.run import METRICS
from stageb.store import disk
from stageb.training.run import CHECKPOINT, NOT_SHAPING, LearningRun
from stageb.two_channel.boxes import metrics
from stageb.two_channel.boxes.augmentation import NOISE
from stageb.two_channel.boxes.data import Inputs
from stageb.two_channel.commands import card
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning import evaluate
from stageb.two_channel.learning.ranks import BestWeights, Checkpoint, Evaluation, Ranks, StepResult
from stageb.two_channel.learning.rows import VIEW, make_row, summarise_times
from stageb.two_channel.learning.schedule import Schedule
from stageb.two_channel.model import model, stored


def describe_start(config: TwoChannelConfig, schedule: Schedule, done: int) -> str:
    """The first line, when ``done`` steps are done."""
    place = f"{config.output.root}/{config.output.run_name}"
    if done:
        return f"{place}: resuming after {done} of {schedule.steps} steps"
    images = f"{schedule.samples:,} images, channels {' '.join(config.schedule.pattern)}"
    return f"{place}: {schedule.steps:,} steps over {images}"


def describe_losses(row: Mapping[str, Any], f1: float | None) -> str:
    """The losses of text and coordinates, and ``f1`` of the last rollouts, in a few words."""
    losses = (row["loss/text"], row["loss/coordinates"])
    said = " + ".join("none" if value is None else f"{value:.3f}" for value in losses)
    return f"loss {said}" if f1 is None else f"loss {said}, rollouts F1 {f1:.2f}"


def describe_evaluation(row: Mapping[str, Any], part: str = "eval") -> str:
    """The metrics on the test images, or on val, in a few words."""
    return f"mAP {row[f'{part}/mAP']:.3f}, mAP50 {row[f'{part}/mAP50']:.3f}, F1 {row[f'{part}/f1_50']:.3f}"


def describe_result(row: Mapping[str, Any], config: TwoChannelConfig) -> str:
    """The result of the run whose last row is ``row``."""
    place = f"{config.output.root}/{config.output.run_name}/{stored.BEST if config.data.val else stored.MODEL}"
    found = f"; on the test images {describe_evaluation(row)}" if "eval/mAP" in row else ""
    return f"{row['step']} steps, {row['epoch']:.1f} epochs{found}; the checkpoint: {place}"


PICTURE, CARD = "boxes.png", "README.md"
FILES = ("data.train", "data.val", "data.test", "data.images")  # may have moved; what they hold is in ``data_digest``


@dataclass(frozen=True)
class Start:
    """Where a run starts or resumes."""

    done: int  # steps
    model: str  # folder or name of the checkpoint that it started from
    checkpoint: str | None  # the file to resume from; None: from the beginning
    ended: bool  # whether no step is left


@dataclass(frozen=True)
class Choice:
    """The consequences of a step's evaluation on val."""

    ends: bool  # whether the step was the last
    best: BestWeights | None  # the best weights on val, if they are not those after this step


class Run(LearningRun):
    """The state of a run on rank 0, and all that is written and printed about it."""

    config: TwoChannelConfig
    schedule: Schedule  # from ``ready`` on
    view, unit = VIEW, "step"
    not_shaping = (*NOT_SHAPING, *FILES, "evaluation.pictures", "topology.rollout", "topology.learn")  # but for rounding
    packages = ("torch", "lightning", "transformers", "peft")

    def __init__(self, config: TwoChannelConfig, inputs: Inputs, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` describe the machine."""
        super().__init__(resolved_yaml, facts)
        self.config, self.inputs = config, inputs
        self.folder = config.output.folder
        self._skipped = 0  # steps of the optimiser, since the run began
        self._best: dict[str, Any] | None = None  # best on val: step, F1, threshold, number of evaluations since
        self._f1: float | None = None  # of the last rollouts

    def shaping(self) -> Mapping[str, Any]:
        """See ``LearningRun``."""
        return {"data_digest": self.inputs.digest}

    def result(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        return describe_result(row, self.config)

    def begin(self, fresh: bool) -> Start | None:
        """Open the folder, and create the small model if no checkpoint is named. None if the run is finished."""
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
                answer = self.config.answer
                descs = [*self.inputs.descs, *([NOISE] if answer.object_budget else [])]
                model.make_small(base, self.config.model.small, descs, answer.box_first)
            named = str(base)
        return Start(done, named, str(path) if path else None, self._ends(done))

    def ready(self, ranks: Ranks, done: int) -> None:
        """Called once ``ranks`` have loaded their models; ``done`` steps are done."""
        self.schedule, aside = ranks.schedule, ranks.aside
        self._size = sum(weight.numel() for weight in ranks.reader.model.parameters())
        for name in (stored.MODEL, stored.BEST) if self.inputs.val else (stored.MODEL,):
            stored.sweep(self.folder / name)
            with disk.reporting(self.folder):
                ranks.describe(self.folder / name)
        self._index()
        also = (
            [f"{len(aside)} samples are longer than packing.max_length and set aside: {', '.join(aside)}"] if aside else []
        ) + self.inputs.shared
        self._show(self.schedule.steps, done, describe_start(self.config, self.schedule, done), also)

    def choose(self, step: int, val: Evaluation | None) -> Choice:
        """Whether the weights after ``step`` are the best on ``val`` so far, and whether the run ends here."""
        if val:
            pairs = zip(val.samples, val.detections, strict=True)
            f1 = metrics.compute_f1([metrics.count_matches(sample, told.objects) for sample, told in pairs])["f1_50"]
            if self._best is None or f1 > self._best["f1_50"]:
                threshold = metrics.choose_threshold(val.samples, val.detections)
                self._best = {"step": step + 1, "f1_50": f1, "since": 0, "threshold": threshold}
            else:
                self._best = {**self._best, "since": self._best["since"] + 1}
        ends, best = self._ends(step + 1), None
        if self._best and self._best["step"] <= step:
            best = BestWeights(str(self.journal.path(stored.weights_in(stored.BEST))), self._best["step"])
        return Choice(ends, best)

    def record(self, step: int, result: StepResult, val: Evaluation | None, test: Evaluation | None) -> None:
        """Record the result of a step; on rank 0 it has the rollouts and the times of all ranks."""
        self._skipped += int(result.figures is not None and result.figures.skipped)
        row, times = make_row(self.schedule, step, result, self._skipped, val, test), summarise_times(result, self._lap())
        self._add(row, times, {**times, "ranks": result.times})
        self._f1 = row.get("rollout/f1", self._f1)
        loss = describe_losses(row, self._f1)
        said = [f"val {describe_evaluation(row, 'val')}"] if val else []
        said += [f"evaluated: {describe_evaluation(row)}"] if test else []
        line = f"{'; '.join(said) or loss}, {times['time/step_s']:.2f} s"
        self.progress.recorded(step + 1, loss, worth_a_line=bool(said), line=line)
        if test and self.config.evaluation.pictures:
            shown = test.samples[: self.config.evaluation.pictures]
            evaluate.draw(shown, test.detections, self.config.channel_b.min_iou, self.folder / PICTURE)
        if self._ends(step + 1) and step + 1 < self.schedule.steps:
            patience = self.config.evaluation.patience
            self.progress.tells(f"val F1 has not risen for {patience} evaluations: ended after step {step + 1}")

    def commit(self, step: int, checkpoint: Checkpoint) -> None:
        """Commit: from now on the run resumes here."""
        is_best = self._best is not None and self._best["step"] == step + 1
        for name in (stored.MODEL, stored.BEST) if is_best else (stored.MODEL,):
            self.journal.put(stored.weights_in(name), lambda path: stored.write_weights(checkpoint.weights, path))
        state = {"skipped": self._skipped, "best": self._best, "categories": self.inputs.descs}
        self._commit(step + 1, checkpoint.state, **state)
        self._index()

    def end(self) -> None:
        """See ``LearningRun``."""
        stored.clear(self.folder / stored.BASE)
        rows = self.journal.rows(METRICS)
        self.journal.replace(CARD, card.write_card(self.config, self.inputs, rows, self._best, self._size))
        super().end()

    def _index(self) -> None:
        """Update the index files of the checkpoints' folders, which name their newest weights."""
        for name in (stored.MODEL, stored.BEST):
            if path := self.journal.path(stored.weights_in(name)):
                self.journal.replace(stored.index_in(name), stored.make_index(path))

    def _ends(self, done: int) -> bool:
        """Whether the run ends when ``done`` steps are done."""
        patience = self.config.evaluation.patience
        return done >= self.config.schedule.steps or bool(patience and self._best and self._best["since"] >= patience)
