"""What the Snake loop is measured against plays the same game, and reads the same boards."""

from __future__ import annotations

import numpy as np
import torch

from lab.bench.snake_peers import PythonSnake, grids_of
from stageb.ppo.config import GameConfig
from stageb.ppo.envs.snake_gym import SnakeEnv, SnakeVectorEnv


def test_the_plain_python_game_is_the_same_game() -> None:
    config = GameConfig(size=5, patience=9)
    ours, plain = SnakeEnv(config), PythonSnake(config)
    chance = np.random.default_rng(0)
    seen, _ = ours.reset(seed=1)
    plain.reset(seed=1)
    for _ in range(2000):
        plain.food = tuple(np.argwhere(seen[1])[0].tolist())  # food alone is drawn in another way
        assert np.allclose(plain.seen(), seen)
        action = int(chance.integers(4))
        seen, *ours_says, _ = ours.step(np.int64(action))
        _, *plain_says, _ = plain.step(action)
        assert np.allclose(ours_says, plain_says)
        if ours_says[1] or ours_says[2]:
            seen, _ = ours.reset()
            plain.reset()


def test_peers_hand_the_network_the_boards_that_the_loop_does() -> None:
    envs = SnakeVectorEnv(32, GameConfig(size=6))
    envs.reset(seed=0)
    chance = np.random.default_rng(0)
    for _ in range(60):
        seen = envs.step(chance.integers(0, 4, 32))[0]
        assert envs.game is not None
        assert (grids_of(torch.tensor(seen)) == envs.game.grids()).all()
