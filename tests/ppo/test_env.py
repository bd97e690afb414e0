"""Gymnasium's interface, by Gymnasium's own checkers and beside Gymnasium's own vector."""

from __future__ import annotations

import warnings
from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from stageb.ppo.config import GameConfig
from stageb.ppo.envs.snake_gym import SnakeEnv, SnakeVectorEnv


@pytest.mark.parametrize("mode", [None, "ansi", "rgb_array"])
def test_gymnasium_finds_no_fault(mode: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        check_env(SnakeEnv(GameConfig(size=6), render_mode=mode))


@pytest.mark.slow
def test_a_vector_is_gymnasiums_vector_of_single_games() -> None:
    config, count = GameConfig(size=5, patience=12), 24
    ours = SnakeVectorEnv(count, config)
    theirs = SyncVectorEnv(
        [partial(SnakeEnv, config, number) for number in range(count)],
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    assert ours.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert np.array_equal(ours.reset(seed=7)[0], theirs.reset(seed=[7] * count)[0])
    chance, ended = np.random.default_rng(0), 0
    for _ in range(150):
        actions = chance.integers(0, 4, count)
        (*mine, infos), (*wanted, expected) = ours.step(actions), theirs.step(actions)
        for one, other in zip(mine, wanted, strict=True):
            assert np.allclose(one, other)
        assert mine[0] in ours.observation_space
        assert ("final_obs" in infos) == ("final_obs" in expected)
        if "final_obs" in infos:
            assert np.array_equal(infos["_final_obs"], expected["_final_obs"])
            for place in np.flatnonzero(infos["_final_obs"]):
                ended += 1
                assert np.array_equal(infos["final_obs"][place], expected["final_obs"][place])
                assert infos["final_info"]["score"][place] == expected["final_info"]["score"][place]
    assert ended > 100


def test_the_seed_of_reset_names_the_food() -> None:
    envs = SnakeVectorEnv(8, GameConfig(size=6))
    first, again, other = (envs.reset(seed=seed)[0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    follows = envs.reset()[0]
    assert not np.array_equal(follows, other)
    envs.reset(seed=2)
    assert np.array_equal(envs.reset()[0], follows)


def test_some_games_alone_can_be_reset() -> None:
    envs = SnakeVectorEnv(4, GameConfig(size=6))
    envs.reset(seed=1)
    before = envs.step(np.zeros(4, dtype=np.int64))[0]
    after = envs.reset(options={"reset_mask": np.array([True, False, False, True])})[0]
    assert np.array_equal(before[1:3], after[1:3])
    assert np.array_equal(after[[0, 3], 2].argmax(axis=None) % 36, 21)


def test_a_step_before_reset_is_told() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        SnakeVectorEnv(2).step(np.zeros(2, dtype=np.int64))
    with pytest.raises(gymnasium.error.ResetNeeded):
        SnakeEnv().step(np.int64(0))


def test_planes_are_age_over_length_food_and_head() -> None:
    env = SnakeEnv(GameConfig(size=5))
    age, food, head = env.reset(seed=3)[0]
    assert np.allclose(age[2], [1 / 3, 2 / 3, 1, 0, 0])
    assert (food.sum(), head.sum(), head[2, 2]) == (1, 1, 1)
    assert age[food == 1] == 0
