"""Memory: from a CPU's to a device's, work in batches that it holds, and freed memory that stays the process's own."""

from __future__ import annotations

import ctypes
import functools
import logging
import mmap
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from stageb.errors import EngineError
from stageb.job import heartbeat


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor`` on ``device``. The processor goes on at once, where else it would wait until a GPU has done all that it was
    told before."""
    if torch.device(device).type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


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


# Memory that a process has freed stays its own: on a CPU every pass of a model asks for the same few MiB again.
#
# By default glibc hands large blocks back to the kernel as they are freed, and every page of the next one is a page fault.
# With these thresholds they stay on the heap, which takes huge pages where the kernel lets it: ``lab/notes/speed.md``.


# Parameters of mallopt(3), as <malloc.h> numbers them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3

LARGEST = 32 << 20  # bytes of a block on the heap, the most that glibc lets us ask for; larger ones are mapped as before
KEPT = 1 << 30  # bytes free at the heap's end that stay there
RESERVED = 512 << 20  # bytes that the heap grows by, of which only those that are used take memory
HUGE_PAGE = 2 << 20


@functools.cache
def keep_freed() -> None:
    """Have this process keep on its heap what it frees from now on. Does nothing without glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_THRESHOLD, LARGEST)
    libc.mallopt(_TRIM_THRESHOLD, KEPT)
    libc.mallopt(_TOP_PAD, RESERVED)
    _take_huge_pages(libc)


def _take_huge_pages(libc: ctypes.CDLL) -> None:
    """Grow the heap by what is reserved, and ask for huge pages there; where that is refused, small ones do."""
    libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
    start = libc.sbrk(0)
    blocks: list[int | None] = []
    while libc.sbrk(0) == start and len(blocks) < KEPT // LARGEST:
        blocks.append(libc.malloc(ctypes.c_size_t(LARGEST // 2)))
    for block in blocks:
        libc.free(ctypes.c_void_p(block))
    first = -(-start // HUGE_PAGE) * HUGE_PAGE
    libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(libc.sbrk(0) - first), mmap.MADV_HUGEPAGE)
