"""The decode loop: many sampled answers to prompts that begin alike, from one causal language
model.

The shared text is read once, in a batch of one, and kept as the stem of all rows
(``attention.py``). The prompts' own parts are read packed (``packed.py``), and on a GPU decoded
there too. Elsewhere they are padded on the left to the longest, and all rows step together; a
prompt's samples share one copy of its keys and values until rows that have ended leave the batch.
Models that packing does not fit (sliding windows, recurrent state, attention of their own) are read
padded as well.

This is a loop over the model's forward pass rather than ``model.generate``, which reads a shared
text once per sample and draws from a global generator. Static caches with compiled graphs and
continuous batching are left out: ``lab/notes/engines.md``.
"""

from __future__ import annotations

import inspect
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from stageb.engines.native import attention
from stageb.engines.native.attention import Stem
from stageb.engines.native.memory import (
    Bounded,
    Cache,
    Past,
    Size,
    begin_cache,
    get_stems,
    graft_stems,
    is_shareable,
    make_batches,
)
from stageb.engines.native.packed import Packed
from stageb.engines.native.products import find_tolerance
from stageb.engines.native.rows import (
    Answer,
    LiveBatch,
    ScoreRequest,
    TextOf,
    begin_answers,
    check_not_nan,
    list_prompts,
    sum_picked,
)
from stageb.engines.native.stepping import Draft, step_to_the_end
from stageb.engines.native.vision import ImageInputs, TextInputs
from stageb.engines.protocol import Decode, Ids, Row
from stageb.errors import EngineError
from stageb.job import heartbeat

log = logging.getLogger(__name__)

T = TypeVar("T")
A = TypeVar("A")

LOGITS = 1 << 28  # that stand in memory at once, where every token of an answer is weighed
SHARED = 4  # shared texts whose keys and values are kept
PACKS = {"cpu", "cuda"}  # kinds of device on which prompts are read packed ...
STEPS_PACKED = {"cuda"}  # ... and on which rows step so


class Decoder:
    """Samples and scores answers with ``model`` (a transformers causal language model in eval
    mode).

    ``eos`` are the ids that end an answer; ``text_of`` turns ids into text and is asked where stop
    strings are set.
    """

    def __init__(self, model: Any, eos: frozenset[int], text_of: TextOf) -> None:
        self._model = model
        self._eos = eos
        self._text_of = text_of
        self._eyes = TextInputs()
        self._shared: OrderedDict[Ids, list[Stem]] = OrderedDict()
        config = model.config.get_text_config(decoder=True)
        self._longest: int = getattr(config, "max_position_embeddings", None) or 1 << 62
        self._shares = is_shareable(model.config)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        # Another attention than sdpa, asked for by name, keeps its own way: then each row holds a
        # copy of what is shared.
        # the latter where the model had a decoder before
        ours = config._attn_implementation in ("sdpa", attention.NAME)
        self._stemmed = self._shares and ours and model._supports_attention_backend
        if self._stemmed:
            model.set_attn_implementation(attention.NAME)
        self._device: torch.device = model.get_input_embeddings().weight.device

    @cached_property
    def _packed(self) -> Packed | None:
        """The packed way, where device and model are made for it; found out by reading a few tokens
        in both ways."""
        devices = {tensor.device for tensor in self._model.parameters()}
        if not self._stemmed or devices != {self._device} or self._device.type not in PACKS:
            return None
        try:
            packed, difference = self._try_packed()
        # whatever an unknown model or an old GPU brings: there is another way
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        else:
            if difference <= find_tolerance(self._model):
                return packed
            why = f"logits differ by {difference:.2g}"
        log.warning("%s: rows are padded, not packed: %s", self._model.config.model_type, why)
        return None

    @torch.inference_mode()
    def see(self, eyes: ImageInputs) -> None:
        """From now on prompts may show images. Raises ``ConfigError`` where they are not read as
        the model reads them."""
        self._eyes = eyes
        if self._packed:
            self._packed.eyes = eyes
        shared = tuple(range(1, 20)) if self._shares else ()
        text, wanted = eyes.trial(shared)
        check_not_nan(wanted)
        stems = self._read_shared(shared) if shared else None
        _, found = self._read_prompts([text], len(shared), self._make_cache(stems, 1), stems)
        eyes.check(found, wanted, find_tolerance(self._model))

    @property
    def _stepping(self) -> Packed | None:
        """The packed way, where it also takes the steps."""
        return self._packed if self._device.type in STEPS_PACKED else None

    @torch.inference_mode()
    def _try_packed(self) -> tuple[Packed, float]:
        """The packed way, after a step where it takes them, and how far it is from the plain one,
        as a share of the logits' norm."""
        shared, texts = tuple(range(1, 20)), [tuple(range(7, 40)), (5, 6)]
        stems = self._read_shared(shared)
        packed = Packed(self._model, self._eos, self._text_of, self._longest, stems, self._eyes)
        _, plain = self._read(texts, len(shared), self._make_cache(stems, len(texts)), stems)
        logits = packed.read(texts, [1, 1], len(shared), stems, None)
        if self._device.type in STEPS_PACKED:
            packed.answers(
                shared,
                stems,
                [Row(text, Decode(max_new_tokens=3), key) for key, text in enumerate(texts)],
            )
        return packed, float((logits - plain[:, 0]).float().norm() / plain.float().norm())

    def answers(self, shared: Ids, rows: Sequence[Row], draft: Draft | None = None) -> list[Answer]:
        """An answer for each of ``rows``, which all begin with ``shared``; in order. The rows are
        cut into bounded batches. What ``draft`` gives is fed ahead where rows step padded, and
        changes no answer (``stepping.py``).

        Raises ``EngineError`` for a prompt that fills the model's context, for logits that are not
        numbers, and where one row alone does not fit into the device's memory.
        """
        if not self._shares:  # such models read whole prompts, padded in front of everything
            shared, rows = (), [Row(shared + row.own, row.decode, row.key) for row in rows]
        sizes = [(len(shared) + len(row.own), row.decode.max_new_tokens) for row in rows]
        self._check_lengths((prompt, 1) for prompt, _ in sizes)
        batches = self._stepping.batches(rows) if self._stepping else make_batches(sizes)
        return self._work_in_batches(
            rows, sizes, batches, lambda batch: self._answer_batch(shared, batch, draft)
        )

    def scores(self, shared: Ids, choices: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        """The log-probability of each answer of each of ``choices``, which all begin with
        ``shared``; in order.

        What a choice's answers have in common is read with its prompt; answers that differ in their
        last token alone need nothing more. Raises as ``answers`` does.
        """
        if not self._shares:
            shared, choices = (
                (),
                [ScoreRequest(shared + choice.own, choice.answers) for choice in choices],
            )
        sizes = [
            (len(shared) + len(choice.own), max(map(len, choice.answers))) for choice in choices
        ]
        self._check_lengths(sizes)
        return self._work_in_batches(
            choices, sizes, make_batches(sizes), lambda batch: self._score_batch(shared, batch)
        )

    def chances(self, shared: Ids, choices: Sequence[ScoreRequest]) -> list[tuple[float, ...]]:
        """The log-probability of every token of the one answer of each of ``choices``; otherwise as
        ``scores``."""
        if not self._shares:
            shared, choices = (
                (),
                [ScoreRequest(shared + choice.own, choice.answers) for choice in choices],
            )
        sizes = [(len(shared) + len(choice.own), len(choice.answers[0])) for choice in choices]
        self._check_lengths(sizes)
        most = max(1, LOGITS // self._model.get_input_embeddings().num_embeddings)
        return self._work_in_batches(
            choices,
            sizes,
            make_batches(sizes, most),
            lambda batch: self._weigh_batch(shared, batch),
        )

    def forget(self) -> None:
        """The model's weights have changed: let go of what was read with the old ones."""
        self._shared.clear()

    def _check_lengths(self, sizes: Iterable[Size]) -> None:
        for prompt, answer in sizes:
            if prompt + answer > self._longest:
                raise EngineError(
                    f"a prompt of {prompt} tokens leaves no room for an answer of {answer} in "
                    f"the model's {self._longest}; shorten the guidance or the ticket, or lower "
                    "sampler.max_prompt_tokens"
                )

    def _work_in_batches(
        self,
        items: Sequence[T],
        sizes: Sequence[Size],
        batches: Iterable[list[int]],
        work: Callable[[list[T]], list[A]],
    ) -> list[A]:
        """``work`` done on ``items``, of ``sizes``, in ``batches`` of their places or less; in the
        order of ``items``."""
        bounded = Bounded(work, self._device, self.forget)
        found: dict[int, A] = {}
        for batch in batches:
            longest = max(sum(sizes[index]) for index in batch)
            found.update(
                zip(batch, bounded([items[index] for index in batch], longest), strict=True)
            )
        return [found[index] for index in range(len(items))]

    @torch.inference_mode()
    def _score_batch(self, shared: Ids, choices: list[ScoreRequest]) -> list[tuple[float, ...]]:
        """Scores of one batch that fits."""
        stems = self._read_shared(shared) if shared else None
        if self._packed:
            return self._packed.scores(shared, stems, choices)
        cache = self._make_cache(stems, len(choices))
        commons = [choice.common for choice in choices]
        texts = [choice.own + common for choice, common in zip(choices, commons, strict=True)]
        mask, logits = self._read(texts, len(shared), cache, stems, keep=max(map(len, commons)) + 1)
        check_not_nan(logits)
        chances = logits.log_softmax(-1, dtype=torch.float32)
        # A row's last columns are those of the token before its common part and of that part
        # itself.
        start = sum_picked(chances, [(*common, None) for common in commons], from_the_end=True)
        rests = [
            [ids[len(common) :] for ids in choice.answers]
            for choice, common in zip(choices, commons, strict=True)
        ]
        flat = [(index, ids) for index, group in enumerate(rests) for ids in group]
        fork = self._on_device([index for index, _ in flat])
        scores = start[fork] + sum_picked(chances[fork, -1:], [ids[:1] for _, ids in flat])
        if longer := [place for place, (_, ids) in enumerate(flat) if len(ids) > 1]:
            tails = [flat[place][1] for place in longer]
            rows = fork[self._on_device(longer)]
            starts = self._on_device(
                [self._eyes.find_next_position(text, len(shared)) for text in texts]
            )[rows]
            scores[self._on_device(longer)] += self._score_tails(
                tails, rows, starts, mask, Past(cache, stems)
            )
        numbers = iter(scores.tolist())
        return [tuple(next(numbers) for _ in choice.answers) for choice in choices]

    @torch.inference_mode()
    def _weigh_batch(self, shared: Ids, choices: list[ScoreRequest]) -> list[tuple[float, ...]]:
        """The chances of one batch that fits."""
        stems = self._read_shared(shared) if shared else None
        if self._packed:
            return [tuple(each.tolist()) for each in self._packed.chances(shared, stems, choices)]
        answers = [choice.answers[0] for choice in choices]
        texts = [choice.own + ids[:-1] for choice, ids in zip(choices, answers, strict=True)]
        _, logits = self._read(
            texts,
            len(shared),
            self._make_cache(stems, len(choices)),
            stems,
            keep=max(map(len, answers)),
        )
        check_not_nan(logits)
        chances = logits.log_softmax(-1, dtype=torch.float32)
        rows = zip(chances, answers, strict=True)
        each = [
            row[-len(ids) :].gather(-1, self._on_device(list(ids))[:, None]) for row, ids in rows
        ]
        return [tuple(part[:, 0].tolist()) for part in each]

    def _score_tails(
        self, tails: list[Ids], fork: Tensor, starts: Tensor, mask: Tensor, past: Past
    ) -> Tensor:
        """Log-probability (rows,) of all but the first of each of ``tails``, read from the
        positions ``starts`` (rows,) on behind the rows ``fork`` of ``past``."""
        past.cache.reorder_cache(fork)
        fed = [ids[:-1] for ids in tails]
        width = max(map(len, fed))
        ids = torch.tensor(
            [[*text, *[0] * (width - len(text))] for text in fed], device=self._device
        )
        mask = mask[fork]
        positions = starts[:, None] + torch.arange(width, device=self._device)
        # Padding on the right, where no row looks at it: its columns need no mask, but must stay
        # within the context.
        mask = torch.cat([mask, mask.new_ones(len(tails), width)], 1)
        logits = self._forward(ids, positions.clamp(max=self._longest - 1), mask, past, keep=width)
        return sum_picked(logits.log_softmax(-1, dtype=torch.float32), [text[1:] for text in tails])

    @torch.inference_mode()
    def _answer_batch(self, shared: Ids, rows: list[Row], draft: Draft | None) -> list[Answer]:
        """Answers to one batch that fits."""
        stems = self._read_shared(shared) if shared else None
        if self._stepping:
            return self._stepping.answers(shared, stems, rows)
        prompts, prompt_of = list_prompts(rows)
        cache = self._make_cache(stems, len(prompts))
        mask, logits = self._read_prompts(prompts, len(shared), cache, stems)
        check_not_nan(logits)
        answers = begin_answers(rows, len(shared), self._longest, self._eos, self._text_of)
        fork, samples = self._on_device(prompt_of), len(rows) // len(prompts)
        prompt_lines: list[Stem] | None = None
        if (
            stems
            and self._stemmed
            and samples > 1
            and prompt_of == [row // samples for row in range(len(rows))]
        ):
            prompt_lines = get_stems(cache)
            cache = graft_stems(stems, beyond=mask.shape[1] - len(shared))
        elif len(rows) > len(prompts):
            cache.reorder_cache(fork)
        logits = logits[fork]
        places = [self._eyes.find_next_position(row.own, len(shared)) for row in rows]
        past = Past(cache, stems, prompt_lines)
        live = LiveBatch.of(answers, past, mask[fork], self._on_device(places), logits.shape[-1])
        drafts = draft if self._stemmed else None
        step_to_the_end(live, logits, self._forward, self._longest, drafts)
        return [answer.answer() for answer in answers]

    def _on_device(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, device=self._device)

    def _make_cache(self, stems: list[Stem] | None, rows: int) -> Cache:
        return begin_cache(self._model.config, stems, rows, self._stemmed)

    def _read_shared(self, shared: Ids) -> list[Stem]:
        """The keys and values of ``shared``, always computed in a batch of one, so that keeping
        them changes nothing."""
        if shared not in self._shared:
            cache = self._make_cache(None, 1)
            self._read([shared], 0, cache, None)
            self._shared[shared] = get_stems(cache)
            while len(self._shared) > SHARED:
                self._shared.popitem(last=False)
        self._shared.move_to_end(shared)
        return self._shared[shared]

    def _read_prompts(
        self, prompts: list[Ids], before: int, cache: Cache, stems: list[Stem] | None
    ) -> tuple[Tensor, Tensor]:
        """Read ``prompts`` behind ``before`` shared tokens into ``cache``: its mask, and logits
        (prompts, vocabulary)."""
        if self._packed is None:
            mask, logits = self._read(prompts, before, cache, stems)
            return mask, logits[:, -1]
        lengths = [len(prompt) for prompt in prompts]
        logits = self._packed.read_into(cache, prompts, before, stems)
        longest = max(lengths)
        own = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
        return torch.cat([torch.ones(len(prompts), before), own], 1).long().to(self._device), logits

    def _read(
        self,
        texts: Sequence[Ids],
        before: int,
        cache: Cache,
        stems: list[Stem] | None,
        keep: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Read ``texts`` behind ``before`` cached tokens: the mask of what is cached now, and the
        last ``keep`` logits."""
        longest = max(map(len, texts))
        padding = [longest - len(text) for text in texts]
        ids = torch.tensor(
            [
                [0] * pad + list(self._eyes.replace_images(text))
                for pad, text in zip(padding, texts, strict=True)
            ]
        )
        positions = torch.arange(longest) - torch.tensor(padding)[:, None]
        mask = torch.ones(len(texts), before + longest, dtype=torch.long)
        mask[:, before:] = positions >= 0
        mask = mask.to(self._device)
        positions = positions.clamp(min=0) + before
        if shown := self._eyes.make_arguments(texts):  # which brings positions of three coordinates
            positions = torch.zeros(3, *positions.shape, dtype=torch.long)
            for row, text in enumerate(texts):
                positions[:, row, padding[row] :] = torch.tensor(
                    self._eyes.list_positions([text], before)
                )
        return mask, self._forward(
            ids.to(self._device), positions.to(self._device), mask, Past(cache, stems), keep, shown
        )

    def _forward(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: Past,
        keep: int = 1,
        shown: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """Logits (rows, keep, vocabulary) behind the last of ``ids`` (rows, columns); ``mask``
        (rows, cached + columns), or (rows, 1, columns, cached + columns); ``positions`` as ids, or
        three of them; the model is also told what is ``shown``."""
        # A single step needs no causal pattern: building its mask from scratch would cost a look at
        # the device.
        ready = self._stemmed and ids.shape[1] == 1
        out = self._model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask[:, None, None, :].bool() if ready and mask.ndim == 2 else mask,
            past_key_values=past.cache,
            use_cache=True,
            **(shown or {}),
            **({"logits_to_keep": keep} if self._keeps else {}),
            **({"stems": past.stems} if past.stems and self._stemmed else {}),
            **({"prompts": past.prompts} if past.prompts else {}),
        )
        heartbeat.tick()
        logits: Tensor = out.logits[:, -keep:]
        return logits
