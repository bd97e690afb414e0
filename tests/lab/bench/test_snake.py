"""What the Snake loop is measured against plays the same game, and reads the same boards."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.bench.__main__ import main
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


# Rows of the real command

SMALL = {"envs": 4, "rollout_steps": 4, "global_batch": 8}


@pytest.mark.slow
def test_rows_of_the_real_command_are_told_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"fabric.accelerator": "cpu", **{f"runner.{key}": value for key, value in SMALL.items()}}
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    out = tmp_path / "out.json"
    given = [
        "snake",
        "ranks",
        "--config",
        "configs/snake/5x5.yaml",
        "--updates",
        "3",
        *words,
        "--json",
        str(out),
    ]
    assert main(given) == 0
    (row,) = json.loads(out.read_text())["rows"]
    speeds = [row.pop(name) for name in ("lowest", "steps_per_s", "highest")]
    assert 0 < speeds[0] <= speeds[1] <= speeds[2]
    assert row == {"part": "ranks", "devices": 1, "games a rank": 4, "of linear": 1.0}
    shown = (
        f"devices 1, games a rank 4, steps_per_s {speeds[1]:.4g}, lowest {speeds[0]:.4g}, "
        f"highest {speeds[2]:.4g}"
    )
    assert capsys.readouterr().out == f"{shown}, of linear 1\n"
