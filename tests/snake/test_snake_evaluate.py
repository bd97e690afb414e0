"""Whole games: each counts by its first episode, whatever else is played beside it."""

from contextlib import nullcontext

import pytest
import torch

from stageb.snake.agent import Agent
from stageb.snake.config import AgentConfig, GameConfig
from stageb.snake.evaluate import Cycle, play_out, sum_games
from stageb.snake.game import Game


def test_a_game_counts_by_its_first_episode_however_long_others_go_on() -> None:
    agent, config, games = Agent(AgentConfig(4, 1, 16), 5, 0), GameConfig(size=5, patience=40), range(12)
    found = play_out(agent, config, 7, list(games), nullcontext).tolist()
    alone = []
    for number in games:
        game, outcome = Game(config, 7, [number], "cpu"), None
        while outcome is None or not (outcome.terminated | outcome.truncated).any():
            if outcome is not None:
                game.restart(torch.zeros(1, dtype=torch.bool), outcome.ate)
            outcome = game.move(agent.decide(game.grids())[0].argmax(-1))
        alone.append([1, int(game.score), int(outcome.won), int(outcome.truncated), int(game.steps)])
    assert found == alone
    assert len({steps for *_, steps in alone}) > 1


@pytest.mark.parametrize("size", [4, 6, 8, 16])
def test_going_around_the_board_wins_every_game(size: int) -> None:
    played = sum_games(play_out(Cycle(size), GameConfig(size=size), 0, range(8), nullcontext))
    assert played.won == played.games == 8
    assert played.died == played.cut == 0
    assert played.score == 8 * (size**2 - 3)
