"""One step of the optimiser: forward, backward with gradients averaged over ranks, clipping, Adam.

On a GPU it is recorded once and replayed as a CUDA graph, NCCL's reductions included, as torch's notes on CUDA graphs have
it for DistributedDataParallel. The network is so small that the processor would take longer to launch a step's some hundred
kernels than the GPU to run them, and at every step all ranks would wait for the one whose processor was slowest.

Nothing in a step waits for the device, which is told to leave weights as they are where a gradient is not finite. A loss
that is not finite on one rank leaves no finite gradient on any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stageb.config import PpoConfig
from stageb.job.world import World
from stageb.snake.types import Batch
from stageb.training import cuda_graphs, ppo

WARM_UP = 11  # steps before one is recorded: DDP times its first ten, and lays gradients out anew after the first


class Step:
    """The agent as it is wrapped for training, and its optimiser."""

    def __init__(self, world: World, config: PpoConfig, model: Any, optimizer: Any, weight: float) -> None:
        """``model`` and ``optimizer`` come from ``fabric.setup``; ``weight`` is what this rank's mean counts for."""
        self.world, self.config, self.model, self.optimizer, self._weight = world, config, model, optimizer, weight
        self.device = torch.device(world.device)
        self._records = self.device.type == "cuda"
        self._rate, self._entropy_weight = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        self._replay: Callable[[], Tensor] | None = None  # a step that is recorded
        self._batch: Batch  # what that reads

    def go_by(self, learning_rate: float, entropy_weight: float) -> None:
        """What steps go by from now on."""
        self._rate.fill_(learning_rate)
        self._entropy_weight.fill_(entropy_weight)

    def take(self, batch: Batch) -> Tensor:
        """Take a step. Its losses on this rank, and the length of the gradient that all ranks share: ``ppo.noted``."""
        if self._replay is None:
            return self._take(batch)
        for name in Batch.__slots__:
            getattr(self._batch, name).copy_(getattr(batch, name))
        return self._replay().clone()

    def prepare(self, size: int, cells: int) -> None:
        """Take steps to no effect, and on a GPU record one; batches to come have that ``size``, grids that many cells.

        DDP lays gradients out anew after it reduced them first, which would round otherwise where a run begins than where it
        goes on, and so leave other bytes.
        """
        for group in self.optimizer.param_groups:
            group["lr"], group["capturable"] = self._rate, self._records
        zeros = torch.zeros(size, device=self.device)
        nothing = torch.full_like(zeros, torch.nan)  # leaves no finite gradient, and so no trace
        grids = torch.zeros((size, cells), dtype=torch.uint8, device=self.device)
        self._batch = Batch(grids, zeros.long(), nothing, nothing.clone(), nothing.clone())
        if self._records:
            self._record()
        else:
            for _ in range(2):
                self._take(self._batch)

    def _record(self) -> None:
        """Make a step a CUDA graph."""
        # Fabric makes DDP on a stream of its own, as recording wants it; torch warns that it is not the one worked on.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        self._replay = cuda_graphs.recorded(
            lambda: self._take(self._batch), lambda: [self._take(self._batch) for _ in range(WARM_UP)]
        )

    def _take(self, batch: Batch) -> Tensor:
        losses = ppo.ppo_loss(self.model(batch.grids, batch.actions), batch, self.config, self._entropy_weight)
        self.world.fabric.backward(losses.total * self._weight)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.optimizer.optimizer.found_inf = (~norm.isfinite()).float()  # what torch.amp.GradScaler tells fused optimisers
        self.optimizer.step()
        self.optimizer.zero_grad()
        return ppo.noted(losses, norm)
