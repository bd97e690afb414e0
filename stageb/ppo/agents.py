"""Agents: from observations to a policy and a value.

``forward`` *is* the training evaluation, so that the hooks run which reduce its gradients over ranks: a wrapped module whose
other methods are called past the wrapper never synchronises, and replicas part in silence. Acting needs no gradients and
uses ``decide`` of the bare module. All parameters are made at once, before anything wraps them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import torch
from torch import Tensor, nn

from stageb import seeds
from stageb.ppo.config import AgentConfig
from stageb.ppo.environment import Actions, mask
from stageb.training.ppo import RunningNorm, draw_weights


class ActorCritic(nn.Module):
    """What every agent is: define ``decide``."""

    memory: int = 0  # numbers that it remembers of an episode, zeros at its start: ``RecurrentAgent``

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.actions = actions

    def decide(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Of observations (B, ...): what ``actions`` makes a policy of, float32 (B, outputs), and values, float32 (B,)."""
        raise NotImplementedError

    def advance(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``decide``, and the ``memory``, float32 (B, memory), that the next step begins with."""
        return *self.decide(observations), memory

    def forward(self, observations: Tensor, actions: Tensor, masks: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """What PPO learns from: log-probabilities of ``actions``, entropies and values, each float32 (B,)."""
        outputs, values = self.decide(observations)
        log_probs, entropies = self.actions.judge(mask(outputs, masks), actions)
        return log_probs, entropies, values


class VectorAgent(ActorCritic):
    """Layers of tanh, for observations that are vectors, or are flattened to such."""

    def __init__(self, config: AgentConfig, shape: torch.Size, actions: Actions, seed: int) -> None:
        """For observations of a ``shape``; weights are drawn from the stream that ``seed`` names."""
        super().__init__(actions)
        size = math.prod(shape)
        self.normaliser = RunningNorm(size) if config.normalize else nn.Identity()
        self.trunk = _layers(size, config)
        self.critic = nn.Identity() if config.shared else _layers(size, config)
        width = config.hidden if config.layers else size
        self.policy, self.value = nn.Linear(width, actions.means), nn.Linear(width, 1)
        self.deviations = nn.Parameter(torch.zeros(actions.deviations)) if actions.deviations else None  # their logarithms
        draw_weights(self, seeds.stream(seed, "ppo", "weights"), {self.policy: 0.01, self.value: 1.0})

    def decide(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """See ``ActorCritic``."""
        seen = self.normaliser(observations.flatten(1).float())
        hidden = self.trunk(seen)
        values = self.value(self.critic(hidden if isinstance(self.critic, nn.Identity) else seen))
        outputs = self.policy(hidden).float()
        if self.deviations is not None:
            outputs = torch.cat([outputs, self.deviations.expand_as(outputs)], dim=1)
        return outputs, values.float()[:, 0]


class RecurrentAgent(ActorCritic):
    """An agent with a memory: define ``memory`` and ``advance``. It learns from sequences, which are played again from what
    it remembered at their start, and so from all steps of a sequence at once (Huang et al. 2022, of LSTMs)."""

    def forward(  # type: ignore[override]  # it is given sequences
        self, observations: Tensor, actions: Tensor, memory: Tensor, ended: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As of any agent, of B sequences of L steps: (B, L) each. ``ended``, bool (B, L), are steps that end an episode."""
        decided = []
        for step in range(ended.shape[1]):
            outputs, values, memory = self.advance(observations[:, step], memory)
            memory = memory.masked_fill(ended[:, step, None], 0.0)
            decided.append((outputs, values))
        outputs, values = (torch.stack(each, 1) for each in zip(*decided, strict=True))
        outputs = mask(outputs, masks).flatten(0, 1)
        log_probs, entropies = self.actions.judge(outputs, actions.flatten(0, 1))
        return log_probs.view_as(values), entropies.view_as(values), values


class GruAgent(RecurrentAgent):
    """A GRU that reads observations, and a ``VectorAgent`` that reads the GRU."""

    def __init__(self, config: AgentConfig, shape: torch.Size, actions: Actions, seed: int) -> None:
        """As of ``VectorAgent``."""
        super().__init__(actions)
        size, self.memory = math.prod(shape), config.recurrent
        self.normaliser = RunningNorm(size) if config.normalize else nn.Identity()
        self.core = nn.GRUCell(size, self.memory)
        self.reader = VectorAgent(replace(config, normalize=False), torch.Size([self.memory]), actions, seed)
        generator = torch.Generator().manual_seed(seeds.stream(seed, "ppo", "memory") >> 1)
        for name, each in self.core.named_parameters():
            nn.init.orthogonal_(each, 1.0, generator) if name.startswith("weight") else nn.init.zeros_(each)

    def advance(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See ``ActorCritic``."""
        memory = self.core(self.normaliser(observations.flatten(1).float()), memory).float()
        return *self.reader.decide(memory), memory


def _layers(size: int, config: AgentConfig) -> nn.Sequential:
    pairs = itertools.pairwise([size, *[config.hidden] * config.layers])
    return nn.Sequential(*(part for wide, next_wide in pairs for part in (nn.Linear(wide, next_wide), nn.Tanh())))
