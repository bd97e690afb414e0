"""What goes into a decode loop and what comes out: rows to answer, answers to weigh, answers while they grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from stageb.engines.protocol import Decode, Finish
from stageb.engines.sampling import Settings
from stageb.errors import EngineError

Ids = tuple[int, ...]
TextOf = Callable[[Sequence[int]], str]  # ids to text

PICTURE = 1 << 62  # an id from here on is one of an image's places in a prompt, and names the image (``vision.py``)


@dataclass(frozen=True, slots=True)
class Row:
    """One answer to sample: the ids after the shared ones, how to decode, and the random stream."""

    own: Ids
    decode: Decode
    key: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The ids of one sampled answer, the closing one included, and what ended it."""

    ids: Ids
    finish: Finish


@dataclass(frozen=True, slots=True)
class Choice:
    """One question to score: the prompt's ids after the shared ones, and the ids of each answer to weigh."""

    own: Ids
    answers: tuple[Ids, ...]

    @property
    def common(self) -> Ids:
        """What all answers begin with."""
        return tuple(ids[0] for ids in takewhile(lambda ids: len(set(ids)) == 1, zip(*self.answers, strict=False)))


class Growing:
    """An answer of ``row`` while it is being decoded, of ``limit`` tokens at most; ``eos`` are the ids that end it."""

    def __init__(self, row: Row, limit: int, eos: frozenset[int], text_of: TextOf) -> None:
        self.row = row
        self.limit = limit
        self.ids: list[int] = []
        self.finish: Finish | None = None
        self._eos = eos
        self._text_of = text_of
        # A token gives at least one byte, so a stop string that has just been completed lies within this many tokens.
        self._tail = max((len(stop.encode()) for stop in row.decode.stop), default=0) + 4

    def extend(self, ids: Sequence[int]) -> None:
        """Take in what the model went on with, up to the end of the answer."""
        if self.finish:
            return
        ids = ids[: self.limit - len(self.ids)]
        ends = not self._eos.isdisjoint(ids) or self._completes_stop([*self.ids[-self._tail :], *ids])
        for token in ids if ends else ():
            self.ids.append(token)
            if token in self._eos or self._completes_stop(self.ids[-self._tail :]):
                self.finish = "stop"
                return
        if not ends:
            self.ids += ids
        if len(self.ids) == self.limit:
            self.finish = "length"

    def answer(self) -> Answer:
        """What has come of it."""
        return Answer(tuple(self.ids), self.finish or "length")

    def _completes_stop(self, tail: Sequence[int]) -> bool:
        stops = self.row.decode.stop
        if not stops:
            return False
        text = self._text_of(tail)
        return any(stop in text for stop in stops)


def settings_of(answers: Sequence[Growing], vocabulary: int, device: torch.device) -> Settings:
    """How ``answers`` sample."""
    rows = [answer.row for answer in answers]
    return Settings.of([row.decode for row in rows], [row.key for row in rows], vocabulary, device)


def seen_of(shared: Ids, rows: Sequence[Row], vocabulary: int, device: torch.device) -> Tensor | None:
    """Which tokens stand in each row's prompt, (rows, vocabulary); None where no repetition penalty asks for it."""
    if all(row.decode.repetition_penalty == 1 for row in rows):
        return None
    seen = torch.zeros(len(rows), vocabulary, dtype=torch.bool, device=device)
    for index, row in enumerate(rows):
        read = [token for token in (*shared, *row.own) if token < PICTURE]
        seen[index, torch.tensor(read, device=device)] = True
    return seen


def pictured(text: Ids) -> bool:
    """Whether an image stands in ``text``."""
    return max(text, default=0) >= PICTURE


def must_be_numbers(logits: Tensor) -> None:
    """Raise ``EngineError`` where a model's logits are none."""
    if logits.isnan().any():
        raise EngineError("the model's logits are not numbers; load it with model.torch_dtype float32 or bfloat16")
