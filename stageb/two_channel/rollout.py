"""Answers of the model as it stands, by the default engine, on a copy of the weights that learn.

A copy and not the learner's own module: the engine puts an attention of its own into a model, and reads half-precision
weights at full speed where learning keeps whole ones. It costs two bytes a weight beside the dozen that learning takes, and
ranks that do nothing but roll out hold theirs in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stageb.engines.protocol import Decode, Prompt, Request
from stageb.engines.transformers import TransformersEngine
from stageb.engines.vision import Eyes
from stageb.two_channel.types import Sample

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """An answer that the model wrote."""

    ids: Ids  # its tokens, the closing one included where it came
    ended: bool  # the model closed it; otherwise it grew too long
    version: int  # steps of the optimiser behind the weights that wrote it


class Writer:
    """Writes answers with ``model``, whose weights it takes anew from time to time."""

    def __init__(self, model: Any, tokenizer: Any, process: Any, prompt: str, pixels: int) -> None:
        """``model`` is the writer's own; ``process`` is the checkpoint's image processor."""
        self.model = model
        self.version = -1  # of no weights yet
        self._prompt = prompt
        self._engine = TransformersEngine(model, tokenizer, {}, lambda: Eyes(model, process, pixels))
        self._engine.open_eyes()

    @torch.no_grad()
    def take(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Answer with ``weights`` from now on: every one of the model's, by its name."""
        own = self.model.state_dict()
        for name, weight in weights:
            own[name].copy_(weight)
        self._engine.forget()
        self.version = version

    def write(self, samples: Sequence[Sample], keys: Sequence[int], decode: Decode) -> list[Written]:
        """An answer for each of ``samples``, drawn from the stream of its key alone."""
        requests = [Request(self._asked(sample), decode, (key,)) for sample, key in zip(samples, keys, strict=True)]
        answers = [answer for (answer,) in self._engine.answers(requests)]
        return [Written(answer.ids, answer.finish == "stop", self.version) for answer in answers]

    def chances(self, samples: Sequence[Sample], answers: Sequence[Ids]) -> list[tuple[float, ...]]:
        """The log-probability of every token of an answer for each of ``samples``, at temperature 1."""
        return self._engine.chances([(self._asked(sample), ids) for sample, ids in zip(samples, answers, strict=True)])

    def _asked(self, sample: Sample) -> Prompt:
        return Prompt("", self._prompt, (sample.image,))
