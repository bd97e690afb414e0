"""Random streams on a device: the hash of ``seeds.py`` in torch's arithmetic, for many keys at
once.

A draw here is the very number that ``seeds`` gives for the same key and position; a test holds the
two equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stageb import seeds


def signed(bits: int) -> int:
    """64 bits as the int64 that holds them."""
    return bits - (1 << 64) if bits >> 63 else bits


_GOLDEN, _MIX_1, _MIX_2 = signed(seeds.GOLDEN), signed(seeds.MIX_1), signed(seeds.MIX_2)


def wide(device: torch.device) -> torch.dtype:
    """The type of uniform numbers: Apple's GPUs know no float64."""
    return torch.float32 if device.type == "mps" else torch.float64


def shift(z: Tensor, places: int) -> Tensor:
    """``z`` shifted right by ``places``, zeros coming in: torch's own shift brings the sign in."""
    return (z >> places) & ((1 << (64 - places)) - 1)


def bits(keys: Tensor, position: int | Tensor) -> Tensor:
    """``seeds.bits(key, position)`` for each of ``keys``: int64 (rows,) holding 64 bits, to the
    same.

    ``position`` may be a tensor of int64, one for all keys or one for each, so that nothing here
    need know it before the device does.
    """
    if isinstance(position, Tensor):
        z = keys + (position + 1) * _GOLDEN  # int64 wraps around, as the hash wants
    else:
        z = keys + signed(((position + 1) * seeds.GOLDEN) & seeds.MASK)
    z = (z ^ shift(z, 30)) * _MIX_1
    z = (z ^ shift(z, 27)) * _MIX_2
    return z ^ shift(z, 31)


def uniforms(keys: Tensor, position: int | Tensor) -> Tensor:
    """``seeds.uniform(key, position)`` for each of ``keys``: int64 (rows,) holding 64 bits, to
    floats (rows,)."""
    return shift(bits(keys, position), 11).to(wide(keys.device)) * 2.0**-53


def below(keys: Tensor, position: int | Tensor, limit: Tensor) -> Tensor:
    """An integer from 0 to ``limit`` - 1 for each of ``keys``, of the 31 highest bits there; limits
    are below 2**31."""
    return (shift(bits(keys, position), 33) * limit) >> 31
