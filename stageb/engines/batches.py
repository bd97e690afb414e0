"""Work on many rows in batches that a device's memory holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from stageb.errors import EngineError
from stageb.job import heartbeat

log = logging.getLogger(__name__)

Size = tuple[int, int]  # tokens of a prompt, and of its answer at most
T = TypeVar("T")
A = TypeVar("A")

ROWS = 256  # answers that step together at most
TOKENS = 1 << 18  # keys and values held at once at most, counted in tokens of all rows


def make_batches(sizes: Sequence[Size], most: int = TOKENS) -> Iterator[list[int]]:
    """Places in ``sizes`` (prompt, answer) by growing length of prompt, in batches within ``ROWS``, ``TOKENS``, and ``most``
    tokens of answers."""
    batch, new = list[int](), 0
    for index in sorted(range(len(sizes)), key=lambda index: sizes[index][0]):
        prompt, answer = sizes[index]
        new, rows = max(new, answer), len(batch) + 1
        if batch and (rows > ROWS or rows * (prompt + new) > TOKENS or rows * new > most):
            yield batch
            batch, new = [], answer
        batch.append(index)
    if batch:
        yield batch


@dataclass(frozen=True)
class Bounded(Generic[T, A]):
    """``work`` on a batch, or on its halves where the memory of ``device`` does not hold it."""

    work: Callable[[list[T]], list[A]]
    device: torch.device
    forget: Callable[[], None]  # lets go of what is kept from other batches

    def __call__(self, items: list[T], longest: int) -> list[A]:
        """What comes of ``items``, whose longest has so many tokens. Raises ``EngineError`` where one alone does not fit."""
        try:
            return self.work(items)
        except torch.cuda.OutOfMemoryError as error:
            if len(items) == 1:
                raise EngineError(
                    f"one prompt with its answer of up to {longest} tokens does not fit into the memory of {self.device}; "
                    "take a smaller model, or lower sampler.max_prompt_tokens or max_new_tokens"
                ) from error
        heartbeat.tick()
        # Outside the except block, where the error no longer holds the failed batch's tensors.
        self.forget()
        torch.cuda.empty_cache()
        half = len(items) // 2
        log.warning("out of memory on %s with %d rows: going on with %d", self.device, len(items), half)
        return self(items[:half], longest) + self(items[half:], longest)
