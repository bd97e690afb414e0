"""The floor: the least time in which a device could answer a workload, by what must be read and
computed.

A roofline (Williams, Waterman & Patterson 2009), in two ways. *In series*: each part of the work
takes as long as its bytes at the device's bandwidth or its arithmetic at the device's rate,
whichever is longer, and the parts come one after another, as the layers of a model make them.
*Overlapped*: while one part reads, another computes, as if a step's halves took turns; so a step
takes as long as all its bytes or all its arithmetic. Counted are the weights, once per step; two
operations per weight and token; attention; and keys and values, where what all tickets share and
what all samples of a ticket share is read once per step, not once per row. All tickets step
together. Not counted: sampling, norms, launches, and everything that an engine does on the side.

Bandwidth and rate are not taken from a data sheet but measured in the same run, sustained for
seconds, as a round would: copies of random numbers, and products of the model's own matrices. What
fits into a processor's cache can be read faster than the copy says, so for a small model on a CPU
the floor is a yardstick rather than a bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

SECONDS = {"cuda": 5.0}  # for which a rate is sustained ...
SECONDS_ELSEWHERE = 0.5  # ... and where nothing grows warm
TOKENS = {"cuda": 8192}  # that are multiplied at once ...
TOKENS_ELSEWHERE = 256


@dataclass(frozen=True, slots=True)
class Device:
    """The measured limits of a device."""

    bytes_per_s: float  # read and written, of a large copy
    operations_per_s: float  # additions and multiplications of the model's products


@dataclass(frozen=True, slots=True)
class Size:
    """The sizes of a dense transformer with grouped heads."""

    layer_weights: int  # in the matrices of all layers
    head_weights: int  # in the matrix that makes logits
    attention: int  # layers * heads * head_dim
    cached: int  # numbers that the cache holds for one token
    width: int  # bytes of a number
    matrices: tuple[tuple[int, int], ...]  # of a layer: numbers in and out

    @classmethod
    def of(cls, config: Any, dtype: torch.dtype) -> Size:
        """The size of the model that a transformers ``config`` describes."""
        hidden, layers, heads = (
            config.hidden_size,
            config.num_hidden_layers,
            config.num_attention_heads,
        )
        key_heads, dim = (
            config.num_key_value_heads,
            getattr(config, "head_dim", None) or hidden // heads,
        )
        inner = config.intermediate_size
        matrices = (
            *(
                (hidden, heads * dim),
                (hidden, key_heads * dim),
                (hidden, key_heads * dim),
                (heads * dim, hidden),
            ),
            *((hidden, inner), (hidden, inner), (inner, hidden)),
        )
        return cls(
            layer_weights=layers * sum(left * right for left, right in matrices),
            head_weights=hidden * config.vocab_size,
            attention=layers * heads * dim,
            cached=2 * layers * key_heads * dim,
            width=dtype.itemsize,
            matrices=matrices,
        )


@dataclass(frozen=True, slots=True)
class Job:
    """One ticket's part of the work, in tokens."""

    system: str  # tickets with equal ones share their first ``shared`` tokens
    shared: int
    own: int  # behind them
    answers: tuple[int, ...]  # lengths of its samples


@dataclass(frozen=True, slots=True)
class Floor:
    """Seconds that a workload takes a device at least."""

    series_s: float
    overlapped_s: float


Part = tuple[float, float]  # bytes and operations


def floor_of(jobs: Sequence[Job], size: Size, device: Device) -> Floor:
    """The floor of ``jobs`` on one ``device``."""
    longest = max((length for job in jobs for length in job.answers), default=0)
    passes = [_reading(jobs, size), *(_step(jobs, step, size) for step in range(1, longest))]
    series_s = sum(_seconds(part, device) for parts in passes for part in parts)
    together = [
        (sum(moved for moved, _ in parts), sum(work for _, work in parts)) for parts in passes
    ]
    return Floor(series_s, sum(_seconds(part, device) for part in together))


def _reading(jobs: Sequence[Job], size: Size) -> list[Part]:
    """Weights, then attention, of all prompts' reading."""
    systems = {job.system: job.shared for job in jobs}
    tokens = sum(systems.values()) + sum(job.own for job in jobs)
    looked_at = sum(shared * shared / 2 for shared in systems.values())
    looked_at += sum(job.own * (job.shared + job.own / 2) for job in jobs)
    weights = size.width * (size.layer_weights + size.head_weights)
    return [
        (weights, 2 * size.layer_weights * tokens + 2 * size.head_weights * len(jobs)),
        (0.0, 4 * size.attention * looked_at),
    ]


def _step(jobs: Sequence[Job], step: int, size: Size) -> list[Part]:
    """Weights, then attention, of the step that makes token ``step`` (from 0; token 0 comes with
    reading the prompt)."""
    live = [(job, rows) for job in jobs if (rows := sum(length > step for length in job.answers))]
    rows = sum(rows for _, rows in live)
    weights = size.layer_weights + size.head_weights
    read = sum({job.system: job.shared for job, _ in live}.values())
    read += sum(job.own + rows * step for job, rows in live)
    looked_at = sum(rows * (job.shared + job.own + step) for job, rows in live)
    return [
        (size.width * weights, 2 * weights * rows),
        (size.width * size.cached * read, 4 * size.attention * looked_at),
    ]


def _seconds(part: Part, device: Device) -> float:
    moved, operations = part
    return max(moved / device.bytes_per_s, operations / device.operations_per_s)


def measured(device: str, dtype: torch.dtype, size: Size) -> Device:
    """Measure what ``device`` sustains with numbers of ``dtype``, and products of the matrices of
    ``size``."""
    kind = torch.device(device).type
    torch.manual_seed(0)
    count = (4 << 30 if kind == "cuda" else 1 << 27) // dtype.itemsize
    copied = 2 * count * dtype.itemsize * rate(_copy(count, dtype, device), device)
    tokens = TOKENS.get(kind, TOKENS_ELSEWHERE)
    worth = 2 * tokens * sum(left * right for left, right in size.matrices)
    return Device(copied, worth * rate(_products(size, tokens, dtype, device), device))


def _copy(count: int, dtype: torch.dtype, device: str) -> Callable[[], object]:
    source = torch.randn(1 << 20, device=device).to(dtype).repeat(-(-count // (1 << 20)))[:count]
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _products(size: Size, tokens: int, dtype: torch.dtype, device: str) -> Callable[[], object]:
    def some(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device).to(dtype)

    pairs = [(some(tokens, left), some(right, left)) for left, right in size.matrices]
    return lambda: [lines @ weights.t() for lines, weights in pairs]


def rate(act: Callable[[], object], device: str) -> float:
    """How often a second ``act`` is done over seconds, behind one time that does not count."""
    act()
    _wait(device)
    limit = SECONDS.get(torch.device(device).type, SECONDS_ELSEWHERE)
    begun, times = time.perf_counter(), 0
    while (passed := time.perf_counter() - begun) < limit:
        act()
        _wait(device)
        times += 1
    return times / passed


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
