"""What every rank does for the loop: answer its share of the images, train on its share of the
packs, and gather results.

All ranks must call these methods, in the same order. Only rank 0 decides and writes: ``run.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from stageb.config import require
from stageb.engines.protocol import Decode
from stageb.errors import InputError, StagebError
from stageb.job.world import World
from stageb.training import run
from stageb.two_channel.boxes import text
from stageb.two_channel.boxes.augmentation import make_view
from stageb.two_channel.boxes.data import DetectorData, list_keys
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning.detect import detect_on_ranks
from stageb.two_channel.learning.learner import DetectorLearner, PlannedStep, StepFigures
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.learning.schedule import DetectorSchedule
from stageb.two_channel.learning.targets import (
    Correction,
    correct_rollout,
    count_totals,
    make_true_target,
)
from stageb.two_channel.model import model
from stageb.two_channel.model.stored import sweep
from stageb.two_channel.types import DetectorRollout, Sample, Target

Example = tuple[Sample, Target]

# steps to plan ahead: the images of one are decoded while the pack of the one before it is made
AHEAD = 2


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    figures: StepFigures
    outcomes: list[Correction]  # of all rollouts; empty in a step of channel A
    times: list[dict[str, float]]  # for every rank, seconds by phase


@dataclass(frozen=True)
class DetectedImages:
    """The detections of the model in some images."""

    samples: Sequence[Sample]
    detections: Sequence[Detections]


@dataclass(frozen=True)
class BestWeights:
    """The weights that were best on val, as committed."""

    path: str
    step: int  # how many steps they were trained for


@dataclass(frozen=True)
class Checkpoint:
    """All that a run resumes from; empty except on rank 0."""

    weights: dict[str, Tensor]  # of the exported checkpoint, on the CPU
    learner: dict[str, Any]  # its state


class DetectorRanks:
    """The ranks of a run, as the loop sees them."""

    def __init__(
        self, config: TwoChannelConfig, inputs: DetectorData, world: World, folder: str
    ) -> None:
        """``folder`` is the folder or the hub name of the checkpoint to start from."""
        self.config, self.inputs, self.world = config, inputs, world
        run.keep_freed(world.device)
        # a resumed run must leave the same bytes as an uninterrupted one
        torch.backends.cudnn.deterministic = True
        self.reader = model.load(folder, config, inputs.descs, world.device, answers=True)
        learning = model.load(folder, config, inputs.descs, world.device)
        text.check_descs(inputs.train, self.reader.spelling)
        self.train, self.aside = self._fitting(inputs.train)
        self.reader.eyes.sources = [sample.image for sample in self.train]
        learning.eyes.share(self.reader.eyes)
        self.schedule = DetectorSchedule(config, len(self.train))
        self.writer = Writer(self.reader)
        # of steps that are learnt, planned, or answered
        self.samples = lru_cache(4 + AHEAD)(self._samples)
        self.truth = lru_cache(4 + AHEAD)(
            lambda step: [(sample, self._true(sample)) for sample in self.samples(step)]
        )
        self.totals = lru_cache(4 + AHEAD)(
            lambda step: count_totals(target for _, target in self.truth(step))
        )
        self.learner = DetectorLearner(world, learning, config)
        self._next = ThreadPoolExecutor(1, "stageb-next-step")
        self._plans: dict[int, PlannedStep] = {}  # of steps to come
        self._outcomes: list[Correction] = []  # of the current step
        self._times: dict[str, float] = {}  # seconds of the current step by phase
        self._drawn_s = 0.0  # seconds of the current step: waiting for targets

    def take_up(self, path: str | None) -> None:
        """Resume from a checkpoint's file; None: start from the beginning."""
        if path:
            self.learner.take_up(torch.load(path, map_location="cpu", weights_only=True))

    # A step

    def _samples(self, step: int) -> list[Sample]:
        """The images of a step, each in its own random view if ``augmentation`` asks for it."""
        views, done = self.config.augmentation, self.schedule.done(step)
        return [
            make_view(
                self.train[place], self.schedule.view_key(step, number), views, done, self.train
            )
            for number, place in enumerate(self.schedule.chosen(step))
        ]

    def targets(self, step: int) -> Iterable[Example]:
        """The training targets of a step."""
        return (
            self.truth(step)
            if self.schedule.channel(step) == "A"
            else self.corrected(self.rollouts(step))
        )

    def _true(self, sample: Sample) -> Target:
        return make_true_target(text.list_true_objects(sample), self.reader.spelling)

    def rollouts(self, step: int) -> Iterator[tuple[Sample, DetectorRollout]]:
        """Channel B: the images of a step with the model's answers. Every rank writes its share,
        and gets all."""
        self._refresh(step)
        samples, channel = self.samples(step), self.config.channel_b
        decode_by = Decode(
            channel.temperature, channel.top_p, max_new_tokens=channel.max_new_tokens
        )
        with self.world.at(f"rollout of step {step}"), self._timed("rollout_generate_s"):
            mine = self.world.share(samples)
            made = self.writer.write(
                mine, [self.schedule.key(step, each.key) for each in mine], decode_by
            )
        with self._timed("wait_s"):
            parts = self.world.collect([[each.ids, each.ended, each.version] for each in made])
        rows = self.world.join_shares(parts)
        return zip(
            samples, (DetectorRollout(tuple(ids), *rest) for ids, *rest in rows), strict=True
        )

    def _refresh(self, step: int) -> None:
        """Load the weights from before ``step``, the current step, into the writer, adapters
        merged."""
        if self.writer.version != step:
            self.writer.take(self.learner.detector.weights(), step)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._times[phase] = self._times.get(phase, 0.0) + time.perf_counter() - began

    def corrected(self, rollouts: Iterable[tuple[Sample, DetectorRollout]]) -> Iterator[Example]:
        """Channel B: the corrected answers."""
        room = self.config.packing.max_length
        for sample, rollout in rollouts:
            with self._timed("parse_match_s"):
                left = room - len(self.reader.prompt_ids(sample.image))
                target, outcome = correct_rollout(
                    sample, rollout, self.reader.spelling, self.config.channel_b.min_iou, left
                )
                self._outcomes.append(outcome)
            yield sample, target

    def learn(self, step: int, targets: Iterable[Example]) -> StepResult:
        """One step of the optimiser."""
        self._next.submit(self._prepare_answers, step + 1)
        with self.world.at(f"step {step}"):
            self.learner.teach(step, self._drawn(targets), self.totals(step))
            self._look_ahead(step)
            figures = self.learner.finish(self.schedule.learning_rate(step))
        result = StepResult(figures, self._outcomes, self._gathered_times(figures))
        self._outcomes, self._times, self._drawn_s = [], {}, 0.0
        return result

    def _prepare_answers(self, step: int) -> None:
        """In a thread, while the previous step is learnt: prepare the images that this rank will
        answer. Errors are raised when their step comes."""
        if step < self.schedule.steps and self.schedule.answers(step):
            with suppress(StagebError):
                eyes = self.reader.eyes
                prompts = [
                    self.reader.prompt_ids(sample.image)
                    for sample in self.world.share(self.samples(step))
                ]
                eyes.prepare(name for prompt in prompts for name in eyes.names_in(prompt))

    def _look_ahead(self, step: int) -> None:
        """While the GPU works on ``step``: plan the next channel A steps, so that threads decode
        their images, and make the first pack of the next step. Errors are raised when their step
        comes."""
        learner = self.learner
        for later in range(step + 1, min(step + 1 + AHEAD, self.schedule.steps)):
            if later not in self._plans and not self.schedule.answers(later):
                with suppress(StagebError):
                    self._plans[later] = learner.plan(later, self.truth(later), self.totals(later))
                    learner.detector.eyes.prepare(learner.images(self._plans[later]))
        if plan := self._plans.pop(step + 1, None):
            with suppress(StagebError):
                learner.prepare(plan)

    def _drawn(self, targets: Iterable[Example]) -> Iterator[Example]:
        """``targets``, counting the time spent waiting for them."""
        began = time.perf_counter()
        for each in targets:
            self._drawn_s += time.perf_counter() - began
            yield each
            began = time.perf_counter()
        self._drawn_s += time.perf_counter() - began

    def _gathered_times(self, figures: StepFigures) -> list[dict[str, float]]:
        """For every rank, the seconds of a step by phase."""
        mine = {"parse_match_s": 0.0, **self._times}
        mine |= {name: getattr(figures, name) for name in ("pack_s", "forward_s", "reduce_s")}
        mine["pack_s"] -= self._drawn_s  # the learner counts waiting for targets as making packs
        parts = self.world.collect({name: round(value, 6) for name, value in mine.items()})
        return [{"rank": rank, **part} for rank, part in enumerate(parts)]

    # Evaluation and checkpoints

    def evaluate_val(self, step: int) -> DetectedImages | None:
        """The detections in val after ``step``; None without val."""
        self._refresh(step + 1)
        return self._evaluate(self.inputs.val[: self.config.evaluation.samples or None])

    def evaluate_test(self, step: int, best: BestWeights | None) -> DetectedImages | None:
        """The detections in test after the last ``step``, with the ``best`` weights if they are not
        the last; None without test."""
        self._refresh(step + 1)
        if best and self.inputs.test:
            self._recall(best)
        return self._evaluate(self.inputs.test)

    def _recall(self, best: BestWeights) -> None:
        """Load the best weights into the writers of all ranks; rank 0 reads their file."""
        if self.world.is_global_zero:
            self.writer.take(load_file(best.path).items(), best.step)
        if self.world.world_size > 1:
            with self.world.together("the best weights"):
                self.writer.receive(
                    best.step, lambda weight: torch.distributed.broadcast(weight, 0)
                )

    def _evaluate(self, samples: Sequence[Sample]) -> DetectedImages | None:
        """The detections of the writer's weights in ``samples``, with greedy decoding; None without
        samples."""
        if not samples:
            return None
        detections = detect_on_ranks(self.world, self.writer, samples, self.config)
        return DetectedImages(samples, detections)

    def checkpoint(self, step: int) -> Checkpoint:
        """All that a run resumes from, when ``step`` steps are done."""
        self._refresh(step)
        return (
            Checkpoint(self.writer.weights(), self.learner.state())
            if self.world.is_global_zero
            else Checkpoint({}, {})
        )

    def describe(self, folder: Path) -> None:
        """Write the exported checkpoint, without its weights, into ``folder``."""
        sweep(folder)
        detector = self.reader
        for each in (
            detector.model.config,
            detector.model.generation_config,
            detector.tokenizer,
            detector.eyes.process,
        ):
            each.save_pretrained(folder)

    # Before the first step

    def _fitting(self, samples: Sequence[Sample]) -> tuple[list[Sample], list[str]]:
        """The samples that fit into ``packing.max_length``, and the keys of those set aside. Raises
        ``ConfigError`` if the longest prompt with the longest possible answer does not fit, and
        ``InputError`` if a sample does not fit with its true answer and ``packing.overlong`` is
        refuse."""
        packing = self.config.packing
        objects = (each for sample in samples for each in sample.objects)
        longest_object = max(
            objects, key=lambda each: len(self.reader.tokenizer.encode(each.desc)), default=None
        )
        pasted = (longest_object,) * self.config.augmentation.copy_paste if longest_object else ()
        answers = [
            len(self._true(replace(sample, objects=sample.objects + pasted)).ids)
            for sample in samples
        ]
        prompts = [len(self.reader.prompt_ids(sample.image)) for sample in samples]
        if "B" in self.config.schedule.pattern:
            longest = max(prompts) + self.config.channel_b.max_new_tokens
            remedy = f"at least {longest}: the longest prompt and channel_b.max_new_tokens"
            require(packing.max_length >= longest, "packing.max_length", packing.max_length, remedy)
        fits, over = list[Sample](), list[Sample]()
        for sample, prompt, answer in zip(samples, prompts, answers, strict=True):
            (fits if prompt + answer <= packing.max_length else over).append(sample)
        if over and (packing.overlong == "refuse" or not fits):
            raise InputError(
                f"{len(over)} samples are longer than packing.max_length {packing.max_length}: "
                f"{list_keys(over)}; raise it, lower model.image_pixels, or set packing.overlong "
                "to set_aside"
            )
        return fits, [each.key for each in over]
