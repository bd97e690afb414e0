"""The decode loop: many sampled answers to prompts that begin alike, from one causal language model.

What is shared is computed once. The shared text is read in a batch of one and kept, as the stem of all rows
(``attention.py``); each prompt's own part is read once, padded on the left to the longest, and forked for its samples. Then
all rows step together, and rows that have ended leave the batch.

A plain loop over the model's forward pass, and not ``model.generate``, because ``generate`` reads a shared text once per
sample and draws from a global generator. Left out on purpose: static caches with compiled graphs and continuous batching,
both slower where this was measured on CPUs, the latter with answers that depend on the batch.
"""

from __future__ import annotations

import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar

import torch
from torch import Tensor

from stageb.engines import attention
from stageb.engines.attention import Stem
from stageb.engines.caches import Cache, begun, forked, grafted, shareable, stems_of
from stageb.engines.protocol import Decode, Finish
from stageb.engines.sampling import Settings, next_tokens
from stageb.errors import EngineError

log = logging.getLogger(__name__)

Ids = tuple[int, ...]
Size = tuple[int, int]  # tokens of a prompt, and of its answer at most
T = TypeVar("T")
A = TypeVar("A")

ROWS = 256  # answers that step together at most
TOKENS = 1 << 18  # keys and values held at once at most, counted in tokens of all rows
SHARED = 4  # shared texts whose keys and values are kept
COMPACT_BELOW = 0.75  # a batch with a smaller share of live rows is worth a copy without the others
STEPS_PER_LOOK = {"cpu": 1}  # steps between two looks at the tokens; on a GPU each look waits for the device
STEPS_PER_LOOK_ON_GPU = 4


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


class Decoder:
    """Samples and scores answers with ``model`` (a transformers causal language model in eval mode).

    ``eos`` are the ids that end an answer; ``text_of`` turns ids into text and is asked where stop strings are set.
    """

    def __init__(self, model: Any, eos: frozenset[int], text_of: Callable[[Sequence[int]], str]) -> None:
        self._model = model
        self._eos = eos
        self._text_of = text_of
        self._shared: OrderedDict[Ids, list[Stem]] = OrderedDict()
        config = model.config.get_text_config(decoder=True)
        self._longest: int = getattr(config, "max_position_embeddings", None) or 1 << 62
        self._shares = shareable(model.config)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        # Another attention than sdpa, asked for by name, keeps its own way: then each row holds a copy of what is shared.
        self._stemmed = self._shares and config._attn_implementation == "sdpa" and model._supports_attention_backend
        if self._stemmed:
            model.set_attn_implementation(attention.NAME)
        self._device: torch.device = model.get_input_embeddings().weight.device

    def answers(self, shared: Ids, rows: Sequence[Row]) -> list[Answer]:
        """An answer for each of ``rows``, which all begin with ``shared``; in order. The rows are cut into bounded batches.

        Raises ``EngineError`` for a prompt that fills the model's context, for logits that are not numbers, and where one
        row alone does not fit into the device's memory.
        """
        if not self._shares:  # such models read whole prompts, padded in front of everything
            shared, rows = (), [Row(shared + row.own, row.decode, row.key) for row in rows]
        sizes = [(len(shared) + len(row.own), row.decode.max_new_tokens) for row in rows]
        self._check_lengths((prompt, 1) for prompt, _ in sizes)
        return self._in_batches(rows, sizes, lambda batch: self._answered(shared, batch))

    def scores(self, shared: Ids, choices: Sequence[Choice]) -> list[tuple[float, ...]]:
        """The log-probability of each answer of each of ``choices``, which all begin with ``shared``; in order.

        What a choice's answers have in common is read with its prompt; answers that differ in their last token alone need
        nothing more. Raises as ``answers`` does.
        """
        if not self._shares:
            shared, choices = (), [Choice(shared + choice.own, choice.answers) for choice in choices]
        sizes = [(len(shared) + len(choice.own), max(map(len, choice.answers))) for choice in choices]
        self._check_lengths(sizes)
        return self._in_batches(choices, sizes, lambda batch: self._scored(shared, batch))

    def _check_lengths(self, sizes: Iterable[Size]) -> None:
        for prompt, answer in sizes:
            if prompt + answer > self._longest:
                raise EngineError(
                    f"a prompt of {prompt} tokens leaves no room for an answer of {answer} in the model's {self._longest}; "
                    "shorten the guidance or the ticket, or lower sampler.max_prompt_tokens"
                )

    def _in_batches(self, items: Sequence[T], sizes: Sequence[Size], work: Callable[[list[T]], list[A]]) -> list[A]:
        """``work`` done on ``items``, of ``sizes``, in bounded batches of like length; in order."""
        found: dict[int, A] = {}
        for batch in _batches(sizes):
            longest = sum(sizes[batch[-1]])
            found.update(zip(batch, self._bounded([items[index] for index in batch], longest, work), strict=True))
        return [found[index] for index in range(len(items))]

    def _bounded(self, items: list[T], longest: int, work: Callable[[list[T]], list[A]]) -> list[A]:
        """One batch, or its halves where the device's memory does not hold it."""
        try:
            return work(items)
        except torch.cuda.OutOfMemoryError as error:
            if len(items) == 1:
                raise EngineError(
                    f"one prompt with its answer of up to {longest} tokens does not fit into the memory of {self._device}; "
                    "take a smaller model, or lower sampler.max_prompt_tokens or max_new_tokens"
                ) from error
        # Outside the except block, where the error no longer holds the failed batch's tensors.
        self._shared.clear()
        torch.cuda.empty_cache()
        half = len(items) // 2
        log.warning("out of memory on %s with %d rows: going on with %d", self._device, len(items), half)
        return self._bounded(items[:half], longest, work) + self._bounded(items[half:], longest, work)

    @torch.inference_mode()
    def _scored(self, shared: Ids, choices: list[Choice]) -> list[tuple[float, ...]]:
        """Scores of one batch that fits."""
        stems = self._kept(shared) if shared else None
        cache = self._cache(stems, len(choices))
        commons = [choice.common for choice in choices]
        texts = [choice.own + common for choice, common in zip(choices, commons, strict=True)]
        mask, logits = self._read(texts, len(shared), cache, stems, keep=max(map(len, commons)) + 1)
        _must_be_numbers(logits)
        chances = logits.log_softmax(-1, dtype=torch.float32)
        # A row's last columns are those of the token before its common part and of that part itself.
        start = _picked(chances, [(*common, None) for common in commons], from_the_end=True)
        rests = [[ids[len(common) :] for ids in choice.answers] for choice, common in zip(choices, commons, strict=True)]
        flat = [(index, ids) for index, group in enumerate(rests) for ids in group]
        fork = self._on_device([index for index, _ in flat])
        scores = start[fork] + _picked(chances[fork, -1:], [ids[:1] for _, ids in flat])
        if longer := [place for place, (_, ids) in enumerate(flat) if len(ids) > 1]:
            tails = [flat[place][1] for place in longer]
            scores[self._on_device(longer)] += self._behind(tails, fork[self._on_device(longer)], mask, cache, stems)
        numbers = iter(scores.tolist())
        return [tuple(next(numbers) for _ in choice.answers) for choice in choices]

    def _behind(self, tails: list[Ids], fork: Tensor, mask: Tensor, cache: Cache, stems: list[Stem] | None) -> Tensor:
        """Log-probability (rows,) of all but the first of each of ``tails``, read behind the rows ``fork`` of ``cache``."""
        cache.reorder_cache(fork)
        fed = [ids[:-1] for ids in tails]
        width = max(map(len, fed))
        ids = torch.tensor([[*text, *[0] * (width - len(text))] for text in fed], device=self._device)
        mask = mask[fork]
        positions = mask.sum(-1, keepdim=True) + torch.arange(width, device=self._device)
        # Padding on the right, where no row looks at it: its columns need no mask, but must stay within the context.
        mask = torch.cat([mask, mask.new_ones(len(tails), width)], 1)
        logits = self._forward(ids, positions.clamp(max=self._longest - 1), mask, cache, stems, keep=width)
        return _picked(logits.log_softmax(-1, dtype=torch.float32), [text[1:] for text in tails])

    @torch.inference_mode()
    def _answered(self, shared: Ids, rows: list[Row]) -> list[Answer]:
        """Answers to one batch that fits."""
        prompts = list(dict.fromkeys(row.own for row in rows))
        place = {own: index for index, own in enumerate(prompts)}
        stems = self._kept(shared) if shared else None
        cache = self._cache(stems, len(prompts))
        mask, logits = self._read(prompts, len(shared), cache, stems)
        _must_be_numbers(logits)
        logits = logits[:, -1]
        answers = [_Growing(row, min(row.decode.max_new_tokens, self._longest - len(shared) - len(row.own))) for row in rows]
        fork = self._on_device([place[row.own] for row in rows])
        if len(rows) > len(prompts):
            cache.reorder_cache(fork)
        logits = logits[fork]
        live = _Live(
            answers=answers,
            cache=cache,
            stems=stems,
            mask=torch.cat([mask[fork], mask.new_ones(len(rows), max(answer.limit for answer in answers))], 1),
            cached=mask.shape[1],
            positions=self._on_device([len(shared) + len(row.own) for row in rows]),
            settings=_settings(answers, logits),
            seen=_seen(shared, rows, logits),
        )
        self._step_to_the_end(live, logits)
        return [Answer(tuple(answer.ids), answer.finish or "length") for answer in answers]

    def _step_to_the_end(self, live: _Live, logits: Tensor) -> None:
        """Decode the rows of ``live`` to their ends, from the logits (rows, vocabulary) behind their prompts."""
        limit = max(answer.limit for answer in live.answers)
        steps_per_look = STEPS_PER_LOOK.get(self._device.type, STEPS_PER_LOOK_ON_GPU)
        unseen: list[Tensor] = []
        for step in range(limit):
            tokens = next_tokens(logits, live.settings, step, live.seen)
            unseen.append(tokens)
            if len(unseen) == steps_per_look or step == limit - 1:
                for answer, new in zip(live.answers, torch.stack(unseen, 1).tolist(), strict=True):
                    answer.extend(new, self._eos, self._text_of)
                unseen = []
                going = [index for index, answer in enumerate(live.answers) if answer.finish is None]
                if not going:
                    return
                if len(going) < COMPACT_BELOW * len(live.answers):
                    index = self._on_device(going)
                    live.keep(going, index, logits)
                    tokens = tokens[index]
            if live.seen is not None:
                live.seen.scatter_(1, tokens[:, None], True)
            # Rows that have ended step on until they are left out; they must not step out of the model's context.
            positions = (live.positions + step).clamp(max=self._longest - 1)
            mask = live.mask[:, : live.cached + step + 1]
            logits = self._forward(tokens[:, None], positions[:, None], mask, live.cache, live.stems)[:, -1]

    def _on_device(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self._device)

    def _cache(self, stems: list[Stem] | None, rows: int) -> Cache:
        """A cache of ``rows`` rows that begin with ``stems``."""
        if stems is None:
            return begun(self._model.config)
        return grafted(stems) if self._stemmed else forked(stems, rows)

    def _kept(self, shared: Ids) -> list[Stem]:
        """The keys and values of ``shared``, always computed in a batch of one, so that keeping them changes nothing."""
        if shared not in self._shared:
            cache = begun(self._model.config)
            self._read([shared], 0, cache, None)
            self._shared[shared] = stems_of(cache)
            while len(self._shared) > SHARED:
                self._shared.popitem(last=False)
        self._shared.move_to_end(shared)
        return self._shared[shared]

    def _read(
        self, texts: Sequence[Ids], before: int, cache: Cache, stems: list[Stem] | None, keep: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Read ``texts`` behind ``before`` cached tokens: the mask of what is cached now, and the last ``keep`` logits."""
        longest = max(map(len, texts))
        padding = [longest - len(text) for text in texts]
        ids = torch.tensor([[0] * pad + list(text) for pad, text in zip(padding, texts, strict=True)])
        positions = torch.arange(longest) - torch.tensor(padding)[:, None]
        mask = torch.ones(len(texts), before + longest, dtype=torch.long)
        mask[:, before:] = positions >= 0
        mask = mask.to(self._device)
        positions = (positions.clamp(min=0) + before).to(self._device)
        return mask, self._forward(ids.to(self._device), positions, mask, cache, stems, keep)

    def _forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor, cache: Cache, stems: list[Stem] | None, keep: int = 1
    ) -> Tensor:
        """Logits (rows, keep, vocabulary) behind the last of ``ids`` (rows, columns); ``mask`` (rows, cached + columns)."""
        # A single step needs no causal pattern: building its mask from scratch would cost a look at the device.
        ready = self._stemmed and ids.shape[1] == 1
        out = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask[:, None, None, :].bool() if ready else mask,
            past_key_values=cache,
            use_cache=True,
            **({"logits_to_keep": keep} if self._keeps else {}),
            **({"stems": stems} if stems and self._stemmed else {}),
        )
        logits: Tensor = out.logits[:, -keep:]
        return logits


@dataclass
class _Live:
    """The rows that step together; every tensor has one element or line for each."""

    answers: list[_Growing]
    cache: Cache
    stems: list[Stem] | None  # what all rows begin with, where the cache does not hold it
    mask: Tensor  # (rows, columns to come included): 0 on padding
    cached: int  # columns of the mask that the prompts take
    positions: Tensor  # int64 (rows,): of each answer's first token
    settings: Settings
    seen: Tensor | None  # (rows, vocabulary): tokens of prompt and answer, where a repetition penalty asks for them

    def keep(self, places: list[int], index: Tensor, logits: Tensor) -> None:
        """Leave out all rows but ``places``; ``index`` holds the same on the device."""
        self.answers = [self.answers[place] for place in places]
        self.cache.reorder_cache(index)
        self.mask, self.positions = self.mask[index], self.positions[index]
        self.settings = _settings(self.answers, logits)
        self.seen = self.seen[index] if self.seen is not None else None


class _Growing:
    """An answer while it is being decoded."""

    def __init__(self, row: Row, limit: int) -> None:
        self.row = row
        self.limit = limit
        self.ids: list[int] = []
        self.finish: Finish | None = None
        # A token gives at least one byte, so a stop string that has just been completed lies within this many tokens.
        self._tail = max((len(stop.encode()) for stop in row.decode.stop), default=0) + 4

    def extend(self, ids: Sequence[int], eos: frozenset[int], text_of: Callable[[Sequence[int]], str]) -> None:
        """Take in what the model went on with, up to the end of the answer."""
        for token in ids:
            if self.finish:
                return
            self.ids.append(token)
            if token in eos or self._completes_stop(text_of):
                self.finish = "stop"
            elif len(self.ids) == self.limit:
                self.finish = "length"

    def _completes_stop(self, text_of: Callable[[Sequence[int]], str]) -> bool:
        stops = self.row.decode.stop
        if not stops:
            return False
        tail = text_of(self.ids[-self._tail :])
        return any(stop in tail for stop in stops)


def _settings(answers: Sequence[_Growing], logits: Tensor) -> Settings:
    """How ``answers`` sample from ``logits``."""
    rows = [answer.row for answer in answers]
    return Settings.of([row.decode for row in rows], [row.key for row in rows], logits.shape[-1], logits.device)


def _seen(shared: Ids, rows: Sequence[Row], logits: Tensor) -> Tensor | None:
    """Which tokens stand in each row's prompt, (rows, vocabulary); None where no repetition penalty asks for it."""
    if all(row.decode.repetition_penalty == 1 for row in rows):
        return None
    seen = torch.zeros_like(logits, dtype=torch.bool)
    for index, row in enumerate(rows):
        seen[index, torch.tensor([*shared, *row.own], device=seen.device)] = True
    return seen


def _must_be_numbers(logits: Tensor) -> None:
    if logits.isnan().any():
        raise EngineError("the model's logits are not numbers; load it with model.torch_dtype float32 or bfloat16")


def _picked(chances: Tensor, tokens: Sequence[Sequence[int | None]], from_the_end: bool = False) -> Tensor:
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


def _batches(sizes: Sequence[Size]) -> Iterator[list[int]]:
    """Places in ``sizes`` (prompt, answer) by growing length of prompt, in batches within ``ROWS`` and ``TOKENS``."""
    batch: list[int] = []
    new = 0
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index][0]):
        prompt, answer = sizes[index]
        new = max(new, answer)
        if batch and (len(batch) == ROWS or (len(batch) + 1) * (prompt + new) > TOKENS):
            yield batch
            batch, new = [], answer
        batch.append(index)
    if batch:
        yield batch
