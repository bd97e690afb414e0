"""What a rollout counts of the games that ended in it."""

from __future__ import annotations

import contextlib

import torch

from stageb.ppo.config import AgentConfig, GameConfig
from stageb.ppo.envs.snake import Game, SnakeEnvironment
from stageb.ppo.envs.snake_agent import Agent
from stageb.ppo.rollout import Player


def test_only_games_that_ended_count_with_what_they_ate_and_how_long_they_took() -> None:
    config = GameConfig(size=5, food=1.0, death=0.0, step=0.0)
    numbers = range(16)
    agent = Agent(AgentConfig(channels=8, blocks=1, hidden=16), config.size, 0)
    player = Player(agent, SnakeEnvironment(config, 0, numbers, "cpu"), 96, numbers, 0, contextlib.nullcontext)
    rollout, played = player.play(0)
    done = rollout.terminated | rollout.truncated
    score = steps = 0
    for ended, eaten in zip(done.T, rollout.rewards.T, strict=True):  # a reward is a food here
        last = int(ended.nonzero()[-1]) + 1 if ended.any() else 0
        score, steps = score + int(eaten[:last].sum()), steps + last
    assert played.games == int(done.sum()) > 0
    assert (played.sums[0], played.sums[-1]) == (score, steps)
    assert rollout.rewards.sum() > score > 0  # some games that go on have eaten, too
    rollout, played = player.play(96)
    assert played.games == int((rollout.terminated | rollout.truncated).sum()) > 0


@torch.no_grad()
def test_what_a_step_led_to_is_valued_before_another_game_begins() -> None:
    config, numbers = GameConfig(size=5, patience=3), range(16)
    agent, game = Agent(AgentConfig(channels=8, blocks=1, hidden=16), config.size, 0), Game(config, 0, numbers)
    player = Player(agent, SnakeEnvironment(config, 0, numbers, "cpu"), 32, numbers, 0, contextlib.nullcontext)
    rollout, _ = player.play(0)
    assert rollout.truncated.any()
    for actions, truncated, terminated, found in zip(
        rollout.actions, rollout.truncated, rollout.terminated, rollout.next_values, strict=True
    ):
        outcome = game.move(actions)
        _, finals = agent.decide(game.grids())
        game.renew(truncated | terminated, outcome.ate)
        _, following = agent.decide(game.grids())
        wanted = torch.where(truncated, finals, following)
        torch.testing.assert_close(found[~terminated], wanted[~terminated])
