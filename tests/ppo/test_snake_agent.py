"""What the agent makes of a board, however it lies."""

from __future__ import annotations

import contextlib

import pytest
import torch
from ppo.boards import game_of
from torch import Tensor

from stageb.ppo.config import AgentConfig, GameConfig
from stageb.ppo.envs.snake import ACTIONS, DOWN, LEFT, RIGHT, UP, SnakeEnvironment
from stageb.ppo.envs.snake_agent import Agent
from stageb.ppo.rollout import Player


def agent_of(size: int, patch: int = 1) -> Agent:
    """An agent whose logits differ."""
    agent = Agent(AgentConfig(channels=4, blocks=1, hidden=16, patch=patch), size, 0)
    torch.nn.init.normal_(agent.policy.weight, generator=torch.Generator().manual_seed(0))
    return agent


def boards_of(agent: Agent, size: int) -> Tensor:
    """Grids in the midst of games: (64, size, size)."""
    environment = SnakeEnvironment(GameConfig(size=size), 0, range(64), "cpu")
    Player(agent, environment, 60, range(64), 0, contextlib.nullcontext).play(0)
    return environment.observe().view(-1, size, size)


@torch.no_grad()
@pytest.mark.parametrize(("size", "patch"), [(6, 1), (8, 2), (9, 3), (16, 2)])
def test_a_turned_or_mirrored_board_is_valued_alike_and_played_by_turned_or_mirrored_moves(size: int, patch: int) -> None:
    agent = agent_of(size, patch=patch)
    boards = boards_of(agent, size)
    logits, values = agent.decide(boards.flatten(1))
    around, same = agent.decide(boards.rot90(1, (1, 2)).flatten(1))  # against the clock: what was right is up
    torch.testing.assert_close(same, values)
    torch.testing.assert_close(around, logits.roll(-1, 1))
    mirrored, same = agent.decide(boards.flip(2).flatten(1))
    if size % 2 == 0:  # elsewhere food may lie on neither side
        torch.testing.assert_close(same, values)
        torch.testing.assert_close(mirrored, logits[:, [UP, LEFT, DOWN, RIGHT]])


@torch.no_grad()
@pytest.mark.parametrize(
    ("board", "heading", "left"),
    [
        (". . . . . a d . . b c . . . . *", UP, {UP, RIGHT, LEFT}),  # the tail leaves its cell, the neck lies below
        (". . . . . e d . a b c . . . . *", LEFT, {UP, LEFT}),
        ("c b a . . . . . . . . . . . . *", LEFT, {DOWN}),  # a corner
        ("h g a . e f b . d c . . . . . *", UP, set(range(ACTIONS))),  # trapped: whatever it does, it dies
    ],
)
def test_deadly_moves_have_no_probability_while_there_is_another(board: str, heading: int, left: set[int]) -> None:
    game = game_of(board, heading)
    logits, _ = agent_of(4).decide(game.grids())
    assert set(logits.softmax(1)[0].nonzero()[:, 0].tolist()) == left


@torch.no_grad()
def test_a_snake_dies_only_where_it_is_trapped() -> None:
    agent, numbers = agent_of(5), range(256)
    player = Player(agent, SnakeEnvironment(GameConfig(size=5), 0, numbers, "cpu"), 64, numbers, 0, contextlib.nullcontext)
    rollout, played = player.play(0)
    dead = rollout.terminated & (rollout.rewards < 0)
    assert 0 < int(dead.sum()) == played.sums[list(SnakeEnvironment.measures).index("death_rate")]
    chances = agent.decide(rollout.observations[dead])[0].softmax(1)
    assert bool((chances > 0).all())
    _, entropies, _ = agent(rollout.observations.flatten(0, 1), rollout.actions.flatten())
    assert bool(entropies.isfinite().all())
