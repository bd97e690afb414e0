"""Prompts packed without padding, then decode steps replayed from a captured CUDA graph.

*Reading*: prompts go through the model in chunks of ``CHUNK`` tokens, one line (1, tokens) without
padding. *Stepping*: all rows (answers) take one token per step. A step (embedding, layers, logits,
draw, bookkeeping) has fixed shapes and never reads a number from the device, so on a GPU it is
captured once and replayed; the host reads the tokens of ``STEPS_PER_LOOK`` steps while the device
computes the next. When fewer than ``COMPACT_BELOW`` of the rows are live, the rest leave and the
smaller batch is captured anew. Keys and values stay in place: a row keeps its slot.

Attention over the shared text, each prompt and each row's new tokens: ``attention.py``. Memory, in
bytes per batch, is planned from what the device has free at the call: ``MEMORY`` of it holds keys,
values and logits.

Figures, and what was tried and lost: ``lab/notes/engines.md``.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from stageb.engines.native.attention import (
    Envelope,
    Prefill,
    PromptStore,
    Stem,
    Stepping,
    group_rows,
    has_flash,
    make_tiles,
)
from stageb.engines.native.memory import Cache, unpack
from stageb.engines.native.products import is_quantized
from stageb.engines.native.rows import (
    Answer,
    PartialAnswer,
    RowSettings,
    ScoreRequest,
    TextOf,
    begin_answers,
    check_not_nan,
    draw_tokens,
    list_prompts,
    make_settings,
)
from stageb.engines.native.vision import TextInputs
from stageb.engines.protocol import Ids, Row
from stageb.job import heartbeat
from stageb.job.process import collector_off

CHUNK = 16384  # tokens of prompts that are read at once: enough to keep the matrix units busy
# and elsewhere: on a CPU its caches hold no more, in float32 on a GPU all scores stand in memory
CHUNK_WHOLE = 2048
ROWS = 4096  # answers that step together at most: more would step no faster
STEPS_PER_LOOK = 4
COMPACT_BELOW = 0.75  # a smaller share of live rows is worth a new graph ...
FEW = 64  # ... but not for so few rows: their steps wait for the weights alone
# tokens that a call must read and write for the compilation to be worth its wait
FUSE_FROM = 16_384
# rows whose whole distributions are sorted at once, where top-k or top-p asks for it
CUT_ROWS = 256
NOTHING: Mapping[str, Any] = MappingProxyType({})
MEMORY = 0.85  # the share of what is free that may hold keys, values and logits
# parts of a device's memory, by which it is planned: equal calls are cut alike, whatever little
# else is kept
GRAINS = 32
BYTES_ELSEWHERE = 1 << 30  # what a batch may hold on a CPU


class Packed:
    """Reads and steps with ``model``, on one device, whose layers all keep ``key heads`` x ``dim``
    keys and values."""

    def __init__(
        self,
        model: Any,
        eos: frozenset[int],
        text_of: TextOf,
        longest: int,
        like: list[Stem],
        eyes: TextInputs,
    ) -> None:
        self.eyes = eyes
        self._model = model
        self._eos = eos
        self._text_of = text_of
        self._longest = longest
        self._like = like[0][0]  # keys of any text, for their shape and type
        self._layers = len(like)
        self._float8 = is_quantized(model)
        config = model.config.get_text_config(decoder=True)
        self._vocabulary: int = config.vocab_size
        self._lines: int = config.num_attention_heads // self._like.shape[1]
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._device: torch.device = self._like.device
        # A mask of four dimensions is taken as it is; the views do the masking.
        self._no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self._device)
        self._fused: dict[Any, Callable[..., Any]] | None = None

    def batches(self, rows: Sequence[Row]) -> Iterator[list[int]]:
        """Yield places in ``rows`` by growing length, rows of one prompt together, in batches that
        fit into free memory."""
        free = self._free_bytes()
        per_token = self._layers * 2 * self._like[0, :, 0].nbytes
        # logits, and what is made of them
        per_row = self._vocabulary * (self._like.element_size() + 2)
        batch: list[int] = []
        per_prompt_token = per_token // self._like.element_size() if self._float8 else per_token
        used, last = 0, None
        for index in sorted(
            range(len(rows)), key=lambda index: (len(rows[index].own), rows[index].own)
        ):
            row = rows[index]
            cost = row.decode.max_new_tokens * per_token + per_row
            own = len(row.own) * per_prompt_token
            if batch and (len(batch) == ROWS or used + cost + own > free):
                yield batch
                batch, used, last = [], 0, None
            used += cost + (own if row.own != last else 0)
            last = row.own
            batch.append(index)
        if batch:
            yield batch

    def _free_bytes(self) -> int:
        """Bytes that a batch may take: asked of the device at every call, since another model may
        have come to it."""
        if self._device.type != "cuda":
            return BYTES_ELSEWHERE
        # what any model of this process no longer uses is free for this one
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self._device)
        grain = total // GRAINS
        return int(MEMORY * (free // grain * grain))

    def answers(self, shared: Ids, stems: list[Stem] | None, rows: list[Row]) -> list[Answer]:
        """Decode a batch that fits into memory, in which rows of one prompt stand together: their
        answers, in order. Raises ``EngineError`` where the model's logits are not numbers."""
        if self._device.type == "cuda":
            # so that what other batches left in pieces is no loss to this one's stores
            torch.cuda.empty_cache()
        prompts, prompt_of = list_prompts(rows)
        answers = begin_answers(rows, len(shared), self._longest, self._eos, self._text_of)
        limits = [answer.limit for answer in answers]
        store = PromptStore.of(self._like, self._layers, sum(map(len, prompts)), self._float8)
        new = self._make_store(len(rows), max(max(limits) - 1, 1))
        with self._run_compiled(sum(map(len, prompts)) + sum(limits)):
            logits = self.read(prompts, [1] * len(prompts), len(shared), stems, store)
            check_not_nan(logits)
            settings = make_settings(answers, logits.shape[-1], self._device)
            fork = self._tensor(prompt_of)
            parts = [slice(start, start + CUT_ROWS) for start in range(0, len(rows), CUT_ROWS)]
            first = torch.cat(
                [draw_tokens(logits[fork[part]], settings.part(part), 0) for part in parts]
            )
            del logits
            edges = [0, *accumulate(map(len, prompts))]
            batch = _PackedRows(
                answers=answers,
                prompts=[(edges[index], len(prompts[index])) for index in prompt_of],
                tokens=first,
                positions=self._tensor(
                    [self.eyes.find_next_position(row.own, len(shared)) for row in rows]
                ),
                slots=torch.arange(len(rows), dtype=torch.int32, device=self._device),
                counts=torch.zeros(len(rows), dtype=torch.int32, device=self._device),
                step=torch.ones(1, dtype=torch.int64, device=self._device),
                history=torch.empty(max(limits), len(rows), dtype=torch.int64, device=self._device),
                settings=settings,
            )
            self._step_to_the_end(batch, stems, store, new)
        return [answer.answer() for answer in answers]

    def scores(
        self, shared: Ids, stems: list[Stem] | None, choices: list[ScoreRequest]
    ) -> list[tuple[float, ...]]:
        """For each choice of a batch, log p(answer | prompt) in nats of each of its answers: the
        sum over its tokens."""
        each = self.chances(shared, stems, choices)
        numbers = iter(torch.stack([part.sum() for part in each]).tolist())
        return [tuple(next(numbers) for _ in choice.answers) for choice in choices]

    def chances(
        self, shared: Ids, stems: list[Stem] | None, choices: list[ScoreRequest]
    ) -> Sequence[Tensor]:
        """Log-probabilities in nats of every token of every answer: a float32 tensor (tokens,) per
        answer, all choices' one after the other. Where answers differ in their last token alone, a
        prompt is read once for all of them."""
        texts: list[Ids] = []
        keep: list[int] = []
        # for each answer: which text ends before its last token, and its ids
        asked: list[tuple[int, Ids]] = []
        for choice in choices:
            for ids in choice.answers:
                text = choice.own + ids[:-1]
                if not (texts and texts[-1] == text and keep[-1] == len(ids)):
                    texts.append(text)
                    keep.append(len(ids))
                asked.append((len(texts) - 1, ids))
        edges = [0, *accumulate(keep)]
        with self._run_compiled(sum(map(len, texts))):
            logits = self.read(texts, keep, len(shared), stems, None)
        check_not_nan(logits)
        chances = logits.log_softmax(-1, dtype=torch.float32)
        lines = self._tensor(
            [edges[text] + place for text, ids in asked for place in range(len(ids))]
        )
        tokens = self._tensor([token for _, ids in asked for token in ids])
        return torch.split(chances[lines, tokens], [len(ids) for _, ids in asked])

    def read(
        self,
        texts: list[Ids],
        keep: list[int],
        before: int,
        stems: list[Stem] | None,
        store: PromptStore | None,
    ) -> Tensor:
        """Read ``texts`` behind ``before`` tokens: the logits (sum of keep, vocabulary) behind the
        last ``keep`` of each."""
        found: list[Tensor] = []
        # All that the device is told is sent before it has work: sending waits for what it is at.
        ids = self._tensor([token for text in texts for token in self.eyes.replace_images(text)])
        positions = self._tensor(self.eyes.list_positions(texts, before))
        chunks = []
        for chunk in _cut_chunks(texts, CHUNK if has_flash(self._like) else CHUNK_WHOLE):
            edges = [0, *accumulate(len(texts[index]) for index in chunk)]
            ends = zip(edges[1:], chunk, strict=True)
            kept = self._tensor(
                [place for end, index in ends for place in range(end - keep[index], end)]
            )
            tiles = self._tensor(make_tiles(edges), torch.int32)
            chunks.append((edges, tiles, kept, [texts[index] for index in chunk]))
        start = 0
        for edges, tiles, kept, read in chunks:
            view = Prefill(stems, edges, tiles, store, start)
            span = slice(start, start + edges[-1])
            found.append(
                self._forward(
                    ids[span], positions[..., span], view, kept, self.eyes.make_arguments(read)
                )
            )
            start = span.stop
            heartbeat.tick()
        return torch.cat(found)

    def read_into(
        self, cache: Cache, prompts: list[Ids], before: int, stems: list[Stem] | None
    ) -> Tensor:
        """Read ``prompts`` behind ``before`` tokens into the rows of an empty ``cache``, padded on
        the left: the logits (prompts, vocabulary) behind each."""
        lengths, (_, heads, _, dim) = list(map(len, prompts)), self._like.shape
        stores = [self._like.new_empty(2, heads, sum(lengths), dim) for _ in range(self._layers)]
        logits = self.read(prompts, [1] * len(prompts), before, stems, PromptStore(stores))
        unpack(stores, lengths, cache)
        return logits

    def _forward(
        self,
        ids: Tensor,
        positions: Tensor,
        view: Prefill | Stepping,
        keep: Tensor | None = None,
        shown: Mapping[str, Any] = NOTHING,
    ) -> Tensor:
        """Logits (tokens, vocabulary) behind each of ``ids`` (tokens,), or behind those at ``keep``
        alone; ``positions`` are (tokens,), or (3, tokens) among images, of which the model is told
        what is ``shown``."""
        out = self._model(
            input_ids=ids[None],
            position_ids=positions[..., None, :],
            attention_mask=self._no_mask,
            use_cache=False,
            packed=Envelope(view),
            **shown,
            **({"logits_to_keep": keep} if self._keeps and keep is not None else {}),
        )
        logits: Tensor = out.logits[0]
        return logits if self._keeps or keep is None else logits[keep]

    def _step_to_the_end(
        self, batch: _PackedRows, stems: list[Stem] | None, store: PromptStore, new: Tensor
    ) -> None:
        """Decode the rows of ``batch`` to their ends. Looks are read one behind: the device does
        not wait for the host."""
        limit = max(answer.limit for answer in batch.answers)
        view = self._view(batch, stems, store, new)
        batch.history[0] = batch.tokens
        looks = deque([_Look(batch, 0, 1)])
        launched = 1
        while looks:
            while launched < limit and len(looks) < 2:
                steps = min(STEPS_PER_LOOK, limit - launched)
                for _ in range(steps):
                    self._advance(batch, view)
                looks.append(_Look(batch, launched, steps))
                launched += steps
            looks.popleft().read()
            heartbeat.tick()
            going = [index for index, answer in enumerate(batch.answers) if answer.finish is None]
            if not going:
                return
            if (
                launched < limit
                and len(going) < COMPACT_BELOW * len(batch.answers)
                and len(batch.answers) > FEW
            ):
                batch = batch.keep_rows(going, self._tensor(going))
                view = self._view(batch, stems, store, new)

    def _view(
        self, batch: _PackedRows, stems: list[Stem] | None, store: PromptStore, new: Tensor
    ) -> Stepping:
        lengths = dict(batch.prompts)
        runs = group_rows([start for start, _ in batch.prompts], self._lines)
        return Stepping(
            stems=stems,
            prompts=store,
            new=new,
            groups=self._tensor(
                [(start, lengths[start], first, rows) for start, first, rows in runs], torch.int32
            ),
            members=max(rows for _, _, rows in runs),
            slots=batch.slots,
            counts=batch.counts,
        )

    def _advance(self, batch: _PackedRows, view: Stepping) -> None:
        """One step. On a GPU the first is taken plainly, which readies every kernel, and the second
        is captured."""
        if self._device.type != "cuda":
            self._step(batch, view)
        elif batch.graph is not None:
            batch.graph.replay()
        elif batch.fresh:
            self._step(batch, view)
            batch.fresh = False
        else:
            batch.graph = torch.cuda.CUDAGraph()
            with collector_off(), torch.cuda.graph(batch.graph):
                self._step(batch, view)
            batch.graph.replay()

    def _step(self, batch: _PackedRows, view: Stepping) -> None:
        """Feed each row's last token, and draw its next; every number stays on the device."""
        logits = self._forward(batch.tokens, batch.positions, view)
        tokens = draw_tokens(logits, batch.settings, batch.step, CUT_ROWS)
        batch.tokens.copy_(tokens)
        batch.history.index_copy_(0, batch.step, tokens[None])
        batch.counts.add_(1)
        batch.step.add_(1)
        # Rows that have ended step on until they are left out; they must not step out of the
        # model's context.
        batch.positions.add_(1).clamp_(max=self._longest - 1)

    def _make_store(self, slots: int, tokens: int) -> Tensor:
        """Room for keys and values: (layers, 2, slots, key heads, tokens, dim)."""
        _, heads, _, dim = self._like.shape
        return self._like.new_empty(self._layers, 2, slots, heads, tokens, dim)

    def _tensor(self, numbers: Sequence[Any], dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(numbers, dtype=dtype, device=self._device)

    @contextmanager
    def _run_compiled(self, tokens: int) -> Iterator[None]:
        """Run the layers' code fused by torch.compile, where ``tokens`` are worth it: by the call
        alone, so that equal calls have equal results."""
        if self._device.type != "cuda" or tokens < FUSE_FROM:
            yield
            return
        if self._fused is None:
            layers = [
                each
                for each in self._model.get_decoder().modules()
                if isinstance(each, GradientCheckpointingLayer)
            ]
            self._fused = {layer: torch.compile(layer.forward, dynamic=True) for layer in layers}
        for layer, fused in self._fused.items():
            layer.forward = fused
        try:
            yield
        finally:
            for layer in self._fused:
                del layer.forward  # the class's own again


@dataclass
class _PackedRows:
    """The rows that step together; every tensor has one element or line for each, but for ``step``
    and ``history``."""

    answers: list[PartialAnswer]
    prompts: list[tuple[int, int]]  # where each row's prompt begins in the store, and its length
    tokens: Tensor  # int64 (rows,): to feed next
    positions: Tensor  # int64 (rows,): of that token
    slots: Tensor  # int32 (rows,)
    counts: Tensor  # int32 (rows,): new tokens fed before
    step: Tensor  # int64 (1,): the place in its answer of the token to draw next
    history: Tensor  # int64 (steps, rows): all tokens drawn
    settings: RowSettings
    graph: torch.cuda.CUDAGraph | None = None
    fresh: bool = True

    def keep_rows(self, places: list[int], index: Tensor) -> _PackedRows:
        """The rows at ``places`` alone; ``index`` holds the same on the device."""
        return _PackedRows(
            answers=[self.answers[place] for place in places],
            prompts=[self.prompts[place] for place in places],
            tokens=self.tokens[index],
            positions=self.positions[index],
            slots=self.slots[index],
            counts=self.counts[index],
            step=self.step,
            history=self.history[:, index],
            settings=self.settings.part(index),
        )


class _Look:
    """The tokens of a few steps on their way to the host."""

    def __init__(self, batch: _PackedRows, first: int, steps: int) -> None:
        self._answers = batch.answers
        found = batch.history[first : first + steps]
        self._event = torch.cuda.Event() if found.is_cuda else None
        self._tokens = torch.empty_like(found, device="cpu", pin_memory=found.is_cuda)
        self._tokens.copy_(found, non_blocking=True)
        if self._event is not None:
            self._event.record()

    def read(self) -> None:
        """Wait for the tokens and hand them to the answers."""
        if self._event is not None:
            self._event.synchronize()
        for answer, new in zip(self._answers, self._tokens.t().tolist(), strict=True):
            answer.extend(new)


def _cut_chunks(texts: Sequence[Ids], most: int) -> Iterator[list[int]]:
    """Places in ``texts``, in order, in chunks of ``most`` tokens or less or of a single text."""
    chunk: list[int] = []
    tokens = 0
    for index, text in enumerate(texts):
        if chunk and tokens + len(text) > most:
            yield chunk
            chunk, tokens = [], 0
        chunk.append(index)
        tokens += len(text)
    if chunk:
        yield chunk
