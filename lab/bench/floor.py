"""The floor: the least time in which a device could answer a workload, by what must be read and computed.

A roofline (Williams, Waterman & Patterson 2009), part by part: each part of the work takes as long as its bytes at the
device's bandwidth or its arithmetic at the device's rate, whichever is longer, and the parts come one after another, as the
layers of a model make them. Counted are the weights, once per step; two operations per weight and token; attention; and
keys and values, where what all tickets share and what all samples of a ticket share is read once per step, not once per
row. All tickets step together. Not counted: sampling, norms, launches, and everything that an engine does on the side.

Bandwidth and rate are not taken from a data sheet but measured in the same run: a large copy, a large matrix product. What
fits into a processor's cache can be read faster than the copy says, so for a small model on a CPU the floor is a yardstick
rather than a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

REPEATS = 5


@dataclass(frozen=True, slots=True)
class Device:
    """What a device can do at most, as measured."""

    bytes_per_s: float  # read and written, of a large copy
    operations_per_s: float  # additions and multiplications of a large matrix product


@dataclass(frozen=True, slots=True)
class Size:
    """What of a dense transformer with grouped heads counts."""

    layer_weights: int  # in the matrices of all layers
    head_weights: int  # in the matrix that makes logits
    attention: int  # layers * heads * head_dim
    cached: int  # numbers that the cache holds for one token
    width: int  # bytes of a number

    @classmethod
    def of(cls, config: Any, dtype: torch.dtype) -> Size:
        """The size of the model that a transformers ``config`` describes."""
        hidden, layers, heads = config.hidden_size, config.num_hidden_layers, config.num_attention_heads
        key_heads, dim = config.num_key_value_heads, getattr(config, "head_dim", None) or hidden // heads
        layer = hidden * dim * (2 * heads + 2 * key_heads) + 3 * hidden * config.intermediate_size
        return cls(
            layers * layer, hidden * config.vocab_size, layers * heads * dim, 2 * layers * key_heads * dim, dtype.itemsize
        )


@dataclass(frozen=True, slots=True)
class Job:
    """One ticket's part of the work, in tokens."""

    system: str  # tickets with equal ones share their first ``shared`` tokens
    shared: int
    own: int  # behind them
    answers: tuple[int, ...]  # lengths of its samples


def floor_s(jobs: Sequence[Job], size: Size, device: Device) -> float:
    """Seconds that ``jobs`` take one device at least."""
    systems = {job.system: job.shared for job in jobs}
    seconds = _part(
        device,
        size.width * (size.layer_weights + size.head_weights),
        2 * size.layer_weights * (sum(systems.values()) + sum(job.own for job in jobs)) + 2 * size.head_weights * len(jobs),
    )
    looked_at = sum(shared * shared / 2 for shared in systems.values())
    looked_at += sum(job.own * (job.shared + job.own / 2) for job in jobs)
    seconds += 4 * size.attention * looked_at / device.operations_per_s
    longest = max((length for job in jobs for length in job.answers), default=0)
    return seconds + sum(_step(jobs, step, size, device) for step in range(1, longest))


def _step(jobs: Sequence[Job], step: int, size: Size, device: Device) -> float:
    """Seconds of the step that makes token ``step`` (from 0; token 0 comes with reading the prompt)."""
    live = [(job, rows) for job in jobs if (rows := sum(length > step for length in job.answers))]
    rows = sum(rows for _, rows in live)
    weights = size.layer_weights + size.head_weights
    read = sum({job.system: job.shared for job, _ in live}.values())
    read += sum(job.own + rows * step for job, rows in live)
    looked_at = sum(rows * (job.shared + job.own + step) for job, rows in live)
    return _part(device, size.width * weights, 2 * weights * rows) + _part(
        device, size.width * size.cached * read, 4 * size.attention * looked_at
    )


def _part(device: Device, moved: float, operations: float) -> float:
    return max(moved / device.bytes_per_s, operations / device.operations_per_s)


def measured(device: str, dtype: torch.dtype) -> Device:
    """What ``device`` does at most with numbers of ``dtype``: the best of a few tries each."""
    large = not device.startswith("cpu")
    count, side = (1 << 30 if large else 1 << 27) // dtype.itemsize, 8192 if large else 1024
    torch.manual_seed(0)
    copied = best_s(_copy(count, dtype, device), device)
    multiplied = best_s(_product(side, dtype, device), device)
    return Device(2 * count * dtype.itemsize / copied, 2 * side**3 / multiplied)


def _copy(count: int, dtype: torch.dtype, device: str) -> Callable[[], object]:
    source = torch.zeros(count, dtype=dtype, device=device)
    target = torch.ones_like(source)
    return lambda: target.copy_(source)


def _product(side: int, dtype: torch.dtype, device: str) -> Callable[[], object]:
    left, right = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return lambda: left @ right


def best_s(act: Callable[[], object], device: str) -> float:
    """The shortest of ``REPEATS`` runs of ``act``, after one that does not count."""
    seconds = []
    for _ in range(REPEATS + 1):
        begun = time.perf_counter()
        act()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begun)
    return min(seconds[1:])
