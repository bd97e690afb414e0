"""Running moments of observations and rewards."""

from __future__ import annotations

from functools import partial

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeReward
from programs.ranks import on_ranks

from stageb.job.world import World
from stageb.training.ppo import RewardScale, RunningNorm


def test_moments_are_those_of_all_that_ranks_saw() -> None:
    rows = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)) * 5 + 7

    def act(world: World) -> tuple[list[list[float]], list[float]]:
        mine = rows.chunk(world.world_size)[world.rank]
        normaliser, scale = RunningNorm(3), RewardScale(0.9, 3, "cpu")
        assert torch.equal(normaliser(mine), mine)
        normaliser.take(mine, world.sum)
        scale.scale(mine, torch.zeros(mine.shape, dtype=torch.bool), world.sum)
        return normaliser(rows).tolist(), scale.moments.tolist()

    wanted = (rows - rows.mean(0)) / rows.std(0, unbiased=False)
    [(alone, _)] = on_ranks(1, act)
    assert torch.allclose(torch.tensor(alone), wanted, atol=1e-4)
    (one, first), (other, second) = on_ranks(2, act)
    assert one == other and first == second
    assert np.allclose(one, alone, atol=1e-5)


def test_returns_begin_and_end_with_their_episodes_as_in_gymnasium() -> None:
    """Of episodes that are cut off; where one terminates, Gymnasium takes its last reward alone."""
    mode = AutoresetMode.SAME_STEP
    envs = SyncVectorEnv(
        [partial(gymnasium.make, "Pendulum-v1", max_episode_steps=7)] * 3, autoreset_mode=mode
    )
    wrapped, scale = NormalizeReward(envs, gamma=0.9), RewardScale(0.9, 3, "cpu")
    wrapped.reset(seed=1)
    rewards, done = torch.zeros(50, 3), torch.zeros(50, 3, dtype=torch.bool)
    for step in range(50):
        _, scaled, _, cut, _ = wrapped.step(np.zeros((3, 1), np.float32))
        rewards[step] = torch.tensor(scaled * np.sqrt(wrapped.return_rms.var + 1e-8))
        done[step] = torch.tensor(cut)
    assert int(done.sum()) == 21
    last = scale.scale(rewards, done, lambda mine: mine)[-1]
    assert torch.allclose(last.double(), torch.tensor(scaled), rtol=1e-4)
    assert torch.allclose(
        scale.returns, torch.tensor(wrapped.accumulated_reward, dtype=torch.float64), rtol=1e-5
    )


def test_rewards_are_divided_by_the_deviation_of_discounted_returns() -> None:
    rewards = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    done = torch.tensor([[False], [True], [False], [False]])
    found = RewardScale(0.5, 1, "cpu").scale(rewards, done, lambda sums: sums)
    returns = np.array([1.0, 2.5, 4.0, 10.0])  # the third begins anew
    assert np.allclose(found.numpy()[:, 0], rewards.numpy()[:, 0] / returns.std(), atol=1e-5)
