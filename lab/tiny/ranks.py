"""Several GPUs for one training: each rank draws rows of its own, and gradients are averaged over
ranks.

Plain ``torch.distributed`` under torchrun, in place of ``DistributedDataParallel``: the model is
small, so that one reduction of all gradients laid end to end costs less than hooks that overlap
many.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import distributed

CLOCK_EVERY = 20  # steps between two looks at rank 0's clock


class Ranks:
    """The processes that train together; one where torchrun started none."""

    def __init__(self, device: str) -> None:
        self.rank, self.size = (
            int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1))
        )
        self.device = f"cuda:{self.rank}" if device == "cuda" and self.size > 1 else device
        self._seconds = 0.0
        if self.size > 1:
            if device == "cuda":
                torch.cuda.set_device(self.rank)
            distributed.init_process_group("nccl" if device == "cuda" else "gloo")

    def average(self, parameters: Sequence[torch.Tensor]) -> None:
        """Make every gradient the mean over ranks."""
        if self.size == 1:
            return
        grads = [each.grad for each in parameters if each.grad is not None]
        flat = torch.cat([grad.flatten() for grad in grads])
        distributed.all_reduce(flat)
        flat /= self.size
        for grad, mean in zip(
            grads, torch.split(flat, [grad.numel() for grad in grads]), strict=True
        ):
            grad.copy_(mean.view_as(grad))

    def seconds(self, step: int, mine: float) -> float:
        """How long the training takes already, the same on all ranks."""
        if self.size == 1:
            return mine
        if step % CLOCK_EVERY == 0:
            told = torch.tensor(mine, device=self.device, dtype=torch.float64)
            distributed.broadcast(told, 0)
            self._seconds = float(told)
        return self._seconds

    def wait(self) -> None:
        """Until all have come so far."""
        if self.size > 1:
            distributed.barrier()

    def end(self) -> None:
        """All have come to their end."""
        self.wait()
        if self.size > 1:
            distributed.destroy_process_group()
