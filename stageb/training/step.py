"""One step of PPO's optimiser: forward, backward, clipping, Adam.

On a GPU it is recorded once for each size of minibatch and replayed as a CUDA graph, NCCL's reductions included, as torch's
notes on CUDA graphs have it for DistributedDataParallel. Networks are so small that the processor would take longer to
launch a step's some hundred kernels than the GPU to run them, and where several ranks learn all would wait, at every step,
for the one whose processor was slowest.

Nothing in a step waits for the device, which is told to leave weights as they are where a gradient is not finite. A loss
that is not finite on one rank leaves no finite gradient on any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from stageb.config import PpoConfig
from stageb.job import heartbeat
from stageb.training import cuda_graphs, ppo
from stageb.training.ppo import Batch

WARM_UP = 3  # steps before one is recorded
WARM_UP_DDP = 11  # DDP times its first ten, and lays gradients out anew after the first


class Step:
    """An agent that learns by PPO, and its optimiser, on one device."""

    def __init__(
        self, model: Any, optimizer: Any, config: PpoConfig, backward: Callable[[Tensor], object], warm_up: int = WARM_UP
    ) -> None:
        """``model`` gives log-probabilities, entropies and values of a batch's ``inputs``, and ``backward`` differentiates
        a loss. ``optimizer`` is torch's Adam, fused, as it is or as ``fabric.setup`` gives it back."""
        self.model, self.optimizer, self.config = model, optimizer, config
        self._backward, self._warm_up = backward, warm_up
        self.device = next(model.parameters()).device
        self.records = self.device.type == "cuda"
        self._rate, self._entropy_weight = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        self._recorded: dict[int, tuple[Batch, Callable[[], Tensor]]] = {}  # by size: what is read, and a step on it
        self._steer()

    def load(self, state: dict[str, Any]) -> None:
        """Go on from the optimiser's ``state``."""
        self.optimizer.load_state_dict(state)
        self._steer()
        self._recorded.clear()

    def go_by(self, learning_rate: float, entropy_weight: float) -> None:
        """What steps go by from now on."""
        self._rate.fill_(learning_rate)
        self._entropy_weight.fill_(entropy_weight)

    def prepare(self, like: Batch) -> None:
        """Take steps to no effect, on as much as ``like`` holds; on a GPU record one.

        DDP lays gradients out anew after it reduced them first, which would round otherwise where a run begins than where it
        goes on, and so leave other bytes.
        """
        if self.records:
            self._recorded[len(like)] = self._record(like)
        else:
            for _ in range(2):
                self._take(_spoilt(like))

    def take(self, batch: Batch) -> Tensor:
        """Take a step. Its losses on this rank, and the length of the gradient that all ranks share: ``ppo.note_step``."""
        if not self.records:
            return self._take(batch)
        if len(batch) not in self._recorded:
            self._recorded[len(batch)] = self._record(batch)
        held, replay = self._recorded[len(batch)]
        for into, new in zip(held.tensors(), batch.tensors(), strict=True):
            into.copy_(new)
        return replay().clone()

    def take_all(self, batches: Iterable[Batch]) -> Tensor:
        """A step for each of ``batches``: what ``take`` gives, float32 (S, 6)."""
        taken = []
        for batch in batches:
            taken.append(self.take(batch))
            heartbeat.tick()
        return torch.stack(taken)

    def _steer(self) -> None:
        """Have the optimiser, made or loaded, go by the rate that is held here."""
        for group in self.optimizer.param_groups:
            group["lr"], group["capturable"] = self._rate, self.records

    def _record(self, like: Batch) -> tuple[Batch, Callable[[], Tensor]]:
        """Make a step on as much as ``like`` holds a CUDA graph."""
        # Fabric makes DDP on a stream of its own, as recording wants it; torch warns that it is not the one worked on.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        held = _spoilt(like)
        return held, cuda_graphs.recorded(lambda: self._take(held), lambda: [self._take(held) for _ in range(self._warm_up)])

    def _take(self, batch: Batch) -> Tensor:
        losses = ppo.ppo_loss(self.model(*batch.inputs), batch, self.config, self._entropy_weight)
        self._backward(losses.total)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        torchs = getattr(self.optimizer, "optimizer", self.optimizer)  # Fabric wraps it
        torchs.found_inf = (~norm.isfinite()).float()  # what torch.amp.GradScaler tells fused optimisers
        self.optimizer.step()
        self.optimizer.zero_grad()
        return ppo.note_step(losses, norm)


def _spoilt(like: Batch) -> Batch:
    """A batch in memory of its own that leaves no finite gradient, and so no trace."""
    nothing = {name: torch.full_like(like.log_probs, torch.nan) for name in ("log_probs", "advantages", "returns")}
    return replace(like, inputs=tuple(each.clone() for each in like.inputs), **nothing)
