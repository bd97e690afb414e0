"""One step of PPO's optimiser: forward, backward, clipping, Adam.

On a GPU it is recorded once for each size of minibatch and replayed as a CUDA graph, NCCL's reductions included, as torch's
notes on CUDA graphs have it for DistributedDataParallel. Networks are so small that the processor would take longer to
launch a step's some hundred kernels than the GPU to run them, and where several ranks learn all would wait, at every step,
for the one whose processor was slowest.

Nothing in a step waits for the device, which itself leaves the weights unchanged if a gradient is not finite. A loss that is
not finite on one rank leaves no finite gradient on any.
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
        self.uses_graphs = self.device.type == "cuda"
        self._rate, self._entropy_weight = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        self._recorded: dict[int, tuple[Batch, Callable[[], Tensor]]] = {}  # by size: what is read, and a step on it
        self._steer()

    def load(self, state: dict[str, Any]) -> None:
        """Load the optimiser's ``state``."""
        self.optimizer.load_state_dict(state)
        self._steer()
        self._recorded.clear()

    def set_hyperparameters(self, learning_rate: float, entropy_weight: float) -> None:
        """Set the learning rate and the weight of the entropy bonus for the steps from now on."""
        self._rate.fill_(learning_rate)
        self._entropy_weight.fill_(entropy_weight)

    def prepare(self, like: Batch) -> None:
        """Take steps without effect on batches of the size of ``like``; on a GPU, record one.

        DDP lays gradients out differently after its first reduction. Without this, a run that starts would round differently
        from one that resumes, and the two would leave different bytes.
        """
        if self.uses_graphs:
            self._recorded[len(like)] = self._record(like)
        else:
            for _ in range(2):
                self._take(_make_nan_batch(like))

    def take(self, batch: Batch) -> Tensor:
        """Take a step. Returns what ``ppo.note_step`` does: the losses on this rank, and the gradient norm that all
        share."""
        if not self.uses_graphs:
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
        """Make the optimiser read its learning rate from the tensor that recorded graphs read."""
        for group in self.optimizer.param_groups:
            group["lr"], group["capturable"] = self._rate, self.uses_graphs

    def _record(self, like: Batch) -> tuple[Batch, Callable[[], Tensor]]:
        """Record a step on a batch of the size of ``like`` as a CUDA graph."""
        # Fabric makes DDP on a stream of its own, as recording wants it; torch warns that it is not the one worked on.
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        held = _make_nan_batch(like)
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


def _make_nan_batch(like: Batch) -> Batch:
    """A batch of the size of ``like``, in its own memory, whose gradients are NaN: a step on it changes no weight."""
    nothing = {name: torch.full_like(like.log_probs, torch.nan) for name in ("log_probs", "advantages", "returns")}
    return replace(like, inputs=tuple(each.clone() for each in like.inputs), **nothing)
