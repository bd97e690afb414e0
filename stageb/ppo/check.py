"""``stageb validate`` of the PPO loop: its environment and its agent are made, and one episode is
played, twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import torch

from stageb import draws, seeds
from stageb.config import require
from stageb.errors import ConfigError, StagebError
from stageb.ppo.agents import ActorCritic
from stageb.ppo.config import PpoLoopConfig
from stageb.ppo.environment import Discrete, Environment, mask
from stageb.ppo.make import make_agent, make_environment
from stageb.ppo.schedule import Schedule

MOST_STEPS = 10_000  # of the episode that is played
WRAPPER = "gymnasium.wrappers.TimeLimit"


def main(config: PpoLoopConfig) -> int:
    """Check all that a fit asks of its environment, short of playing many. Raises
    ``ConfigError``."""
    if (envs := config.runner.count_envs(1)) is not None:
        Schedule.of(config, 1, envs)
    with closing(make_environment(config, config.seed, [0], "cpu")) as environment:
        agent = make_agent(config, environment)
        first = environment.observe().clone()
        length = play_some(config, environment, agent, MOST_STEPS)
        seen, is_masked = environment.observe()[0], environment.masks() is not None
        strays = environment.find_strays()
        with closing(make_environment(config, config.seed, [0], "cpu")) as again:
            repeats = torch.equal(first, again.observe())
            if repeats and length is not None:
                repeats = play_some(config, again, agent, length) == length
                repeats = repeats and torch.equal(seen, again.observe()[0])
    size = sum(each.numel() for each in agent.parameters())
    shown = f"observations {tuple(seen.shape)} of {str(seen.dtype)[6:]}{', with masks' * is_masked}"
    print(
        f"The keys are valid, and so is {config.env.title}: {shown}; actions {environment.actions};"
    )
    print(f"{type(agent).__name__} of {size:,} parameters.")
    if length is None:
        limit = (
            f"wrap it in {WRAPPER}, or set evaluation.limit, or an evaluation may take very long"
        )
        print(f"No episode ended in {MOST_STEPS:,} steps: {limit}.")
    else:
        print(f"An episode of an agent that has learnt nothing took {length:,} steps.")
    if strays:
        print(
            f"{strays}: correct observation_space, or wrap it to bring them there; agents see "
            f"them as they are."
        )
    if not repeats:
        print(
            "Made and played twice from one seed, it showed different observations: draw all that "
            "is random from the seed, as from self.np_random, or a resumed run is another."
        )
    print("The loggers and the devices were not checked.")
    return 0


@torch.no_grad()
def play_some(
    config: PpoLoopConfig, environment: Environment, agent: ActorCritic, steps: int
) -> int | None:
    """Play an environment of one episode for so many ``steps``, or to its end: after which step;
    None: it goes on. Raises ``ConfigError`` for what cannot be played."""
    key = torch.tensor(
        [draws.signed(seeds.stream(config.seed, config.env.title, "a first episode"))]
    )
    memory, count = torch.zeros((1, agent.memory)), environment.observe().shape[:1]
    for step in range(steps):
        with _report_errors(config):
            outputs, _, memory = agent.advance(environment.observe(), memory)
            masks = environment.masks()
            require_masks(config, environment, masks)
            actions, _ = agent.actions.draw(mask(outputs, masks), key, torch.tensor([step]))
            outcome = environment.step(actions)
            done = outcome.terminated | outcome.truncated
        found = {
            "rewards": outcome.rewards,
            "terminated": outcome.terminated,
            "truncated": outcome.truncated,
        }
        for name, each in found.items():
            fits = each.shape == count and (each.dtype == torch.bool) == (name != "rewards")
            _require(
                config,
                fits,
                f"{name} is {tuple(each.shape)} of {str(each.dtype)[6:]}; one value for each "
                f"episode",
            )
        _require(
            config,
            bool(outcome.rewards.isfinite().all()),
            f"the reward at step {step + 1} is no finite number",
        )
        if bool(done):
            return step + 1
        with _report_errors(config):
            environment.restart(done)
    return None


def require_masks(
    config: PpoLoopConfig, environment: Environment, masks: torch.Tensor | None
) -> None:
    """Raise ``ConfigError`` where masks allow nothing to an environment that chooses among so many
    actions."""
    if masks is not None and isinstance(environment.actions, Discrete):
        _require(
            config,
            bool(masks.any(1).all()),
            "a mask allows no action; allow one, or end the episode",
        )


def _require(config: PpoLoopConfig, holds: bool, told: str) -> None:
    require(holds, "env.make" if config.env.make else "env.name", config.env.title, told)


@contextmanager
def _report_errors(config: PpoLoopConfig) -> Iterator[None]:
    """Report errors of a user's own environment with their place."""
    from stageb.ppo.envs.gym_games import place_raised

    try:
        yield
    except StagebError:
        raise
    except Exception as error:
        if place := place_raised(error):
            raise ConfigError(
                "env.make", config.env.title, f"{type(error).__name__}: {error} ({place})"
            ) from error
        raise
