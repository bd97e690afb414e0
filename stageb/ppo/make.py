"""The environment and the agent that a config names."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from stageb.config import require
from stageb.errors import ConfigError, shown
from stageb.ppo.agents import ActorCritic, GruAgent, VectorAgent
from stageb.ppo.config import SNAKE, TWENTY48, PpoLoopConfig
from stageb.ppo.environment import Environment
from stageb.settings import function_named


def make_environment(
    config: PpoLoopConfig, seed: int, numbers: Sequence[int], device: str, look: bool = False
) -> Environment:
    """Episodes by their global ``numbers``, whose streams ``seed`` names; to ``look`` at, for which Gymnasium's are made in
    a mode of its own. Raises ``ConfigError``."""
    env = config.env
    if env.make is None and env.name == SNAKE:
        from stageb.ppo.envs.snake import SnakeEnvironment

        return SnakeEnvironment(config.game, seed, numbers, device)
    if env.make is None and env.name == TWENTY48:
        from stageb.ppo.envs.twenty48 import Twenty48

        return Twenty48(seed, numbers, device)
    mode = {"render_mode": "rgb_array"} if look else {}
    if env.make is None:
        return _vector("env.name", partial(_registered, env.name, env.options | mode), seed, numbers, device)
    function = function_named("env.make", env.make)
    asked = inspect.signature(function).parameters
    if "numbers" not in asked:
        options = env.options | (mode if "render_mode" in asked else {})
        return _vector("env.make", partial(function, **options), seed, numbers, device)
    found = function(seed=seed, numbers=numbers, device=torch.device(device), **env.options)
    remedy = "return a stageb.ppo.environment.Environment"
    require(isinstance(found, Environment), "env.make", env.make, f"it returned {shown(repr(found), 60)}; {remedy}")
    made: Environment = found
    return made


def make_agent(config: PpoLoopConfig, environment: Environment) -> ActorCritic:
    """The agent, with the weights that it begins with. Raises ``ConfigError``."""
    if config.agent.make is None and config.env.title == SNAKE:
        from stageb.ppo.envs.snake_agent import Agent

        return Agent(config.agent, config.game.size, config.seed)
    usual = GruAgent if config.agent.recurrent else VectorAgent
    named = function_named("agent.make", config.agent.make) if config.agent.make else usual
    fine = isinstance(named, type) and issubclass(named, ActorCritic)
    require(fine, "agent.make", config.agent.make, "name a class that inherits stageb.ppo.agents.ActorCritic")
    made: ActorCritic = named(config.agent, environment.observe().shape[1:], environment.actions, config.seed)
    return made


def _registered(name: str, options: dict[str, Any]) -> Any:
    """One of Gymnasium's environments, by its id."""
    import gymnasium

    try:
        return gymnasium.make(name, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        remedy = "name snake, 2048, or an id of Gymnasium's that is installed"
        raise ConfigError("env.name", name, f"{error}; {remedy}") from error


def _vector(key: str, make: partial[Any], seed: int, numbers: Sequence[int], device: str) -> Environment:
    """What ``make`` makes of Gymnasium's: a vector where it takes ``num_envs``, or else one after the other."""
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from stageb.ppo.envs.gym import GymEnvironment

    if "num_envs" in inspect.signature(make.func).parameters:
        envs = make(num_envs=len(numbers))
    else:
        envs = SyncVectorEnv([make] * len(numbers), autoreset_mode=AutoresetMode.DISABLED)
    return GymEnvironment(key, envs, seed, numbers, device)
