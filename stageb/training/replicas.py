"""Replicas: what all ranks must hold alike, to the bit, since what they reduce and compute is the same on each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from stageb.errors import StagebError
from stageb.job.world import World


class DivergedError(StagebError):
    """Ranks that were to hold one network hold two."""


def agree(world: World, where: str, mine: Mapping[str, str]) -> None:
    """Raise DivergedError, the same on every rank, unless all hold equal digests: ``mine``, by name of what they are of."""
    if found := world.find_differing(mine):
        raise DivergedError(
            f"{where}: rank {found.rank} parted from rank 0 in {', '.join(found.names)}; the last commit is intact: "
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
