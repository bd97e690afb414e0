"""The environment and the agent that a config names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from stageb.config import require
from stageb.errors import shown
from stageb.ppo.agents import ActorCritic, GruAgent, VectorAgent
from stageb.ppo.config import SNAKE, TWENTY48, PpoLoopConfig
from stageb.ppo.environment import Environment
from stageb.settings import function_named

SIDE_BY_SIDE = 64  # games of Gymnasium's, at most, that an evaluation makes


def make_environment(
    config: PpoLoopConfig, seed: int, numbers: Sequence[int], device: str, look: bool = False
) -> Environment:
    """Episodes by their global ``numbers``, whose streams ``seed`` names; to ``look`` at, for which
    Gymnasium's are made in a mode of its own. Raises ``ConfigError``."""
    env = config.env
    if env.make is None and env.name == SNAKE:
        from stageb.ppo.envs.snake import SnakeEnvironment

        return SnakeEnvironment(config.game, seed, numbers, device)
    if env.make is None and env.name == TWENTY48:
        from stageb.ppo.envs.twenty48 import Twenty48

        return Twenty48(seed, numbers, device)
    function = function_named("env.make", env.make) if env.make else None
    is_many = function is not None and (_takes(function, "num_envs") or _takes(function, "numbers"))
    require(
        not (is_many and env.workers),
        "env.workers",
        env.workers,
        "0, since env.make makes many games at once by itself",
    )
    if function is None or not _takes(function, "numbers"):
        from stageb.ppo.envs.gym import GymEnvironment
        from stageb.ppo.envs.gym_games import make_registered
        from stageb.ppo.envs.gym_vectors import make_games

        mode = (
            {"render_mode": "rgb_array"}
            if look and (function is None or _takes(function, "render_mode"))
            else {}
        )
        made = partial(function or partial(make_registered, env.name), **env.options | mode)
        named = ("env.make", env.make) if env.make else ("env.name", env.name)
        return GymEnvironment(
            named, lambda count: make_games(made, count, env.workers), seed, numbers, device
        )
    found = function(seed=seed, numbers=numbers, device=torch.device(device), **env.options)
    remedy = "return a stageb.ppo.environment.Environment"
    require(
        isinstance(found, Environment),
        "env.make",
        env.make,
        f"it returned {shown(repr(found), 60)}; {remedy}",
    )
    own: Environment = found
    return own


def make_agent(config: PpoLoopConfig, environment: Environment) -> ActorCritic:
    """The agent, with the weights that it begins with. Raises ``ConfigError``."""
    if config.agent.make is None and config.env.title == SNAKE:
        from stageb.ppo.envs.snake_agent import Agent

        return Agent(config.agent, config.game.size, config.seed)
    usual = GruAgent if config.agent.recurrent else VectorAgent
    named = function_named("agent.make", config.agent.make) if config.agent.make else usual
    fine = isinstance(named, type) and issubclass(named, ActorCritic)
    require(
        fine,
        "agent.make",
        config.agent.make,
        "name a class that inherits stageb.ppo.agents.ActorCritic",
    )
    made: ActorCritic = named(
        config.agent, environment.observe().shape[1:], environment.actions, config.seed
    )
    return made


def count_side_by_side(config: PpoLoopConfig) -> int | None:
    """How many episodes an evaluation plays side by side, each in a game that must be made; null:
    all."""
    function = function_named("env.make", config.env.make) if config.env.make else None
    if config.env.title in (SNAKE, TWENTY48) or (function and _takes(function, "numbers")):
        return None
    return min(config.runner.count_envs(1) or SIDE_BY_SIDE, SIDE_BY_SIDE)


def _takes(function: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(function).parameters
