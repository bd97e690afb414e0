"""What every rank does for the loop: answer its share of the images, learn from its share of the packs, and bring together
what only all know.

Every method is for all ranks, in the same order. Rank 0 alone decides and writes: ``run.py``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils.logging import disable_progress_bar

from stageb.config import require
from stageb.engines.protocol import Decode
from stageb.errors import InputError
from stageb.two_channel import adapters, evaluate, model, text
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.correct import Outcome, corrected
from stageb.two_channel.inputs import Inputs, of_keys
from stageb.two_channel.learner import Figures, Learner
from stageb.two_channel.metrics import Told
from stageb.two_channel.rollout import Writer
from stageb.two_channel.schedule import Schedule
from stageb.two_channel.targets import of_truth
from stageb.two_channel.types import Rollout, Sample, Target
from stageb.world import World, decode, encode

Taught = tuple[Sample, Target]


@dataclass(frozen=True)
class Came:
    """What a step came to."""

    figures: Figures
    outcomes: list[Outcome]  # of all rollouts; none in a step of channel A
    times: list[dict[str, float]]  # seconds by name, of every rank


@dataclass(frozen=True)
class Tested:
    """What the model said of the test images."""

    samples: Sequence[Sample]
    told: Sequence[Told]


@dataclass(frozen=True)
class Checkpoint:
    """All that a run goes on from; empty but on rank 0."""

    weights: dict[str, Tensor]  # of the checkpoint that others load, on the CPU
    state: dict[str, Any]  # of what learns


class Ranks:
    """The ranks of a run, as the loop sees them."""

    def __init__(self, config: TwoChannelConfig, inputs: Inputs, world: World, folder: str) -> None:
        """``folder`` is that, or the name, of the checkpoint to begin with."""
        self.config, self.inputs, self.world = config, inputs, world
        torch.backends.cudnn.deterministic = True  # a run that goes on leaves the bytes of one that was not disturbed
        halved = config.fabric.precision == "bf16-mixed" and world.device.startswith("cuda")
        self._dtype = torch.bfloat16 if halved else torch.float32
        disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar per rank would say nothing
        self.detector = model.load(folder, config.model, config.data.prompt, world.device)
        self.spelling = text.spelling_of(self.detector.tokenizer)
        text.check(inputs.train, self.spelling)
        fits = self._fitting(inputs.train)
        self.train, self.aside = fits, [each.key for each in inputs.train if each not in set(fits)]
        self.schedule = Schedule(config, len(self.train))
        self.writer = Writer(model.load(folder, config.model, config.data.prompt, world.device, self._dtype))
        if config.tuner.kind == "lora":
            adapters.adapt(self.detector.model, config.tuner, self.detector.first)
        self.learner = Learner(world, self.detector, config)
        self._outcomes: list[Outcome] = []  # of the step at hand, as these
        self._times: dict[str, float] = {}

    def take_up(self, path: str | None) -> None:
        """Go on from a checkpoint's file; None: from the beginning."""
        if path:
            state = torch.load(path, map_location="cpu", weights_only=True)
            self.detector.model.load_state_dict(state["weights"], strict=False)
            self.learner.take_up(state["learner"])

    # A step

    def samples(self, step: int) -> list[Sample]:
        """The images of a step."""
        return [self.train[place] for place in self.schedule.chosen(step)]

    def truth(self, samples: Sequence[Sample]) -> Iterator[Taught]:
        """Channel A: the truth."""
        for sample in samples:
            yield sample, of_truth(text.truth(sample), self.spelling)

    def roll_out(self, step: int, samples: Sequence[Sample]) -> list[Rollout]:
        """Answers to ``samples``, each rank's share by itself; all of them, on every rank."""
        mine = self.world.share(samples)
        settings = self.config.channel_b
        how = Decode(settings.temperature, settings.top_p, max_new_tokens=settings.max_new_tokens)
        with self._timed("rollout_generate_s"), self.world.at(f"rollout of step {step}"):
            self._refresh(step)
            written = self.writer.write(mine, [self.schedule.key(step, sample.key) for sample in mine], how)
        with self._timed("wait_s"):
            parts = self.world.gather(encode([[each.ids, each.ended] for each in written]))
        return [Rollout(tuple(ids), ended, step) for ids, ended in self.world.dealt([decode(part) for part in parts])]

    def corrected(self, samples: Sequence[Sample], rollouts: Sequence[Rollout]) -> Iterator[Taught]:
        """Channel B: the answers set right."""
        room = self.config.packing.max_length
        for sample, rollout in zip(samples, rollouts, strict=True):
            with self._timed("parse_match_s"):
                left = room - len(self.detector.prompt_ids(sample.image))
                target, outcome = corrected(sample, rollout, self.spelling, self.config.channel_b, left)
            self._outcomes.append(outcome)
            yield sample, target

    def learn(self, step: int, targets: Iterator[Taught]) -> Came:
        """One step of the optimiser."""
        channel, size = self.schedule.channel(step), self.schedule.size(step)
        with self.world.at(f"step {step}"):
            figures = self.learner.step(targets, channel, size, self.schedule.learning_rate(step))
        times = {name: getattr(figures, name) for name in ("pack_s", "forward_s", "reduce_s")}
        parts = self.world.gather(encode({**self._times, **times}))
        came = Came(figures, self._outcomes, [{"rank": rank, **decode(part)} for rank, part in enumerate(parts)])
        self._outcomes, self._times = [], {}
        return came

    # Apart from learning

    def evaluate(self, step: int) -> Tested | None:
        """How good answers with the most probable tokens are, on the test images; None where there are none."""
        last = step + 1 == self.schedule.steps
        samples = self.inputs.test[: None if last else self.config.evaluation.samples or None]
        if not samples:
            return None
        self._refresh(step + 1)
        told = evaluate.everywhere(self.world, self.writer, samples, self.spelling, self.config)
        return Tested(samples, told)

    def checkpoint(self, step: int) -> Checkpoint:
        """All that a run goes on from, after the steps before ``step``."""
        self._refresh(step)
        if not self.world.is_global_zero:
            return Checkpoint({}, {})
        learnt = {name: each.detach() for name, each in self.detector.model.named_parameters() if each.requires_grad}
        state = {"weights": learnt, "learner": self.learner.state()}
        return Checkpoint(self.writer.weights(), state)

    def describe(self, folder: Path) -> None:
        """Write into ``folder`` all of the checkpoint but its weights."""
        detector = self.detector
        for each in (detector.model.config, detector.model.generation_config, detector.tokenizer, detector.eyes.process):
            each.save_pretrained(folder)

    def _refresh(self, step: int) -> None:
        """Have the writer take the newest weights, those before a step."""
        if self.writer.version != step:
            self.writer.take(adapters.weights(self.detector.model), step)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._times[name] = self._times.get(name, 0.0) + time.perf_counter() - began

    # Before the first step

    def _fitting(self, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        """The samples that fit, with their answers and with any that the model may write. Raises ``InputError``."""
        packing = self.config.packing
        prompts = {sample.key: len(self.detector.prompt_ids(sample.image)) for sample in samples}
        if "B" in self.config.schedule.pattern:
            longest = max(prompts.values()) + self.config.channel_b.max_new_tokens
            remedy = f"at least {longest}: the longest prompt and channel_b.max_new_tokens"
            require(packing.max_length >= longest, "packing.max_length", packing.max_length, remedy)
        truths = {sample.key: len(of_truth(text.truth(sample), self.spelling).ids) for sample in samples}
        fits = tuple(each for each in samples if prompts[each.key] + truths[each.key] <= packing.max_length)
        if len(fits) < len(samples) and (packing.overlong == "refuse" or not fits):
            over = [each for each in samples if each not in set(fits)]
            raise InputError(
                f"{len(over)} samples are longer than packing.max_length {packing.max_length}: {of_keys(over)}; raise it, "
                "lower model.image_pixels, or set packing.overlong to set_aside"
            )
        return fits
