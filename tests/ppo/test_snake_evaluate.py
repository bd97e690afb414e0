"""Whole games: each counts by its first episode, whatever else is played beside it."""

from contextlib import nullcontext

import pytest
import torch

from stageb.ppo.config import AgentConfig, GameConfig, PpoLoopConfig
from stageb.ppo.envs.snake import Game
from stageb.ppo.envs.snake_agent import Agent, Cycle
from stageb.ppo.evaluate import play_out


def test_a_game_counts_by_its_first_episode_however_long_others_go_on() -> None:
    agent, config, games = Agent(AgentConfig(4, 1, 16), 5, 0), GameConfig(size=5, patience=40), range(12)
    found = play_out(agent, PpoLoopConfig(game=config), 7, list(games), nullcontext).tolist()
    alone = []
    for number in games:
        game, outcome = Game(config, 7, [number], "cpu"), None
        while outcome is None or not (outcome.terminated | outcome.truncated).any():
            if outcome is not None:
                game.renew(torch.zeros(1, dtype=torch.bool), outcome.ate)
            outcome = game.move(agent.decide(game.grids())[0].argmax(-1))
        won, cut = int(outcome.won), int(outcome.truncated)
        alone.append([1, int(game.score), float(game.length / 25), won, 1 - won - cut, cut, int(game.steps)])
    assert found == alone
    assert len({steps for *_, steps in alone}) > 1


@pytest.mark.parametrize("size", [4, 6, 10])
def test_going_around_the_board_wins_every_game(size: int) -> None:
    found = play_out(Cycle(size), PpoLoopConfig(game=GameConfig(size=size)), 0, range(8), nullcontext).sum(0)
    games, score, fill, won, died, cut, _ = found.tolist()
    assert won == fill == games == 8
    assert died == cut == 0
    assert score == 8 * (size**2 - 3)
