"""Replicas: state that must be bit-identical on all ranks, since each computes it from the same reduced values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from stageb.errors import StagebError
from stageb.job.world import World


class DivergedError(StagebError):
    """A rank's replica is no longer that of rank 0."""


def check_agreement(world: World, where: str, mine: Mapping[str, str]) -> None:
    """Raise DivergedError, the same on every rank, unless all ranks hold equal digests (``mine``, by name of what they are
    of). ``where`` says when, for the message."""
    if found := world.find_differing(mine):
        raise DivergedError(
            f"{where}: rank {found.rank} diverged from rank 0 in {', '.join(found.names)}; the last commit is intact: "
            "run the command again, and check that rank's device if it diverges again"
        )


def digest(data: bytes) -> str:
    """BLAKE2b of ``data``, 32 hex digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    """The digest of tensors: their names, types, shapes and bytes."""
    pieces: list[bytes] = []
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous().reshape(-1)
        pieces += [f"{name} {plain.dtype} {tuple(tensor.shape)} ".encode(), plain.view(torch.uint8).numpy().tobytes()]
    return digest(b"".join(pieces))
