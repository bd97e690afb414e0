"""Replicas: what all ranks must hold alike, to the bit, since what they reduce and compute is the same on each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from stageb.errors import StagebError
from stageb.job.world import World, decode, encode


class DivergedError(StagebError):
    """Ranks that were to hold one network hold two."""


def agree(world: World, where: str, mine: Mapping[str, str]) -> None:
    """Raise DivergedError, the same on every rank, unless all hold equal digests: ``mine``, by name of what they are of."""
    first, *others = (decode(each) for each in world.gather(encode(mine)))
    for rank, held in enumerate(others, start=1):
        apart = [name for name in first if held.get(name) != first[name]]
        if apart:
            raise DivergedError(
                f"{where}: rank {rank} parted from rank 0 in {', '.join(apart)}; the last commit is intact: "
                "give the command again, and see to that rank's device if it parts again"
            )


def digest(data: bytes) -> str:
    """Of ``data``."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """Of names, types, shapes and bytes."""
    pieces: list[bytes] = []
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        pieces += [f"{name} {plain.dtype} {tuple(tensor.shape)} ".encode(), plain.view(torch.uint8).numpy().tobytes()]
    return digest(b"".join(pieces))
