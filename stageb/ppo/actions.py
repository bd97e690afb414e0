"""Spaces of actions: how an agent's outputs become a policy, how it is drawn from, and what PPO reads of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from stageb import draws

NEVER = -1e9  # the logit of no probability; finite, since the entropy of minus infinity is none


@dataclass(frozen=True)
class Discrete:
    """One of so many actions, int64 (N,). Outputs of an agent are their logits."""

    count: int
    deviations: ClassVar[int] = 0  # outputs that follow the others

    @property
    def means(self) -> int:
        """Outputs that depend on the observation."""
        return self.count

    def draw(self, outputs: Tensor, keys: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Actions by the uniform number that each of ``keys`` has at ``step``, and their log-probabilities."""
        log_probs = outputs.log_softmax(-1)
        upto = log_probs.double().exp().cumsum(-1)
        drawn = draws.uniforms(keys, step)[:, None] * upto[:, -1:]  # below the last sum, however it is rounded
        actions = (upto[:, :-1] <= drawn).sum(-1)
        return actions, log_probs.gather(1, actions[:, None])[:, 0]

    def best(self, outputs: Tensor) -> Tensor:
        """The most probable actions."""
        return outputs.argmax(-1)

    def judge(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of ``actions``, and entropies: float32 (B,) each."""
        log_probs = outputs.log_softmax(-1)
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(1, actions[:, None])[:, 0], entropies

    def blank(self, count: int, device: str | torch.device) -> Tensor:
        """So many actions that say nothing."""
        return torch.zeros(count, dtype=torch.int64, device=device)


@dataclass(frozen=True)
class Box:
    """So many real numbers, float32 (N, size): normal, independent of each other. Outputs of an agent are their means, then
    the logarithms of their deviations. Actions may lie beyond an environment's bounds, where it clips them."""

    size: int

    @property
    def means(self) -> int:
        """As for discrete actions."""
        return self.size

    @property
    def deviations(self) -> int:
        """Outputs that follow them."""
        return self.size

    def draw(self, outputs: Tensor, keys: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """As for discrete actions; every number of an action has a stream of its own."""
        means, logs = outputs.chunk(2, dim=-1)
        places = torch.arange(self.size, device=keys.device)
        drawn = draws.uniforms(draws.bits(keys[:, None], places), step).clamp(1e-12, 1 - 1e-12)
        normal = (torch.special.erfinv(2 * drawn - 1) * 2**0.5).to(torch.float32)
        actions = means + normal * logs.exp()
        return actions, self.judge(outputs, actions)[0]

    def best(self, outputs: Tensor) -> Tensor:
        """The most probable actions."""
        return outputs.chunk(2, dim=-1)[0]

    def judge(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """As for discrete actions: densities, in place of probabilities."""
        means, logs = outputs.chunk(2, dim=-1)
        apart = (actions - means) * (-logs).exp()
        log_probs = (-0.5 * apart.square() - logs - 0.5 * math.log(2 * math.pi)).sum(-1)
        return log_probs, (logs + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def blank(self, count: int, device: str | torch.device) -> Tensor:
        """So many actions that say nothing."""
        return torch.zeros((count, self.size), device=device)


Actions = Discrete | Box


def mask(outputs: Tensor, allowed: Tensor | None) -> Tensor:
    """Logits without those of actions that are not ``allowed``, bool (N, actions); None: all are."""
    return outputs if allowed is None else outputs.masked_fill(~allowed, NEVER)
