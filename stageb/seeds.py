"""Random streams from names, so that a draw depends on what it is for and on nothing else.

A stream is a 64-bit key made from names such as ``(seed, mission, epoch, ticket_key, decode,
sample)``; position ``i`` of a stream is one uniform number, a stateless hash of (key, i). No
generator object exists: nothing to share between ranks, nothing to save at a commit, and a batch's
composition cannot reach a draw.

The hash is splitmix64's output function (Steele, Lea & Flood 2014, "Fast splittable pseudorandom
number generators", section 3) on ``key + (position + 1) * GOLDEN``. Engines that draw on a device
repeat it in their own arithmetic; a test holds the two equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB


def stream(*names: str | int) -> int:
    """The key of the stream that ``names`` name: 64 bits, equal for equal names, independent
    otherwise.

    Names are length-prefixed and typed before hashing, so ``("ab", "c")``, ``("a", "bc")`` and
    ``(1,)``, ``("1",)`` differ.
    """
    digest = hashlib.blake2b(digest_size=8)
    for name in names:
        encoded = str(name).encode("utf-8", "surrogatepass")
        digest.update(f"{type(name).__name__[0]}{len(encoded)}:".encode())
        digest.update(encoded)
    return int.from_bytes(digest.digest(), "big")


def bits(key: int, position: int) -> int:
    """64 random bits at ``position`` (from 0) of the stream ``key``."""
    z = (key + (position + 1) * GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * MIX_1) & MASK
    z = ((z ^ (z >> 27)) * MIX_2) & MASK
    return z ^ (z >> 31)


def ahead(key: int, positions: int) -> int:
    """The stream ``key`` from ``positions`` on: ``bits(ahead(key, n), p)`` is ``bits(key, n +
    p)``."""
    return (key + positions * GOLDEN) & MASK


def uniform(key: int, position: int) -> float:
    """A uniform number in [0, 1) with 53 random bits at ``position`` of the stream ``key``."""
    return (bits(key, position) >> 11) * 2.0**-53


def shuffled(items: Sequence[T], key: int) -> list[T]:
    """``items`` in an order drawn from the stream ``key`` (Fisher-Yates)."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = bits(key, last) % (last + 1)
        order[last], order[other] = order[other], order[last]
    return order
