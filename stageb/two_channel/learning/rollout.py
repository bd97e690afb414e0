"""Rollouts: answers of the current model, with the default engine, on a copy of the learner's weights.

It is a copy because the engine replaces a model's attention, and is fast with half-precision weights, while the learner
keeps float32. The copy takes two bytes per weight, besides about a dozen for learning; ranks that only roll out have just
this copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor

from stageb.engines.native.rows import Answer
from stageb.engines.native.transformers import TransformersEngine
from stageb.engines.protocol import Decode, Ids, Request
from stageb.two_channel.boxes.text import Spelling, expect
from stageb.two_channel.learning import channel_a, packing
from stageb.two_channel.model.model import Detector
from stageb.two_channel.types import Rollout, Sample, StepTotals, Target


class Writer:
    """Writes answers with its own detector, whose weights the caller updates."""

    def __init__(self, detector: Detector, spelling: Spelling) -> None:
        """``spelling`` is the detector's; the tokens that it determines are drafted, which saves forward passes."""
        self.version = -1  # no weights yet
        self._draft = partial(expect, spelling=spelling)
        self._detector = detector
        self._engine = TransformersEngine(detector.model, detector.tokenizer, {}, lambda: detector.eyes)
        self._engine.open_eyes()

    @torch.no_grad()
    def take(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Load ``weights`` by name: all of the model's, tied ones once."""
        own = self._detector.model.state_dict()
        for name, weight in weights:
            own[name].copy_(weight)
        self._engine.forget()
        self.version = version

    @torch.no_grad()
    def receive(self, version: int, each: Callable[[Tensor], object]) -> None:
        """Update every weight in place with ``each``, such as a broadcast; the order is the same on every rank."""
        for weight in self._weights.values():
            each(weight)
        self._engine.forget()
        self.version = version

    def weights(self) -> dict[str, Tensor]:
        """The current weights by name, on the CPU; tied ones once."""
        return {name: weight.cpu() for name, weight in self._weights.items()}

    def write(
        self,
        samples: Sequence[Sample],
        keys: Sequence[int],
        decode: Decode,
        told: Callable[[int, Rollout], None] | None = None,
    ) -> list[Rollout]:
        """An answer to each of ``samples``, drawn from the stream of its key alone. ``told`` is called with the index of a
        sample and its answer as soon as that has finished."""
        version = self.version

        def tell(place: int, answer: Answer) -> None:
            if told:
                told(place, _make_rollout(answer, version))

        requests = [
            Request(self._detector.prompt(sample.image), decode, (key,)) for sample, key in zip(samples, keys, strict=True)
        ]
        return [_make_rollout(answer, version) for (answer,) in self._engine.answers(requests, tell, self._draft)]

    def chances(self, samples: Sequence[Sample], answers: Sequence[Ids]) -> list[tuple[float, ...]]:
        """For each of ``samples``, the log-probabilities of all tokens of its answer, at temperature 1."""
        prompts = (self._detector.prompt(sample.image) for sample in samples)
        return self._engine.chances(list(zip(prompts, answers, strict=True)))

    @torch.no_grad()
    def chances_of(self, sample: Sample, answer: Ids, places: Sequence[int], tokens: Sequence[int]) -> list[list[float]]:
        """The log-probability of each of ``tokens`` at each of ``places`` of an ``answer``, given the tokens before it."""
        line = packing.make_line(self._detector, sample, Target(answer, (False,) * len(answer), ()))
        states = channel_a.forward(self._detector.model, packing.pack(self._detector, [line], StepTotals(0, 0)))
        chances = self._detector.head().logits(states[list(places)]).float().log_softmax(-1)
        found: list[list[float]] = chances[:, list(tokens)].tolist()
        return found

    @property
    def _weights(self) -> dict[str, Tensor]:
        """The model's weights by name; tied ones once."""
        first = {weight.data_ptr(): (name, weight) for name, weight in reversed(self._detector.model.state_dict().items())}
        return dict(reversed(first.values()))


def _make_rollout(answer: Answer, version: int) -> Rollout:
    return Rollout(answer.ids, answer.finish == "stop", version)
