"""Stable-Baselines3's PPO on this project's Snake: its game behind their ``VecEnv``, its network as
their policy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import VecEnv
from torch import Tensor, nn

from lab.bench.snake_peers import Setting, grids_of
from stageb.ppo.envs.snake_agent import Agent
from stageb.ppo.envs.snake_gym import SnakeVectorEnv


class Games(VecEnv):
    """A ``SnakeVectorEnv`` by the interface of Stable-Baselines3."""

    render_mode = None

    def __init__(self, envs: SnakeVectorEnv) -> None:
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._envs = envs
        self._actions = np.zeros(envs.num_envs, np.int64)

    def reset(self) -> Any:
        return self._envs.reset(seed=1)[0]

    def step_async(self, actions: Any) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        seen, rewards, terminated, truncated, infos = self._envs.step(self._actions)
        notes: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for place in np.flatnonzero(terminated | truncated):
            last = infos["final_obs"][place]
            notes[place] = {
                "terminal_observation": last,
                "TimeLimit.truncated": bool(truncated[place]),
            }
        return seen, rewards, terminated | truncated, notes

    def close(self) -> None:
        self._envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self._envs, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **keywords: Any
    ) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        return [seed] * self.num_envs


class Trunk(BaseFeaturesExtractor):
    """The loop's network but for its last two layers, which are theirs."""

    def __init__(self, observation_space: Any, setting: Setting) -> None:
        super().__init__(observation_space, setting.agent.hidden)
        self.agent = Agent(setting.agent, setting.game.size, 0)
        self.agent.policy, self.agent.value = nn.Identity(), nn.Identity()  # type: ignore[assignment]

    def forward(self, observations: Tensor) -> Tensor:
        return self.agent.decide(grids_of(observations))[0]


def model_of(setting: Setting, envs: SnakeVectorEnv) -> PPO:
    """Their PPO with the loop's numbers."""
    torch.manual_seed(0)
    keywords = {
        "features_extractor_class": Trunk,
        "features_extractor_kwargs": {"setting": setting},
        "net_arch": [],
    }
    return PPO(
        ActorCriticPolicy,
        Games(envs),
        learning_rate=5e-4,
        n_steps=setting.steps,
        batch_size=setting.batch,
        n_epochs=setting.epochs,
        policy_kwargs={**keywords, "normalize_images": False, "ortho_init": False},
        ent_coef=0.01,
        device="cpu",
    )


def stable_baselines3(setting: Setting) -> float:
    """Training steps a second of Stable-Baselines3's PPO on this project's game and network."""
    model = model_of(setting, SnakeVectorEnv(setting.games, setting.game))
    model.learn(setting.rollout)
    began = time.perf_counter()
    model.learn(setting.updates * setting.rollout, reset_num_timesteps=False)
    return setting.updates * setting.rollout / (time.perf_counter() - began)
