"""Peers that the Snake loop is measured against: a plain Python game, a CleanRL-style PPO, and
Stable-Baselines3.

All learn with the loop's own network, on the loop's own game, with the same numbers of games,
steps, passes and minibatches.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from stageb.ppo.config import AgentConfig, GameConfig
from stageb.ppo.envs.snake_agent import Agent

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


class PythonSnake(gymnasium.Env[Any, Any]):
    """The same game as ``SnakeEnv``, as one would write it down: a deque of cells."""

    def __init__(self, config: GameConfig) -> None:
        self.config = config
        self.observation_space = spaces.Box(0.0, 1.0, (3, config.size, config.size), np.float32)
        self.action_space = spaces.Discrete(4)
        self.chance = np.random.default_rng(0)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """A new game."""
        if seed is not None:
            self.chance = np.random.default_rng(seed)
        middle = self.config.size // 2
        self.body = deque((middle, middle - back) for back in range(3))
        self.heading, self.idle = 1, 0
        self._lay()
        return self.seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step."""
        if action != self.heading ^ 2:
            self.heading = action
        (row, column), (down, right) = self.body[0], MOVES[self.heading]
        head, size = (row + down, column + right), self.config.size
        ate = head == self.food
        if not ate:
            tail = self.body.pop()
        self.idle = 0 if ate else self.idle + 1
        if not (0 <= head[0] < size and 0 <= head[1] < size) or head in self.body:
            self.body.append(tail)
            return self.seen(), self.config.death + self.config.step, True, False, {}
        self.body.appendleft(head)
        if ate and len(self.body) == self.config.cells:
            return self.seen(), self.config.food + self.config.step, True, False, {}
        if ate:
            self._lay()
        return (
            self.seen(),
            self.config.food * ate + self.config.step,
            False,
            self.idle >= self.config.hunger,
            {},
        )

    def seen(self) -> Any:
        """The planes of ``SnakeEnv``."""
        planes = np.zeros((3, self.config.size, self.config.size), np.float32)
        length = len(self.body)
        for back, cell in enumerate(self.body):
            planes[0][cell] = (length - back) / length
        planes[1][self.food] = length < self.config.cells
        planes[2][self.body[0]] = 1.0
        return planes

    def _lay(self) -> None:
        body, size = set(self.body), self.config.size
        free = [
            (row, column)
            for row in range(size)
            for column in range(size)
            if (row, column) not in body
        ]
        self.food = free[self.chance.integers(len(free))]


@dataclass(frozen=True)
class Setting:
    """The setting that all contestants learn in."""

    game: GameConfig
    agent: AgentConfig
    games: int
    steps: int  # of a rollout
    batch: int  # steps of a minibatch
    epochs: int
    updates: int  # that are timed; one more goes before
    threads: int

    @property
    def rollout(self) -> int:
        """Steps of all games between two updates."""
        return self.games * self.steps


def grids_of(observations: Tensor) -> Tensor:
    """The grids, int16 (N, cells), that observations, float32 (N, 3, size, size), were made of."""
    age, food, head = observations.flatten(2).unbind(1)
    length = 1 / age.masked_fill(age == 0, 2.0).amin(1, keepdim=True)  # the tail is 1 / length
    del head
    return ((age * length).round() + food * (food.shape[1] + 1)).to(torch.int16)


class Reader(nn.Module):
    """The loop's network for those who hand it observations."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.agent = Agent(setting.agent, setting.game.size, 0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and values."""
        return self.agent.decide(grids_of(observations))


def cleanrl_style(setting: Setting, envs: Any) -> float:
    """Training steps a second of a PPO in one file, as CleanRL writes it: ``envs`` is any Gymnasium
    vector."""
    reader = Reader(setting)
    optimizer = torch.optim.Adam(reader.parameters(), lr=5e-4, eps=1e-5)
    shape = (setting.steps, setting.games)
    obs = torch.zeros((*shape, 3, setting.game.size, setting.game.size))
    actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    next_obs, next_done = torch.tensor(envs.reset(seed=1)[0]), torch.zeros(setting.games)
    began = 0.0
    for update in range(setting.updates + 1):
        if update == 1:
            began = time.perf_counter()
        for step in range(setting.steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                logits, values[step] = reader(next_obs)
                chosen = torch.distributions.Categorical(logits=logits)
                action = chosen.sample()
                actions[step] = action
                logprobs[step] = chosen.log_prob(action)
            seen, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = (
                torch.tensor(seen),
                torch.tensor(np.logical_or(terminated, truncated), dtype=torch.float32),
            )
        advantages = _gae(rewards, values, dones, next_done, reader(next_obs)[1].detach())
        flat = [
            each.flatten(0, 1) for each in (obs, actions, logprobs, advantages, advantages + values)
        ]
        _passes(reader, optimizer, flat, setting)
    return setting.updates * setting.rollout / (time.perf_counter() - began)


def _gae(
    rewards: Tensor, values: Tensor, dones: Tensor, last_done: Tensor, last_value: Tensor
) -> Tensor:
    advantages = torch.zeros_like(rewards)
    carried = torch.zeros_like(last_value)
    for step in reversed(range(len(rewards))):
        goes_on = 1 - (last_done if step == len(rewards) - 1 else dones[step + 1])
        following = last_value if step == len(rewards) - 1 else values[step + 1]
        delta = rewards[step] + 0.99 * following * goes_on - values[step]
        advantages[step] = carried = delta + 0.99 * 0.95 * goes_on * carried
    return advantages


def _passes(
    reader: Reader, optimizer: torch.optim.Optimizer, flat: list[Tensor], setting: Setting
) -> None:
    places = np.arange(setting.rollout)
    for _ in range(setting.epochs):
        np.random.shuffle(places)
        for start in range(0, setting.rollout, setting.batch):
            obs, actions, logprobs, advantages, returns = (
                each[places[start : start + setting.batch]] for each in flat
            )
            logits, value = reader(obs)
            chosen = torch.distributions.Categorical(logits=logits)
            ratio = (chosen.log_prob(actions) - logprobs).exp()
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            policy = torch.max(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2)).mean()
            entropy = chosen.entropy().mean()
            loss = policy - 0.01 * entropy + 0.25 * (value - returns).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(reader.parameters(), 0.5)
            optimizer.step()
