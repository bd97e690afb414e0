"""Rows of tokens as they are trained on: documents packed behind each other, and what each token of
them may see.

A document is a prefix, read once, and segments that follow it, each as if the others were not
there.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

VERDICT_WEIGHT = 6.0  # a verdict is one token of twenty, and the one that counts
PROMPT_WEIGHT = 0.5  # of the prompt tokens that are predicted at all
SEGMENTS = 64  # more than a document has
FULL = 3  # a batch is full when so many documents in a row fit nowhere


@dataclass(frozen=True)
class Batch:
    """Packed rows: documents, each a prefix and segments that follow it."""

    ids: torch.Tensor  # (rows, length) token ids
    positions: torch.Tensor  # (rows, length): a segment continues where its prefix ends
    # (rows, length): SEGMENTS x document, plus 0 for its prefix or 1... for a segment; -1: padding
    segments: torch.Tensor
    spots: torch.Tensor  # (answers,) where in the flattened rows a prediction is made
    targets: torch.Tensor  # (answers,) the token that follows
    # (answers,) its loss weight; 0 where there are fewer predictions than room for them
    weights: torch.Tensor


@dataclass(frozen=True)
class Packed:
    """One document, or several after another: four lists of one length."""

    ids: list[int]
    positions: list[int]
    segments: list[int]
    weights: list[float]  # loss weight of predicting this token


def pack(
    prefix: list[int],
    parts: Sequence[tuple[list[int], list[int]]],
    shares: Sequence[float],
    length: int,
) -> Packed | None:
    """One document; segments beyond ``length`` are left out, and None is what remains where not
    even the first fits."""
    packed = Packed(list(prefix), list(range(len(prefix))), [0] * len(prefix), [0.0] * len(prefix))
    for number, (own, answer) in enumerate(parts[: SEGMENTS - 1], 1):
        size = len(own) + len(answer)
        if len(packed.ids) + size > length:
            break
        packed.ids.extend(own + answer)
        packed.positions.extend(range(len(prefix), len(prefix) + size))
        packed.segments.extend([number] * size)
        share = shares[number - 1] if shares else 1.0
        # "Verdict:" is one or two tokens; the verdict itself is among the first four of an answer
        weights = [VERDICT_WEIGHT if own and spot < 4 else share for spot in range(len(answer))]
        if not own and number > 1:
            weights[0] = 0.0  # follows the prefix, behind which only the first answer stands
        packed.weights.extend([0.0] * len(own) + weights)
    return packed if len(packed.ids) > len(prefix) else None


def with_prompt(document: Packed, share: float, rng: random.Random) -> Packed:
    """The document with some of its prompt tokens to predict. The first token of a segment follows
    no token of its own."""
    before = [-1, *document.segments[:-1]]
    weights = [
        PROMPT_WEIGHT if not weight and here == last and rng.random() < share else weight
        for weight, here, last in zip(document.weights, document.segments, before, strict=True)
    ]
    return Packed(document.ids, document.positions, document.segments, weights)


def fill(documents: Iterator[Packed], rows: int, length: int) -> list[Packed]:
    """Rows of documents, each put into the first row that has room for it."""
    filled = [Packed([], [], [], []) for _ in range(rows)]
    count, misses = [0] * rows, 0
    while misses < FULL:
        document = next(documents)
        row = next(
            (i for i in range(rows) if len(filled[i].ids) + len(document.ids) <= length), None
        )
        if row is None:
            misses += 1
            continue
        misses = 0
        into = filled[row]
        into.ids.extend(document.ids)
        into.positions.extend(document.positions)
        into.segments.extend(SEGMENTS * count[row] + segment for segment in document.segments)
        into.weights.extend(document.weights)
        count[row] += 1
    return filled


def batch_of(rows: Sequence[Packed], length: int, answers: int) -> Batch:
    """The rows padded to ``length``, and their first ``answers`` predictions."""

    def padded(lists: Sequence[list[int]], value: int) -> torch.Tensor:
        return torch.tensor([each + [value] * (length - len(each)) for each in lists])

    found = [
        (row * length + spot - 1, packed.ids[spot], weight)
        for row, packed in enumerate(rows)
        for spot, weight in enumerate(packed.weights)
        if weight
    ]
    found = found[:answers] + [(0, 0, 0.0)] * (answers - len(found))
    spots, targets, weights = zip(*found, strict=True)
    return Batch(
        padded([packed.ids for packed in rows], 0),
        padded([packed.positions for packed in rows], 0),
        padded([packed.segments for packed in rows], -1),
        torch.tensor(spots),
        torch.tensor(targets),
        torch.tensor(weights),
    )


def visible(segments: torch.Tensor) -> Any:
    """The mask function: a token sees its document's prefix and its own segment, up to itself."""

    def mask(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        theirs, mine = segments[b, k], segments[b, q]
        return (k <= q) & ((theirs == mine) | (theirs == (mine & -SEGMENTS)))

    return mask


def attention_mask(segments: torch.Tensor, compiled_block_mask: Any) -> Any:
    """A block mask for flex attention on a GPU, a dense one of shape (rows, 1, length, length)
    elsewhere."""
    rows, length = segments.shape
    if segments.is_cuda:
        return compiled_block_mask(
            visible(segments), rows, None, length, length, device=segments.device
        )
    q, k = torch.arange(length)[:, None], torch.arange(length)[None, :]
    theirs, mine = segments[:, None, :], segments[:, :, None]
    return ((k <= q)[None] & ((theirs == mine) | (theirs == (mine & -SEGMENTS))))[:, None]


def to_device(batch: Batch, device: str) -> Batch:
    """The batch on a device."""
    parts = (batch.ids, batch.positions, batch.segments, batch.spots, batch.targets, batch.weights)
    return Batch(*(part.to(device, non_blocking=True) for part in parts))
