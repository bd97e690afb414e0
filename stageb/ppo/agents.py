"""Agents: from observations to a policy and a value.

``forward`` *is* the training evaluation, so that the hooks run which reduce its gradients over
ranks: a wrapped module whose other methods are called past the wrapper never synchronises, and
replicas part in silence. Acting needs no gradients and uses ``decide`` of the bare module. All
parameters are made at once, before anything wraps them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from stageb import seeds
from stageb.ppo.config import AgentConfig
from stageb.ppo.environment import Actions, mask
from stageb.training.ppo import RunningNorm, draw_weights

GLANCE = 8  # the side of a picture that layers read as it is


class ActorCritic(nn.Module):
    """Base class of every agent: define ``decide``."""

    # numbers that it remembers of an episode, zeros at its start: ``RecurrentAgent``
    memory: int = 0

    def __init__(self, actions: Actions) -> None:
        super().__init__()
        self.actions = actions

    def decide(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Of observations (B, ...): what ``actions`` makes a policy of, float32 (B, outputs), and
        values, float32 (B,)."""
        raise NotImplementedError

    def advance(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``decide``, and the ``memory``, float32 (B, memory), that the next step begins with."""
        return *self.decide(observations), memory

    def forward(
        self, observations: Tensor, actions: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute what PPO learns from: log-probabilities of ``actions``, entropies and values,
        each float32 (B,)."""
        outputs, values = self.decide(observations)
        log_probs, entropies = self.actions.judge(mask(outputs, masks), actions)
        return log_probs, entropies, values


class VectorAgent(ActorCritic):
    """Layers of tanh, for observations that are vectors, or are flattened to such; pictures are
    read by ``Eyes`` before."""

    def __init__(self, config: AgentConfig, shape: torch.Size, actions: Actions, seed: int) -> None:
        """For observations of a ``shape``; weights are drawn from the stream that ``seed``
        names."""
        super().__init__(actions)
        self.normaliser = RunningNorm(math.prod(shape)) if config.normalize else nn.Identity()
        self.eyes = make_eyes(shape, config)
        size = self.eyes(torch.zeros((1, math.prod(shape)))).shape[1]
        self.trunk = _make_layers(size, config)
        self.critic = nn.Identity() if config.shared else _make_layers(size, config)
        width = config.hidden if config.layers else size
        self.policy, self.value = nn.Linear(width, actions.means), nn.Linear(width, 1)
        # their logarithms
        self.deviations = (
            nn.Parameter(torch.zeros(actions.deviations)) if actions.deviations else None
        )
        draw_weights(
            self, seeds.stream(seed, "ppo", "weights"), {self.policy: 0.01, self.value: 1.0}
        )

    def decide(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """See ``ActorCritic``."""
        seen = self.eyes(self.normaliser(read_numbers(observations)))
        hidden = self.trunk(seen)
        values = self.value(self.critic(hidden if isinstance(self.critic, nn.Identity) else seen))
        outputs = self.policy(hidden).float()
        if self.deviations is not None:
            outputs = torch.cat([outputs, self.deviations.expand(len(outputs), -1)], dim=1)
        return outputs, values.float()[:, 0]


class RecurrentAgent(ActorCritic):
    """An agent with a memory: define ``memory`` and ``advance``. It learns from sequences, which
    are played again from what it remembered at their start, and so from all steps of a sequence at
    once (Huang et al. 2022, of LSTMs)."""

    def forward(  # type: ignore[override]  # it is given sequences
        self,
        observations: Tensor,
        actions: Tensor,
        memory: Tensor,
        ended: Tensor,
        masks: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As of any agent, of B sequences of L steps: (B, L) each. ``ended``, bool (B, L), are
        steps that end an episode."""
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
        self.memory = config.recurrent
        self.normaliser = RunningNorm(math.prod(shape)) if config.normalize else nn.Identity()
        self.eyes = make_eyes(shape, config)
        draw_weights(self.eyes, seeds.stream(seed, "ppo", "eyes"), {})
        self.core = nn.GRUCell(self.eyes(torch.zeros((1, math.prod(shape)))).shape[1], self.memory)
        self.reader = VectorAgent(
            replace(config, normalize=False), torch.Size([self.memory]), actions, seed
        )
        generator = torch.Generator().manual_seed(seeds.stream(seed, "ppo", "memory") >> 1)
        for name, each in self.core.named_parameters():
            nn.init.orthogonal_(each, 1.0, generator) if name.startswith(
                "weight"
            ) else nn.init.zeros_(each)

    def advance(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See ``ActorCritic``."""
        memory = self.core(self.eyes(self.normaliser(read_numbers(observations))), memory).float()
        return *self.reader.decide(memory), memory


def read_numbers(observations: Tensor) -> Tensor:
    """Observations (B, ...) as vectors, float32 (B, size); bytes, which are of pictures, from 0 to
    1."""
    numbers = observations.flatten(1).float()
    return numbers / 255 if observations.dtype == torch.uint8 else numbers


class Eyes(nn.Module):
    """Convolutions of stride 2 that halve a picture until a side is ``GLANCE`` long, for pictures
    that come as vectors."""

    def __init__(self, shape: torch.Size, channels: int) -> None:
        """Of ``shape`` (height, width, colours), or (colours, height, width), or with frames before
        these."""
        super().__init__()
        *_, height, width, colours = shape
        self._shape, self._last = (
            shape,
            colours < min(height, shape[-3] if len(shape) == 3 else height),
        )
        sides = (height, width) if self._last else (width, colours)
        inputs, layers = math.prod(shape) // math.prod(sides), list[nn.Module]()
        while min(sides) > GLANCE:
            layers += [nn.Conv2d(inputs, channels, 3, stride=2, padding=1), nn.ReLU()]
            inputs, sides = channels, ((sides[0] + 1) // 2, (sides[1] + 1) // 2)
        self.layers = nn.Sequential(*layers, nn.Flatten())

    def forward(self, numbers: Tensor) -> Tensor:
        """(B, numbers of a picture) to (B, features)."""
        pictures = numbers.view(-1, *self._shape)
        if self._last:
            pictures = pictures.movedim(-1, -3)
        return cast(Tensor, self.layers(pictures.flatten(1, -3)))


def make_eyes(shape: torch.Size, config: AgentConfig) -> nn.Module:
    """Make the layers that read a picture: an observation of three dimensions or more, of which two
    are a picture's sides. Other observations pass unchanged."""
    is_picture = len(shape) >= 3 and sorted(shape)[-2] > GLANCE
    return Eyes(shape, config.channels) if is_picture else nn.Identity()


def _make_layers(size: int, config: AgentConfig) -> nn.Sequential:
    pairs = itertools.pairwise([size, *[config.hidden] * config.layers])
    return nn.Sequential(
        *(part for wide, next_wide in pairs for part in (nn.Linear(wide, next_wide), nn.Tanh()))
    )
