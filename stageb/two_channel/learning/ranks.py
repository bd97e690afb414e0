"""What every rank does for the loop: answer its share of the images, train on its share of the packs, and gather results.

All ranks must call these methods, in the same order. Only rank 0 decides and writes: ``run.py``.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stageb.config import require
from stageb.errors import ConfigError, InputError, StagebError
from stageb.job.world import World, decode, encode
from stageb.seeds import stream
from stageb.training import run
from stageb.two_channel.boxes import text
from stageb.two_channel.boxes.augmentation import NOISE, draw_noise, make_view
from stageb.two_channel.boxes.data import DetectorData, list_keys
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning import evaluate
from stageb.two_channel.learning.exchange import SharedRanks, SplitRanks
from stageb.two_channel.learning.learner import DetectorLearner, PlannedStep, StepFigures
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.learning.schedule import DetectorSchedule
from stageb.two_channel.learning.targets import Correction, correct_rollout, count_totals, make_true_target
from stageb.two_channel.model import adapters, model
from stageb.two_channel.types import DetectorRollout, Sample, StepTotals, Target

Example = tuple[Sample, Target]

AHEAD = 2  # steps to plan ahead: the images of one are decoded while the pack of the one before it is made


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    figures: StepFigures | None  # None on ranks that do not learn
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
    state: dict[str, Any]  # of the learner and the exchange


class DetectorRanks:
    """The ranks of a run, as the loop sees them."""

    def __init__(self, config: TwoChannelConfig, inputs: DetectorData, world: World, folder: str) -> None:
        """``folder`` is the folder or the hub name of the checkpoint to start from."""
        self.config, self.inputs, self.world = config, inputs, world
        run.keep_freed(world.device)
        torch.backends.cudnn.deterministic = True  # a resumed run must leave the same bytes as an uninterrupted one
        dtype = model.find_answering_dtype(config.fabric, world.device)
        self._words = text.fill_prompt(config.data.prompt, inputs.descs)
        self.reader = model.load(folder, config.model, self._words, world.device, dtype)
        self.spelling = text.find_spelling(self.reader.tokenizer, config.answer.box_first)
        text.check_descs(inputs.train, self.spelling)
        if config.answer.object_budget and NOISE in inputs.descs:
            raise InputError(f"data.train has objects named {NOISE!r}: rename them, or set answer.object_budget to 0")
        self.train, self.aside = self._fitting(inputs.train)
        self.reader.eyes.sources = [sample.image for sample in self.train]
        self.schedule = DetectorSchedule(config, len(self.train))
        self.writer = Writer(self.reader, self.spelling)
        self.samples = lru_cache(4 + AHEAD)(self._samples)  # of steps that are learnt, planned, or answered
        self.truth = lru_cache(4 + AHEAD)(self._truth)  # of the same
        self.totals = lru_cache(4 + AHEAD)(self._totals)  # of the same
        self.learner = self._learner(folder)
        way = SplitRanks if config.topology.rollout else SharedRanks
        self.exchange = way(world, self.writer, self.schedule, self.samples, self._weights)
        self._next = ThreadPoolExecutor(1, "stageb-next-step")
        self._plans: dict[int, PlannedStep] = {}  # of steps to come
        self._outcomes: list[Correction] = []  # of the current step
        self._parse_s = self._drawn_s = 0.0  # seconds of the current step: parsing answers, waiting for targets

    def _learner(self, folder: str) -> DetectorLearner | None:
        """This rank's learner; None on ranks that only roll out."""
        world, topology = self.world, self.config.topology
        if not topology.rollout:
            ranks, summed = world.world_size, None
        else:
            if topology.learn + topology.rollout != world.world_size:
                remedy = f"it and topology.rollout must make {world.world_size}, the number of ranks"
                raise ConfigError("topology.learn", topology.learn, remedy)
            ranks, group = topology.learn, torch.distributed.new_group(range(topology.learn))

            def summed(tensor: Tensor) -> Tensor:
                torch.distributed.all_reduce(tensor, group=group)
                return tensor

        if world.rank >= ranks:
            return None
        dtype = model.find_learning_dtype(self.config.fabric, self.config.tuner)
        detector = model.load(folder, self.config.model, self._words, world.device, dtype)
        detector.eyes.share(self.reader.eyes)
        if self.config.tuner.kind == "lora":
            adapters.adapt(detector.model, self.config.tuner, detector.first, self.config.seed)
        return DetectorLearner(world, detector, self.config, ranks, summed)

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        """The learner's weights, with adapters merged."""
        assert self.learner
        return adapters.merge_weights(self.learner.detector.model)

    def take_up(self, path: str | None) -> None:
        """Resume from a checkpoint's file; None: start from the beginning."""
        if path:
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.exchange.take_up(state["pending"])
            if self.learner:
                self.learner.take_up(state["learner"])

    # A step

    def _samples(self, step: int) -> list[Sample]:
        """The images of a step, each in its own random view if ``augmentation`` asks for it."""
        views, done = self.config.augmentation, self.schedule.done(step)
        return [
            make_view(self.train[place], self.schedule.view_key(step, number), views, done, self.train)
            for number, place in enumerate(self.schedule.chosen(step))
        ]

    def targets(self, step: int) -> Iterable[Example]:
        """The training targets of a step."""
        return self.truth(step) if self.schedule.channel(step) == "A" else self.corrected(self.rollouts(step))

    def _truth(self, step: int) -> list[Example]:
        """Channel A: the true answers."""
        numbered = enumerate(self.samples(step))
        return [(sample, self._true(sample, self.schedule.answer_key(step, number))) for number, sample in numbered]

    def _true(self, sample: Sample, key: int) -> Target:
        """The true answer to ``sample``; its noise is drawn from the stream ``key``."""
        true = text.list_true_objects(sample)
        return make_true_target(true, self.spelling, draw_noise(true, self.config.answer.object_budget - len(true), key))

    def rollouts(self, step: int) -> Iterator[tuple[Sample, DetectorRollout]]:
        """Channel B: the images of a step with the model's answers; on ranks that learn, as answers arrive."""
        return self.exchange.rollouts(step)

    def corrected(self, rollouts: Iterable[tuple[Sample, DetectorRollout]]) -> Iterator[Example]:
        """Channel B: the corrected answers."""
        room = self.config.packing.max_length
        for sample, rollout in rollouts:
            began = time.perf_counter()
            left = room - len(self.reader.prompt_ids(sample.image))
            key = stream(self.config.seed, "two_channel", "noise", rollout.version, sample.key)
            target, outcome = correct_rollout(sample, rollout, self.spelling, self.config, left, key)
            self._outcomes.append(outcome)
            self._parse_s += time.perf_counter() - began
            yield sample, target

    def learn(self, step: int, targets: Iterable[Example]) -> StepResult:
        """One step of the optimiser; ranks that only roll out send their answers meanwhile."""
        channel, rate = self.schedule.channel(step), self.schedule.learning_rate(step)
        self._next.submit(self._prepare_answers, step + 1)
        figures = None
        if self.learner:
            with self.world.at(f"step {step}"):
                self.learner.teach(step, self._drawn(targets), self.totals(step))
                self._look_ahead(self.learner, step)
                figures = self.learner.finish(rate)
        elif channel != "A":
            collections.deque(targets, maxlen=0)
        result = StepResult(figures, self._outcomes, self._gathered_times(figures))
        self._outcomes, self._parse_s, self._drawn_s = [], 0.0, 0.0
        return result

    def _prepare_answers(self, step: int) -> None:
        """In a thread, while the previous step is learnt: prepare the images that this rank will answer. Errors are raised
        when their step comes."""
        if step < self.schedule.steps and self.schedule.answers(step):
            with suppress(StagebError):
                eyes = self.reader.eyes
                prompts = [self.reader.prompt_ids(sample.image) for sample in self.exchange.mine(step)]
                eyes.prepare(name for prompt in prompts for name in eyes.names_in(prompt))

    def _look_ahead(self, learner: DetectorLearner, step: int) -> None:
        """While the GPU works on ``step``: plan the next channel A steps, so that threads decode their images, and make the
        first pack of the next step. Errors are raised when their step comes."""
        for later in range(step + 1, min(step + 1 + AHEAD, self.schedule.steps)):
            if later not in self._plans and not self.schedule.answers(later):
                with suppress(StagebError):
                    self._plans[later] = learner.plan(later, self.truth(later), self.totals(later))
                    learner.detector.eyes.prepare(learner.images(self._plans[later]))
        if plan := self._plans.pop(step + 1, None):
            with suppress(StagebError):
                learner.prepare(plan)

    def _totals(self, step: int) -> StepTotals:
        """The totals of the images of a step."""
        return count_totals(target for _, target in self.truth(step))

    def _drawn(self, targets: Iterable[Example]) -> Iterator[Example]:
        """``targets``, counting the time spent waiting for them."""
        began = time.perf_counter()
        for each in targets:
            self._drawn_s += time.perf_counter() - began
            yield each
            began = time.perf_counter()
        self._drawn_s += time.perf_counter() - began

    def _gathered_times(self, figures: StepFigures | None) -> list[dict[str, float]]:
        """For every rank, the seconds of a step by phase."""
        mine = {**self.exchange.times, "parse_match_s": self._parse_s}
        for name in ("pack_s", "forward_s", "reduce_s") if figures else ():
            mine[name] = getattr(figures, name)
        if figures:  # the learner counts waiting for targets as making packs
            mine["pack_s"] -= self._drawn_s
        self.exchange.times.clear()
        parts = self.world.gather(encode({name: round(value, 6) for name, value in mine.items()}))
        return [{"rank": rank, **decode(part)} for rank, part in enumerate(parts)]

    # Evaluation and checkpoints

    def evaluate_val(self, step: int) -> DetectedImages | None:
        """The detections in val after ``step``; None without val."""
        self.exchange.refresh(step + 1)
        return self._evaluate(self.inputs.val[: self.config.evaluation.samples or None])

    def evaluate_test(self, step: int, best: BestWeights | None) -> DetectedImages | None:
        """The detections in test after the last ``step``, with the ``best`` weights if they are not the last; None without
        test."""
        self.exchange.refresh(step + 1)
        if best and self.inputs.test:
            self.exchange.recall(best.path, best.step)
        return self._evaluate(self.inputs.test)

    def _evaluate(self, samples: Sequence[Sample]) -> DetectedImages | None:
        """The detections of the writer's weights in ``samples``, with greedy decoding; None without samples."""
        if not samples:
            return None
        told = evaluate.evaluate_on_ranks(self.world, self.writer, samples, self.spelling, self.config)
        return DetectedImages(samples, told)

    def checkpoint(self, step: int) -> Checkpoint:
        """All that a run resumes from, when ``step`` steps are done."""
        self.exchange.refresh(step)
        pending = self.exchange.pending()
        if not self.world.is_global_zero:
            return Checkpoint({}, {})
        assert self.learner
        return Checkpoint(self.writer.weights(), {"learner": self.learner.state(), "pending": pending})

    def describe(self, folder: Path) -> None:
        """Write the exported checkpoint, without its weights, into ``folder``."""
        detector = self.reader
        for each in (detector.model.config, detector.model.generation_config, detector.tokenizer, detector.eyes.process):
            each.save_pretrained(folder)

    # Before the first step

    def _fitting(self, samples: Sequence[Sample]) -> tuple[list[Sample], list[str]]:
        """The samples that fit into ``packing.max_length``, and the keys of those set aside. Raises ``ConfigError`` if the
        longest prompt with the longest possible answer does not fit, and ``InputError`` if a sample does not fit with its
        true answer and ``packing.overlong`` is refuse."""
        packing = self.config.packing
        prompts = [len(self.reader.prompt_ids(sample.image)) for sample in samples]
        objects = (each for sample in samples for each in sample.objects)
        longest_object = max(objects, key=lambda each: len(self.reader.tokenizer.encode(each.desc)), default=None)
        pasted = (longest_object,) * self.config.augmentation.copy_paste if longest_object else ()
        if "B" in self.config.schedule.pattern:
            longest = max(prompts) + self.config.channel_b.max_new_tokens
            remedy = f"at least {longest}: the longest prompt and channel_b.max_new_tokens"
            require(packing.max_length >= longest, "packing.max_length", packing.max_length, remedy)
        fits, over = list[Sample](), list[Sample]()
        for sample, prompt in zip(samples, prompts, strict=True):
            whole = prompt + len(self._true(replace(sample, objects=sample.objects + pasted), 0).ids)
            (fits if whole <= packing.max_length else over).append(sample)
        if over and (packing.overlong == "refuse" or not fits):
            raise InputError(
                f"{len(over)} samples are longer than packing.max_length {packing.max_length}: {list_keys(over)}; raise it, "
                "lower model.image_pixels, or set packing.overlong to set_aside"
            )
        return fits, [each.key for each in over]
