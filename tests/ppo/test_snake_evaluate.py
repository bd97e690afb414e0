"""Whole games: each counts by its first episode, whatever else is played beside it."""

from contextlib import nullcontext

import torch

from stageb.ppo.config import AgentConfig, GameConfig, PpoLoopConfig
from stageb.ppo.envs.snake.agent import Agent
from stageb.ppo.envs.snake.game import Game
from stageb.ppo.evaluate import play_out


def test_a_game_counts_by_its_first_episode_however_long_others_go_on() -> None:
    agent, config, games = Agent(AgentConfig(4, 1, 16), 5, 0), GameConfig(size=5, patience=40), range(12)
    found = play_out(agent, PpoLoopConfig(game=config), 7, list(games), nullcontext).tolist()
    alone = []
    for number in games:
        game, outcome = Game(config, 7, [number], "cpu"), None
        while outcome is None or not (outcome.terminated | outcome.truncated).any():
            if outcome is not None:
                game.restart(torch.zeros(1, dtype=torch.bool), outcome.ate)
            outcome = game.move(agent.decide(game.grids())[0].argmax(-1))
        won, cut = int(outcome.won), int(outcome.truncated)
        alone.append([1, int(game.score), float(game.length / 25), won, 1 - won - cut, cut, int(game.steps)])
    assert found == alone
    assert len({steps for *_, steps in alone}) > 1
