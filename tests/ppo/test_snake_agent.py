"""What the agent makes of a board, however it lies."""

from __future__ import annotations

import contextlib
from contextlib import nullcontext

import pytest
import torch
from ppo.boards import game_of
from torch import Tensor

from stageb.ppo.config import AgentConfig, GameConfig, PpoLoopConfig
from stageb.ppo.envs.snake import ACTIONS, DOWN, LEFT, RIGHT, UP, Game, SnakeEnvironment
from stageb.ppo.envs.snake_agent import Agent, Cycle
from stageb.ppo.evaluate import play_out
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
def test_a_turned_or_mirrored_board_is_valued_alike_and_played_by_turned_or_mirrored_moves(
    size: int, patch: int
) -> None:
    agent = agent_of(size, patch=patch)
    boards = boards_of(agent, size)
    logits, values = agent.decide(boards.flatten(1))
    # against the clock: what was right is up
    around, same = agent.decide(boards.rot90(1, (1, 2)).flatten(1))
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
        # the tail leaves its cell, the neck lies below
        (". . . . . a d . . b c . . . . *", UP, {UP, RIGHT, LEFT}),
        (". . . . . e d . a b c . . . . *", LEFT, {UP, LEFT}),
        ("c b a . . . . . . . . . . . . *", LEFT, {DOWN}),  # a corner
        # trapped: whatever it does, it dies
        ("h g a . e f b . d c . . . . . *", UP, set(range(ACTIONS))),
    ],
)
def test_deadly_moves_have_no_probability_while_there_is_another(
    board: str, heading: int, left: set[int]
) -> None:
    game = game_of(board, heading)
    logits, _ = agent_of(4).decide(game.grids())
    assert set(logits.softmax(1)[0].nonzero()[:, 0].tolist()) == left


@torch.no_grad()
def test_a_snake_dies_only_where_it_is_trapped() -> None:
    agent, numbers = agent_of(5), range(256)
    player = Player(
        agent,
        SnakeEnvironment(GameConfig(size=5), 0, numbers, "cpu"),
        64,
        numbers,
        0,
        contextlib.nullcontext,
    )
    rollout, played = player.play(0)
    dead = rollout.terminated & (rollout.rewards < 0)
    assert 0 < int(dead.sum()) == played.sums[list(SnakeEnvironment.measures).index("death_rate")]
    chances = agent.decide(rollout.observations[dead])[0].softmax(1)
    assert bool((chances > 0).all())
    _, entropies, _ = agent(rollout.observations.flatten(0, 1), rollout.actions.flatten())
    assert bool(entropies.isfinite().all())


# What a rollout counts


def test_only_games_that_ended_count_with_what_they_ate_and_how_long_they_took() -> None:
    config = GameConfig(size=5, food=1.0, death=0.0, step=0.0)
    numbers = range(16)
    agent = Agent(AgentConfig(channels=8, blocks=1, hidden=16), config.size, 0)
    player = Player(
        agent, SnakeEnvironment(config, 0, numbers, "cpu"), 96, numbers, 0, contextlib.nullcontext
    )
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
    agent, game = (
        Agent(AgentConfig(channels=8, blocks=1, hidden=16), config.size, 0),
        Game(config, 0, numbers),
    )
    player = Player(
        agent, SnakeEnvironment(config, 0, numbers, "cpu"), 32, numbers, 0, contextlib.nullcontext
    )
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


# Whole games: each counts by its first episode, whatever else is played beside it


def test_a_game_counts_by_its_first_episode_however_long_others_go_on() -> None:
    agent, config, games = (
        Agent(AgentConfig(4, 1, 16), 5, 0),
        GameConfig(size=5, patience=40),
        range(12),
    )
    found = play_out(agent, PpoLoopConfig(game=config), 7, list(games), nullcontext).tolist()
    alone = []
    for number in games:
        game, outcome = Game(config, 7, [number], "cpu"), None
        while outcome is None or not (outcome.terminated | outcome.truncated).any():
            if outcome is not None:
                game.renew(torch.zeros(1, dtype=torch.bool), outcome.ate)
            outcome = game.move(agent.decide(game.grids())[0].argmax(-1))
        won, cut = int(outcome.won), int(outcome.truncated)
        alone.append(
            [1, int(game.score), float(game.length / 25), won, 1 - won - cut, cut, int(game.steps)]
        )
    assert found == alone
    assert len({steps for *_, steps in alone}) > 1


@pytest.mark.parametrize("size", [4, 6, 8])
def test_going_around_the_board_wins_every_game(size: int) -> None:
    found = play_out(
        Cycle(size), PpoLoopConfig(game=GameConfig(size=size)), 0, range(8), nullcontext
    ).sum(0)
    games, score, fill, won, died, cut, _ = found.tolist()
    assert won == fill == games == 8
    assert died == cut == 0
    assert score == 8 * (size**2 - 3)
