"""``growth.ddp: true``: every host is trained by all ranks together, its minibatches shared out, step by step.

Every rank holds the whole block and does all that one rank alone would do, in the same order. Four things make it one
training:

- ``part``: each rank takes its part of every minibatch;
- ``mean``: one flat all-reduce a step, of the gradients in the order host, early, mid, late, zeros where nothing is active or
  learns, and of the step's figures behind them. What is reduced has one length for the whole run, whatever grows;
- ``decide``: rank 0 alone decides; what reaches the others is (step, actions). New seeds are drawn from streams that their
  names name, so no weights travel;
- ``agree``: at the end of every epoch each rank tells a digest of its lifecycle and of its parameters, part by part; where
  two differ the run ends, and the error says who parted, and in what.

Reduced numbers are the same bytes on every rank, and what every rank computes of them is the same arithmetic: replicas are
equal to the bit, and no tolerance hides a fault. Against one rank a sum rounds in another order, as everywhere where
gradients are reduced: equal bytes are promised at one world size.

Why torch's DistributedDataParallel is not what does it: docs/growth-ddp.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from stageb.config import require
from stageb.errors import StagebError
from stageb.growth.config import GrowthConfig
from stageb.growth.types import SLOTS
from stageb.world import Json, World, decode, encode

T = TypeVar("T")

PARTS = ("host", *SLOTS)  # in this order wherever tensors follow one another


class DivergedError(StagebError):
    """Ranks that were to hold one network hold two."""


def check(config: GrowthConfig, world_size: int) -> None:
    """Raise ConfigError unless a minibatch can be shared out evenly: a mean over ranks is the minibatch's only then."""
    size = config.host.batch_size
    remedy = f"a multiple of the number of ranks, {world_size}, where growth.ddp is true"
    require(not config.growth.ddp or size % world_size == 0, "host.batch_size", size, remedy)


class Together:
    """The ranks of a job as trainers of one block. Every method is for all ranks, in the same order."""

    def __init__(self, world: World) -> None:
        self.world = world

    def part(self, rows: Tensor) -> Tensor:
        """This rank's part of ``rows``, (..., N) to (..., about N / ranks): equal parts where N is a multiple of the ranks."""
        return rows[..., self.world.rank :: self.world.world_size]

    def mean(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The mean over ranks of each of ``tensors``, by name and of one shape on all ranks, in one all-reduce."""
        if self.world.world_size == 1:
            return dict(tensors)
        names = sorted(tensors, key=lambda name: (_part(name), name))
        flat = torch.cat([tensors[name].reshape(-1) for name in names])
        with self.world.together("gradients of the hosts"):
            total = torch.as_tensor(self.world.fabric.all_reduce(flat, reduce_op="sum"))
        pieces = (total / self.world.world_size).split([tensors[name].numel() for name in names])
        return {name: piece.view(tensors[name].shape) for name, piece in zip(names, pieces, strict=True)}

    def decide(self, step: int, act: Callable[[], T]) -> T:
        """What rank 0's ``act`` returns, on every rank. Raises DivergedError where this rank is not at rank 0's ``step``."""
        told, actions = self.world.broadcast((step, act() if self.world.is_global_zero else None))
        if told != step:
            raise DivergedError(f"rank {self.world.rank} is at step {step} of its hosts, rank 0 at step {told}")
        return actions  # type: ignore[return-value]  # rank 0's

    def agree(self, when: str, lifecycle: Json, tensors: Mapping[str, Tensor]) -> None:
        """Raise DivergedError, the same on every rank, unless all hold an equal ``lifecycle`` and equal bytes in ``tensors``."""
        mine = {"lifecycle": hashlib.sha256(encode(lifecycle)).hexdigest(), **digests(tensors)}
        first, *others = (decode(each) for each in self.world.gather(encode(mine)))
        for rank, held in enumerate(others, start=1):
            apart = [name for name in first if held.get(name) != first[name]]
            if apart:
                raise DivergedError(
                    f"{when}: rank {rank} parted from rank 0 in {', '.join(apart)}; the last commit is intact: give the "
                    "command again, and see to that rank's device if it parts again"
                )


def digests(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """A digest of each part of ``tensors``, whose names begin with a part's: of names, shapes and bytes."""
    found = {part: hashlib.sha256() for part in PARTS}
    for name in sorted(tensors):
        held = tensors[name].detach().cpu().contiguous()
        digest = found[PARTS[_part(name)]]
        digest.update(f"{name} {held.dtype} {tuple(held.shape)} ".encode())
        digest.update(held.reshape(-1).view(torch.uint8).numpy())
    return {part: digest.hexdigest() for part, digest in found.items()}


def _part(name: str) -> int:
    """The place of a tensor's part in the order; behind all parts where it is of none."""
    part = name.partition(".")[0]
    return PARTS.index(part) if part in PARTS else len(PARTS)

