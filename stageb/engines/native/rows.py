"""What goes into a decode loop and what comes out: rows to answer, answers to weigh, answers while they grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
from torch import Tensor

from stageb.engines.native.caches import Past
from stageb.engines.native.sampling import Settings
from stageb.engines.protocol import Finish, Ids, Row
from stageb.errors import EngineError

TextOf = Callable[[Sequence[int]], str]  # ids to text

PICTURE = 1 << 62  # an id from here on is one of an image's places in a prompt, and names the image (``vision.py``)


@dataclass(frozen=True, slots=True)
class Answer:
    """The ids of one sampled answer, the closing one included, and what ended it."""

    ids: Ids
    finish: Finish


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One question to score: the prompt's ids after the shared ones, and the ids of each answer to weigh."""

    own: Ids
    answers: tuple[Ids, ...]

    @property
    def common(self) -> Ids:
        """What all answers begin with."""
        return tuple(ids[0] for ids in takewhile(lambda ids: len(set(ids)) == 1, zip(*self.answers, strict=False)))


OnAnswer = Callable[[Row, Answer], None]


class PartialAnswer:
    """An answer of ``row`` while it is being decoded, of ``limit`` tokens at most; ``eos`` are the ids that end it."""

    def __init__(self, row: Row, limit: int, eos: frozenset[int], text_of: TextOf, told: OnAnswer | None = None) -> None:
        """``told`` is called when the answer has ended."""
        self.row = row
        self._told = told
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
        self._take(ids[: self.limit - len(self.ids)])
        if self.finish and self._told:
            self._told(self.row, self.answer())

    def answer(self) -> Answer:
        """What has come of it."""
        return Answer(tuple(self.ids), self.finish or "length")

    def _take(self, ids: Sequence[int]) -> None:
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

    def _completes_stop(self, tail: Sequence[int]) -> bool:
        stops = self.row.decode.stop
        if not stops:
            return False
        text = self._text_of(tail)
        return any(stop in text for stop in stops)


def settings_of(answers: Sequence[PartialAnswer], vocabulary: int, device: torch.device) -> Settings:
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


def has_image(text: Ids) -> bool:
    """Whether an image stands in ``text``."""
    return max(text, default=0) >= PICTURE


def check_not_nan(logits: Tensor) -> None:
    """Raise ``EngineError`` where a model's logits are none."""
    if logits.isnan().any():
        raise EngineError(
            "the model's logits are not numbers (NaN); load it with model.torch_dtype float32 or bfloat16, and if they stay "
            "so, its weights hold NaN: take another copy of the checkpoint"
        )


@dataclass
class LiveBatch:
    """The rows that step together; every tensor has one element or line for each."""

    answers: list[PartialAnswer]
    past: Past
    mask: Tensor  # (rows, columns to come included): 0 on padding
    cached: int  # columns of the mask that the prompts take
    positions: Tensor  # int64 (rows,): of each answer's first token
    settings: Settings
    seen: Tensor | None  # (rows, vocabulary): tokens of prompt and answer, where a repetition penalty asks for them

    def keep(self, places: list[int], index: Tensor, logits: Tensor) -> None:
        """Leave out all rows but ``places``; ``index`` holds the same on the device."""
        if prompts := self.past.prompts:
            prompt_of = index // (len(self.answers) // len(prompts[0][0]))
            self.past = replace(self.past, prompts=[(keys[prompt_of], values[prompt_of]) for keys, values in prompts])
        self.answers = [self.answers[place] for place in places]
        self.past.cache.reorder_cache(index)
        self.mask, self.positions = self.mask[index], self.positions[index]
        self.settings = settings_of(self.answers, logits.shape[-1], logits.device)
        self.seen = self.seen[index] if self.seen is not None else None


def sum_picked(chances: Tensor, tokens: Sequence[Sequence[int | None]], from_the_end: bool = False) -> Tensor:
    """The sum of ``chances`` (rows, columns, vocabulary) over each row's ``tokens``, one a column, None for none: (rows,).

    Rows may be shorter than the columns: they begin at the first, or end at the last ``from_the_end``.
    """
    columns = chances.shape[1]
    index = torch.zeros(len(tokens), columns, dtype=torch.int64)
    counts = torch.zeros(len(tokens), columns, dtype=torch.bool)
    for row, ids in enumerate(tokens):
        first = columns - len(ids) if from_the_end else 0
        for column, token in enumerate(ids, first):
            if token is not None:
                index[row, column], counts[row, column] = token, True
    picked = chances.gather(-1, index.to(chances.device)[..., None])[..., 0]
    return picked.masked_fill(~counts.to(chances.device), 0.0).sum(-1)
