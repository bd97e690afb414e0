"""What rank 0 does with what the ranks bring: record, log, commit, say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stageb.store import disk
from stageb.training.run import CHECKPOINT, NOT_SHAPING, LearningRun
from stageb.two_channel import evaluate, model, progress, stored
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.inputs import Inputs
from stageb.two_channel.ranks import Checkpoint, Evaluation, Ranks, StepResult
from stageb.two_channel.rows import VIEW, row_of, times_of
from stageb.two_channel.schedule import Schedule

PICTURE = "boxes.png"


@dataclass(frozen=True)
class Start:
    """Where a run goes on from."""

    done: int  # steps
    model: str  # folder or name of the checkpoint that it began with
    checkpoint: str | None  # the file to go on from; None: from the beginning


class Run(LearningRun):
    """One run: where it stands, and what is written and said of it."""

    config: TwoChannelConfig
    schedule: Schedule  # from ``ready`` on
    view, unit = VIEW, "step"
    not_shaping = (*NOT_SHAPING, "data.", "evaluation.pictures", "topology.rollout", "topology.learn")  # but for rounding
    packages = ("torch", "lightning", "transformers", "peft")

    def __init__(self, config: TwoChannelConfig, inputs: Inputs, resolved_yaml: str, facts: Mapping[str, Any]) -> None:
        """``facts`` are of the machine."""
        super().__init__(resolved_yaml, facts)
        self.config, self.inputs = config, inputs
        self.folder = config.output.folder
        self._skipped = 0  # steps of the optimiser, since the run began
        self._f1: float | None = None  # of the last rollouts

    def shaping(self) -> Mapping[str, Any]:
        """See ``LearningRun``."""
        return {"data_digest": self.inputs.digest}

    def result(self, row: Mapping[str, Any]) -> str:
        """See ``LearningRun``."""
        return progress.result(row, self.config)

    def begin(self, fresh: bool) -> Start | None:
        """Open the folder, and make the small model where none is named; None where nothing is left to do."""
        if self.is_finished(fresh):
            return None
        done, path = self._open(fresh), self.journal.path(CHECKPOINT)
        self._skipped = self._state("skipped", 0)
        self._describe({})
        named = self.config.model.model_name_or_path
        if named is None:
            base = self.folder / stored.BASE
            stored.clear(base)
            with disk.reporting(base):
                model.make(base, self.config.model.small, self.inputs.descs)
            named = str(base)
        return Start(done, named, str(path) if path else None)

    def ready(self, ranks: Ranks, done: int) -> None:
        """``ranks`` are; ``done`` steps lie behind."""
        self.schedule, aside = ranks.schedule, ranks.aside
        stored.sweep(self.folder / stored.MODEL)
        with disk.reporting(self.folder):
            ranks.describe(self.folder / stored.MODEL)
        self._index()
        also = (
            [f"{len(aside)} samples are longer than packing.max_length and set aside: {', '.join(aside)}"] if aside else []
        )
        self._show(self.schedule.steps, done, progress.opening(self.config, self.schedule, done), also)

    def record(self, step: int, result: StepResult, evaluation: Evaluation | None) -> None:
        """Write down what a step came to; on rank 0 ``result`` holds all ranks' rollouts and times."""
        self._skipped += int(result.figures is not None and result.figures.skipped)
        row, times = row_of(self.schedule, step, result, self._skipped, evaluation), times_of(result, self._lap())
        self._add(row, times, {**times, "ranks": result.times})
        self._f1 = row.get("rollout/f1", self._f1)
        loss = progress.figures(row, self._f1)
        line = f"{f'evaluated: {progress.tested(row)}' if evaluation else loss}, {times['time/step_s']:.2f} s"
        self.progress.recorded(step + 1, loss, worth_a_line=evaluation is not None, line=line)
        if evaluation and step + 1 == self.schedule.steps and self.config.evaluation.pictures:
            shown = evaluation.samples[: self.config.evaluation.pictures]
            evaluate.draw(shown, evaluation.detections, self.config.channel_b.min_iou, self.folder / PICTURE)

    def commit(self, step: int, checkpoint: Checkpoint) -> None:
        """Make this the point to go on from."""
        self.journal.put(stored.WEIGHTS, lambda path: stored.put(checkpoint.weights, path))
        self._commit(step + 1, checkpoint.state, skipped=self._skipped)
        self._index()

    def end(self) -> None:
        """See ``LearningRun``."""
        stored.clear(self.folder / stored.BASE)
        super().end()

    def _index(self) -> None:
        """Have the checkpoint's folder say where its newest weights lie."""
        if path := self.journal.path(stored.WEIGHTS):
            self.journal.replace(stored.INDEX, stored.make_index(path))
