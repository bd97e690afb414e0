"""Rows of a decode loop: what is asked, how their tokens are drawn, what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from stageb import seeds
from stageb.draws import signed, uniforms, wide
from stageb.engines.native.memory import Past
from stageb.engines.protocol import Decode, Finish, Ids, Row
from stageb.errors import EngineError

# Keyed sampling: the next token of every row from its logits, its decode setting and its random
# stream.
#
# A draw is a function of (logits, decode, key, position) alone, so it does not depend on the batch.
# One uniform u per row and position, the one that ``seeds.uniform`` gives, picks the token by
# inverting the cumulative distribution in the order of token ids: the least t with F(t) > u.
#
# Steps follow transformers' order: temperature, top-k, top-p. Both cuts are by value: tokens as
# probable as the last one kept are kept too, so no order among equals is needed (equal logits are
# common in bfloat16).
#
# Where nothing is cut, as by default, a large vocabulary is inverted in two steps: the block of
# ``BLOCK`` tokens by the blocks' sums, then the token within it. The logits are read once and no
# row of probabilities is written.

# tokens whose probabilities are summed before any one is looked at; a smaller vocabulary is looked
# at whole
BLOCK = 1024


def _widest_dtype(device: torch.device) -> torch.dtype:
    """The type of whole distributions: on a CPU the widest; on a GPU float64 would double what they
    cost."""
    return torch.float64 if device.type == "cpu" else torch.float32


@dataclass(frozen=True)
class RowSettings:
    """How each row of a batch samples: one element per row, on the logits' device."""

    keys: Tensor  # int64: the row's stream
    greedy: Tensor  # bool: the row takes the most probable token
    temperature: Tensor  # a float; 1 for greedy rows
    top_k: Tensor  # int64; the vocabulary's size: no limit
    top_p: Tensor  # a float
    samples: bool  # some row is not greedy
    largest_k: int  # the largest top-k that limits a row; 0: none does
    cuts_p: bool  # top-p limits some row

    @classmethod
    def of(
        cls, decodes: Sequence[Decode], keys: Sequence[int], vocabulary: int, device: torch.device
    ) -> RowSettings:
        """The settings of rows that decode with ``decodes`` and draw from ``keys``."""
        floats = _widest_dtype(device)
        least = torch.finfo(floats).tiny  # a temperature below it would divide by 0
        limits = [min(decode.top_k, vocabulary) for decode in decodes]

        def column(values: Sequence[float], dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype, device=device)

        return cls(
            keys=column([signed(key & seeds.MASK) for key in keys], torch.int64),
            greedy=column([decode.temperature == 0 for decode in decodes], torch.bool),
            temperature=column(
                [max(decode.temperature or 1.0, least) for decode in decodes], floats
            ),
            top_k=column([limit or vocabulary for limit in limits], torch.int64),
            top_p=column([decode.top_p for decode in decodes], floats),
            samples=any(decode.temperature > 0 for decode in decodes),
            largest_k=max((limit for limit in limits if limit < vocabulary), default=0),
            cuts_p=any(decode.top_p < 1 for decode in decodes),
        )

    def part(self, rows: slice | Tensor) -> RowSettings:
        """The settings of some of the rows."""
        chosen: dict[str, Any] = {
            name: value[rows] for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **chosen)


def draw_tokens(
    logits: Tensor, settings: RowSettings, position: int | Tensor, at_once: int = 1 << 62
) -> Tensor:
    """The token of each row at ``position`` of its answer: (rows, vocabulary) to int64 (rows,).

    Never looks at the device's numbers, so it may be captured in a graph. Where whole distributions
    are needed, those of ``at_once`` rows are held at a time.
    """
    plain = not (settings.largest_k or settings.cuts_p)
    if plain and settings.samples and logits.shape[-1] > BLOCK:
        return sample_in_blocks(logits, settings, position)
    if len(logits) > at_once:
        parts = [slice(start, start + at_once) for start in range(0, len(logits), at_once)]
        return torch.cat(
            [draw_tokens(logits[rows], settings.part(rows), position) for rows in parts]
        )
    greedy = logits.argmax(-1)  # the first, so the lowest id, among equals
    if not settings.samples:
        return greedy
    drawn = invert_cdf(
        probabilities(logits.to(_widest_dtype(logits.device)), settings),
        uniforms(settings.keys, position),
    )
    return torch.where(settings.greedy, greedy, drawn)


def sample_in_blocks(logits: Tensor, settings: RowSettings, position: int | Tensor) -> Tensor:
    """The same token as inverting the whole distribution gives, where no token is cut from it."""
    vocabulary = logits.shape[-1]
    # times a logit it must stay finite
    scale = settings.temperature.float().clamp(min=1e-30).reciprocal()
    tops, sums = _block_sums(logits, scale)
    highest = tops.amax(-1, keepdim=True)
    exact = wide(logits.device)
    mass = (sums * (tops - highest).exp()).to(exact)
    upto = mass.cumsum(-1)
    target = _clip_below(uniforms(settings.keys, position).to(exact)[:, None] * upto[:, -1:], upto)
    block = torch.searchsorted(upto, target, right=True).clamp(max=tops.shape[-1] - 1)
    block = torch.where(settings.greedy[:, None], tops.argmax(-1, keepdim=True), block)
    columns = block * BLOCK + torch.arange(BLOCK, device=logits.device)
    inside = (
        logits.gather(-1, columns.clamp(max=vocabulary - 1))
        .float()
        .masked_fill(columns >= vocabulary, -torch.inf)
    )
    within = (inside * scale[:, None] - highest).exp().to(exact).cumsum(-1)
    rest = target - (upto - mass).gather(-1, block)
    token = torch.searchsorted(within, _clip_below(rest.clamp(min=0), within), right=True)
    token = torch.where(settings.greedy[:, None], inside.argmax(-1, keepdim=True), token)
    return (block * BLOCK + token)[:, 0].clamp(max=vocabulary - 1)


def _block_sums(logits: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Of each block of scaled ``logits``: the largest, and the sum of exponentials once that is
    taken off; float32."""
    if logits.is_cuda:
        from stageb.engines.native import kernels

        return kernels.block_sums(logits, scale, BLOCK)
    missing = -logits.shape[-1] % BLOCK
    padded = torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
    blocks = padded.view(len(logits), -1, BLOCK).float() * scale[:, None, None]
    tops = blocks.amax(-1).clamp(min=torch.finfo(torch.float32).min)
    return tops, (blocks - tops[..., None]).exp().sum(-1)


def _clip_below(target: Tensor, cumulative: Tensor) -> Tensor:
    """``target`` (rows, 1) strictly below each row's total, so that a token with a positive
    probability is always found."""
    total = cumulative[:, -1:]
    return torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))


def probabilities(logits: Tensor, settings: RowSettings) -> Tensor:
    """softmax(logits / temperature), (rows, vocabulary), 0 where top-k or top-p cuts; not scaled to
    1 after top-p."""
    # Taking the maximum off first keeps a temperature near 0 from overflowing.
    scaled = (logits - logits.amax(-1, keepdim=True)) / settings.temperature[:, None]
    if settings.largest_k:
        scaled = scaled.masked_fill(scaled < _kth_largest(scaled, settings), -torch.inf)
    result = scaled.softmax(-1)
    if settings.cuts_p:
        result = result.masked_fill(result < _least_kept(result, settings.top_p), 0.0)
    return result


def _kth_largest(scaled: Tensor, settings: RowSettings) -> Tensor:
    """The value of the last token that top-k keeps, (rows, 1); minus infinity where it keeps
    all."""
    largest = scaled.topk(settings.largest_k).values
    limited = settings.top_k <= settings.largest_k
    last = largest.gather(-1, (settings.top_k.clamp(max=settings.largest_k) - 1)[:, None])
    return torch.where(limited[:, None], last, -torch.inf)


def _least_kept(probability: Tensor, top_p: Tensor) -> Tensor:
    """The probability of the last token that top-p keeps, (rows, 1); 0 where it keeps all."""
    falling = probability.sort(-1, descending=True).values
    # before the last one
    kept = (falling.cumsum(-1, dtype=wide(falling.device)) < top_p[:, None]).sum(-1, keepdim=True)
    last = falling.gather(-1, kept.clamp(max=falling.shape[-1] - 1))
    return torch.where(top_p[:, None] < 1, last, 0.0)


def invert_cdf(probability: Tensor, uniform: Tensor) -> Tensor:
    """The token at ``uniform`` (rows,) of each row's cumulative distribution (rows, vocabulary),
    which need not sum to 1."""
    cumulative = probability.cumsum(-1, dtype=wide(probability.device))
    target = _clip_below(uniform[:, None] * cumulative[:, -1:], cumulative)
    found = torch.searchsorted(cumulative, target, right=True)[:, 0]
    return found.clamp(max=probability.shape[-1] - 1)


TextOf = Callable[[Sequence[int]], str]  # ids to text

# an id from here on is one of an image's places in a prompt, and names the image (``vision.py``)
PICTURE = 1 << 62


@dataclass(frozen=True, slots=True)
class Answer:
    """The ids of one sampled answer, the closing one included, and what ended it."""

    ids: Ids
    finish: Finish


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """One question to score: the prompt's ids after the shared ones, and the ids of each answer to
    weigh."""

    own: Ids
    answers: tuple[Ids, ...]

    @property
    def common(self) -> Ids:
        """The ids that all answers begin with."""
        return tuple(
            ids[0]
            for ids in takewhile(lambda ids: len(set(ids)) == 1, zip(*self.answers, strict=False))
        )


class PartialAnswer:
    """An answer of ``row`` while it is being decoded, of ``limit`` tokens at most; ``eos`` are the
    ids that end it."""

    def __init__(self, row: Row, limit: int, eos: frozenset[int], text_of: TextOf) -> None:
        self.row = row
        self.limit = limit
        self.ids: list[int] = []
        self.finish: Finish | None = None
        self._eos = eos
        self._text_of = text_of
        # A token gives at least one byte, so a stop string that has just been completed lies within
        # this many tokens.
        self._tail = max((len(stop.encode()) for stop in row.decode.stop), default=0) + 4

    def extend(self, ids: Sequence[int]) -> None:
        """Take in what the model went on with, up to the end of the answer."""
        if not self.finish:
            self._take(ids[: self.limit - len(self.ids)])

    def answer(self) -> Answer:
        """Return the answer so far, or the whole one."""
        return Answer(tuple(self.ids), self.finish or "length")

    def _take(self, ids: Sequence[int]) -> None:
        ends = not self._eos.isdisjoint(ids) or self._completes_stop(
            [*self.ids[-self._tail :], *ids]
        )
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


def begin_answers(
    rows: Sequence[Row], shared: int, longest: int, eos: frozenset[int], text_of: TextOf
) -> list[PartialAnswer]:
    """Begin an answer to each row, whose prompt stands behind ``shared`` tokens; none goes beyond
    the ``longest`` text that the model reads."""
    return [
        PartialAnswer(
            row, min(row.decode.max_new_tokens, longest - shared - len(row.own)), eos, text_of
        )
        for row in rows
    ]


def list_prompts(rows: Sequence[Row]) -> tuple[list[Ids], list[int]]:
    """The own prompts of rows, each once, and the number of each row's."""
    prompts = list(dict.fromkeys(row.own for row in rows))
    place = {own: number for number, own in enumerate(prompts)}
    return prompts, [place[row.own] for row in rows]


def make_settings(
    answers: Sequence[PartialAnswer], vocabulary: int, device: torch.device
) -> RowSettings:
    """How ``answers`` sample."""
    rows = [answer.row for answer in answers]
    return RowSettings.of(
        [row.decode for row in rows], [row.key for row in rows], vocabulary, device
    )


def has_image(text: Ids) -> bool:
    """Whether an image stands in ``text``."""
    return max(text, default=0) >= PICTURE


def check_not_nan(logits: Tensor) -> None:
    """Raise ``EngineError`` where a model's logits are none."""
    if logits.isnan().any():
        raise EngineError(
            "the model's logits are not numbers (NaN); load it with model.torch_dtype float32 "
            "or bfloat16, and if they stay so, its weights hold NaN: take another copy of the "
            "checkpoint"
        )


@dataclass
class LiveBatch:
    """The rows that step together; every tensor has one element or line for each."""

    answers: list[PartialAnswer]
    past: Past
    mask: Tensor  # (rows, columns to come included): 0 on padding
    cached: int  # columns of the mask that the prompts take
    positions: Tensor  # int64 (rows,): of each answer's first token
    settings: RowSettings

    @classmethod
    def of(
        cls,
        answers: list[PartialAnswer],
        past: Past,
        mask: Tensor,
        positions: Tensor,
        vocabulary: int,
    ) -> LiveBatch:
        """Rows whose prompts fill ``mask`` (rows, columns), before their first step."""
        room = mask.new_ones(len(mask), max(answer.limit for answer in answers))
        settings = make_settings(answers, vocabulary, mask.device)
        return cls(answers, past, torch.cat([mask, room], 1), mask.shape[1], positions, settings)

    def keep(self, places: list[int], index: Tensor, logits: Tensor) -> None:
        """Leave out all rows but ``places``; ``index`` holds the same on the device."""
        if prompts := self.past.prompts:
            prompt_of = index // (len(self.answers) // len(prompts[0][0]))
            self.past = replace(
                self.past,
                prompts=[(keys[prompt_of], values[prompt_of]) for keys, values in prompts],
            )
        self.answers = [self.answers[place] for place in places]
        self.past.cache.reorder_cache(index)
        self.mask, self.positions = self.mask[index], self.positions[index]
        self.settings = make_settings(self.answers, logits.shape[-1], logits.device)


def sum_picked(
    chances: Tensor, tokens: Sequence[Sequence[int | None]], from_the_end: bool = False
) -> Tensor:
    """The sum of ``chances`` (rows, columns, vocabulary) over each row's ``tokens``, one a column,
    None for none: (rows,).

    Rows may be shorter than the columns: they begin at the first, or end at the last
    ``from_the_end``.
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
