"""Memory: transfers, work in batches that fit, and the keys and values of what a model has read."""

from __future__ import annotations

import ctypes
import functools
import logging
import mmap
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from stageb.engines.native.attention import Stem
from stageb.errors import EngineError
from stageb.job import heartbeat


def send(tensor: Tensor, device: torch.device | str) -> Tensor:
    """``tensor`` on ``device``. The processor goes on at once, where else it would wait until a GPU
    has done all that it was told before."""
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
    """Places in ``sizes`` (prompt, answer) by growing length of prompt, in batches within ``ROWS``,
    ``TOKENS``, and ``most`` tokens of answers."""
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
        """Return the results for ``items``, whose longest has ``longest`` tokens. Raises
        ``EngineError`` where a single one does not fit."""
        try:
            return self.work(items)
        except torch.cuda.OutOfMemoryError as error:
            if len(items) == 1:
                raise EngineError(
                    f"one prompt with its answer of up to {longest} tokens does not fit into "
                    f"the memory of {self.device}; take a smaller model, or lower "
                    "sampler.max_prompt_tokens or max_new_tokens"
                ) from error
        heartbeat.tick()
        # Outside the except block, where the error no longer holds the failed batch's tensors.
        self.forget()
        torch.cuda.empty_cache()
        half = len(items) // 2
        log.warning(
            "out of memory on %s with %d rows: going on with %d", self.device, len(items), half
        )
        return self(items[:half], longest) + self(items[half:], longest)


# Memory that a process has freed stays its own: on a CPU every pass of a model asks for the same
# few MiB again.
#
# By default glibc hands large blocks back to the kernel as they are freed, and every page of the
# next one is a page fault. With these thresholds they stay on the heap, which takes huge pages
# where the kernel lets it: ``lab/notes/speed.md``.

# Parameters of mallopt(3), as <malloc.h> numbers them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3

# bytes of a block on the heap, the most that glibc lets us ask for; larger ones are mapped as
# before
LARGEST = 32 << 20
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
    """Grow the heap by what is reserved, and ask for huge pages there; where that is refused, small
    ones do."""
    libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
    start = libc.sbrk(0)
    blocks: list[int | None] = []
    while libc.sbrk(0) == start and len(blocks) < KEPT // LARGEST:
        blocks.append(libc.malloc(ctypes.c_size_t(LARGEST // 2)))
    for block in blocks:
        libc.free(ctypes.c_void_p(block))
    first = -(-start // HUGE_PAGE) * HUGE_PAGE
    libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(libc.sbrk(0) - first), mmap.MADV_HUGEPAGE)


Cache = Any  # a transformers cache; its own annotations ask for more than it needs

ROOM = 32  # columns by which a full cache grows


@dataclass(frozen=True, slots=True)
class Past:
    """The keys and values that rows attend to."""

    cache: Cache
    stems: list[Stem] | None  # what all rows begin with, which the cache need not hold
    # and then the prompts, a line for each, where it does not hold them either
    prompts: list[Stem] | None = None


def begin_cache(config: Any, stems: list[Stem] | None, rows: int, grafts: bool) -> Cache:
    """A cache for the model that ``config`` describes, whose ``rows`` begin with ``stems``: where
    it ``grafts``, as ``graft_stems`` does, and else each with a copy."""
    if stems is None:
        return _empty_cache(config)
    return graft_stems(stems) if grafts else _fork_stems(stems, rows)


def _empty_cache(config: Any) -> Cache:
    cache: Cache = DynamicCache(config=config)
    if is_shareable(config):
        cache.layers = [RoomyLayer() for _ in cache.layers]
    return cache


def get_stems(cache: Cache) -> list[Stem]:
    """Return the keys and values in a cache of one row, by layer, as the stem of other rows."""
    return [(layer.keys, layer.values) for layer in cache.layers]


def graft_stems(stems: list[Stem], beyond: int = 0) -> Cache:
    """A cache whose rows all begin with ``stems``, and with ``beyond`` columns more where they hold
    but their new ones, read by an attention that knows of both (``attention.py``)."""
    cache: Cache = DynamicCache()
    cache.layers = [RoomyLayer(stem, beyond) for stem in stems]
    return cache


def _fork_stems(stems: list[Stem], rows: int) -> Cache:
    cache: Cache = DynamicCache()
    cache.layers = [RoomyLayer() for _ in stems]
    for layer, stem in zip(cache.layers, stems, strict=True):
        layer.update(*(tensor.expand(rows, -1, -1, -1) for tensor in stem))
    return cache


def unpack(stores: list[Tensor], lengths: Sequence[int], cache: Cache) -> None:
    """Append to the empty rows of ``cache`` what stands packed in ``stores``, one (2, key heads,
    tokens, dim) per layer: texts of ``lengths`` behind each other, padded on the left with no
    matter what. The stores are used up, so that memory holds one layer twice at most."""
    longest, edges = max(lengths), accumulate(lengths)
    columns = torch.arange(-longest, 0) + torch.tensor(list(edges))[:, None]
    columns = columns.clamp(min=0).to(stores[0].device)
    for layer in reversed(cache.layers):
        keys, values = stores.pop()
        layer.update(keys[:, columns].transpose(0, 1), values[:, columns].transpose(0, 1))


def is_shareable(config: Any) -> bool:
    """Whether a prompt's own part may be padded behind a shared one: padding there shortens a
    sliding window and disturbs a recurrent state, so every layer must be one of full attention."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


class RoomyLayer(DynamicLayer):
    """A cache layer with room to grow: a step writes one column, where the stock layer copies all
    of them.

    With a ``stem``, rows begin with it without holding it: ``update`` puts it before what it
    returns, but for a single column, or ``apart``, where the attention reads stem and own part
    apart. Columns that lie ``beyond`` it are not held either; then it is never put before.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, stem: Stem | None = None, beyond: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stem = stem
        self._beyond = beyond
        # whether the attention reads stem and own part apart, however many columns come
        self.apart = False
        # keys and values are views of their first columns
        self._stores: tuple[Tensor, Tensor] | None = None

    def get_seq_length(self) -> int:
        """Columns that each row holds or begins with."""
        own = self.keys.shape[-2] if self.is_initialized else 0
        return own + self._beyond + (self._stem[0].shape[-2] if self._stem else 0)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append columns (rows, heads, columns, dim); returns the keys and values to attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        filled, added = self.keys.shape[-2], key_states.shape[-2]
        if self._stores is None or self._stores[0].shape[-2] < filled + added:
            room = ROOM if filled else 0  # what is read first is forked or grown next in any case
            self._stores = _grow(self.keys, added + room), _grow(self.values, added + room)
        for store, states in zip(self._stores, (key_states, value_states), strict=True):
            store[:, :, filled : filled + added] = states
        self.keys, self.values = (store[:, :, : filled + added] for store in self._stores)
        if self._stem is None or added == 1 or self.apart:
            return self.keys, self.values
        assert not self._beyond
        rows = len(self.keys)
        stem_keys, stem_values = (tensor.expand(rows, -1, -1, -1) for tensor in self._stem)
        return torch.cat([stem_keys, self.keys], 2), torch.cat([stem_values, self.values], 2)

    def reorder_cache(self, beam_idx: Any) -> None:
        """Keep the rows ``beam_idx``, in that order."""
        super().reorder_cache(beam_idx)
        self._stores = None


def _grow(filled: Tensor, columns: int) -> Tensor:
    """A copy of ``filled`` (rows, heads, columns, dim) with ``columns`` more columns of no
    meaning."""
    rows, heads, length, dim = filled.shape
    store = filled.new_empty(rows, heads, length + columns, dim)
    store[:, :, :length] = filled
    return store
