"""One step of the policy's optimiser: forward, backward, clipping, Adam.

On a GPU it is recorded once for each size of minibatch and replayed as a CUDA graph. Nothing in a step waits for the device,
which is told to leave weights as they are where a gradient is not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stageb.config import PpoConfig
from stageb.growth.policy import Policy
from stageb.training import cuda_graphs, ppo

WARM_UP = 3  # steps before one is recorded


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step of the optimiser learns from: B steps of episodes."""

    seen: tuple[Tensor, Tensor, Tensor]  # normalised observations, memory, masks
    actions: Tensor  # int64 (B, 3)
    log_probs: Tensor  # float32 (B,)
    advantages: Tensor  # float32 (B,)
    returns: Tensor  # float32 (B,)

    def tensors(self) -> list[Tensor]:
        """All of it."""
        return [*self.seen, self.actions, self.log_probs, self.advantages, self.returns]


class Step:
    """``policy`` and its optimiser, on one device."""

    def __init__(self, policy: Policy, config: PpoConfig, device: str) -> None:
        self.policy, self.config = policy, config
        self._records = device.startswith("cuda")
        self._rate, self._entropy_weight = torch.zeros((), device=device), torch.zeros((), device=device)
        self._recorded: dict[int, tuple[Batch, Callable[[], Tensor]]] = {}  # by size: what is read, and a step on it
        self.optimizer: Any = torch.optim.Adam(policy.parameters(), self._rate, eps=ppo.ADAM_EPSILON, fused=True)
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

    def take(self, batch: Batch) -> Tensor:
        """Take a step: ``ppo.noted``."""
        if not self._records:
            return self._take(batch)
        size = len(batch.actions)
        if size not in self._recorded:
            self._recorded[size] = self._record(batch)
        held, again = self._recorded[size]
        for into, new in zip(held.tensors(), batch.tensors(), strict=True):
            into.copy_(new)
        return again().clone()

    def _steer(self) -> None:
        """Have the optimiser, made or taken up, go by the rate that is held here."""
        for group in self.optimizer.param_groups:
            group["lr"], group["capturable"] = self._rate, self._records

    def _record(self, like: Batch) -> tuple[Batch, Callable[[], Tensor]]:
        """Make a step on as much as ``like`` holds a CUDA graph, by steps that have no finite gradient, and so no effect."""
        seen, actions, *rest = like.seen, like.actions, like.log_probs, like.advantages, like.returns
        observations, memory, legal = (each.clone() for each in seen)
        held = Batch((observations, memory, legal), actions.clone(), *(torch.full_like(each, torch.nan) for each in rest))
        return held, cuda_graphs.recorded(lambda: self._take(held), lambda: [self._take(held) for _ in range(WARM_UP)])

    def _take(self, batch: Batch) -> Tensor:
        losses = ppo.ppo_loss(self.policy(batch.seen, batch.actions), batch, self.config, self._entropy_weight)
        losses.total.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.config.max_grad_norm)
        self.optimizer.found_inf = (~norm.isfinite()).float()  # what torch.amp.GradScaler tells fused optimisers
        self.optimizer.step()
        self.optimizer.zero_grad()
        return ppo.noted(losses, norm)
