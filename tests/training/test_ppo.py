"""PPO's functions: against brute force, and an update of a toy problem worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from stageb.config import PpoConfig
from stageb.training import ppo
from stageb.training.ppo import Batch, Trajectory


def rollout_of(steps: int, games: int, seed: int) -> Trajectory:
    """A rollout with random figures and random ends."""
    chance = torch.Generator().manual_seed(seed)
    values, next_values, rewards = torch.randn(3, steps, games, generator=chance)
    ends = torch.rand(steps, games, generator=chance)
    return Trajectory(values, next_values, rewards, ends < 0.1, (ends > 0.1) & (ends < 0.3))


def brute_force(rollout: Trajectory, gamma: float, lam: float, step: int, game: int) -> float:
    """The sum of equation 16, written out: every later delta of the same episode, discounted."""
    total, weight = 0.0, 1.0
    for later in range(step, len(rollout.rewards)):
        ended = bool(rollout.terminated[later, game])
        following = 0.0 if ended else float(rollout.next_values[later, game])
        total += weight * (
            float(rollout.rewards[later, game])
            + gamma * following
            - float(rollout.values[later, game])
        )
        if ended or bool(rollout.truncated[later, game]):
            break
        weight *= gamma * lam
    return total


@given(
    st.integers(1, 12), st.integers(1, 3), st.integers(0, 2**32), st.floats(0, 1), st.floats(0, 1)
)
def test_gae_is_the_sum_written_out(
    steps: int, games: int, seed: int, gamma: float, lam: float
) -> None:
    rollout = rollout_of(steps, games, seed)
    found = ppo.gae(rollout, gamma, lam)
    expected = [
        [brute_force(rollout, gamma, lam, step, game) for game in range(games)]
        for step in range(steps)
    ]
    assert torch.allclose(found, torch.tensor(expected), atol=1e-4)


def test_a_terminated_step_bootstraps_from_nothing_and_a_truncated_one_from_its_last_observation() -> (
    None
):
    one, yes, no = torch.ones(1, 1), torch.tensor([[True]]), torch.tensor([[False]])
    values, following = torch.tensor([[0.25]]), torch.tensor([[8.0]])
    for terminated, truncated, expected in ((yes, no, 1 - 0.25), (no, yes, 1 + 0.5 * 8 - 0.25)):
        rollout = Trajectory(values, following, one, terminated, truncated)
        assert float(ppo.gae(rollout, 0.5, 0.9)) == expected


def test_lambda_0_is_one_step_and_lambda_1_the_whole_return() -> None:
    rewards = torch.tensor([[1.0], [2.0], [4.0]])
    values, following = torch.zeros(3, 1), torch.tensor([[0.0], [0.0], [16.0]])
    never = torch.zeros(3, 1, dtype=torch.bool)
    rollout = Trajectory(values, following, rewards, never, never)
    assert ppo.gae(rollout, 0.5, 0.0).flatten().tolist() == [1, 2, 12]
    assert ppo.gae(rollout, 0.5, 1.0).flatten().tolist() == [1 + 1 + 1 + 2, 2 + 2 + 4, 12]


@given(st.integers(0, 2**32), st.integers(1, 4))
def test_moments_of_parts_are_those_of_the_whole(seed: int, parts: int) -> None:
    rollouts, config = (
        [rollout_of(6, 3, seed + part) for part in range(parts)],
        PpoConfig(gamma=0.9, gae_lambda=0.9),
    )
    sums: list[Tensor] = []  # of each part

    def note(mine: Tensor) -> Tensor:
        sums.append(mine)
        return mine

    for each in rollouts:
        ppo.estimate_advantages(each, config, note)
    found = [
        ppo.estimate_advantages(each, config, lambda _: torch.stack(sums).sum(0))
        for each in rollouts
    ]
    whole = torch.cat([ppo.gae(each, 0.9, 0.9) for each in rollouts]).double()
    returns = whole + torch.cat([each.values for each in rollouts]).double()
    assert torch.allclose(torch.cat([each for _, each, _ in found]).double(), returns, atol=1e-6)
    for _, _, explained in found:
        assert float(explained) == pytest.approx(float(1 - whole.var() / returns.var()), abs=1e-5)
    normal = torch.cat([each for each, _, _ in found])
    wanted = (whole - whole.mean()) / whole.std(correction=0)
    assert torch.allclose(normal.double(), wanted, atol=1e-5)
    assert abs(float(normal.mean())) < 1e-5
    assert float(normal.std(correction=0)) == pytest.approx(1, abs=1e-4)


# A toy problem: one state, two actions, a policy of one parameter: the log-odds of action 1.


def evaluated(log_odds: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    log_probs = torch.stack([-torch.log1p(log_odds.exp()), log_odds - torch.log1p(log_odds.exp())])
    entropy = -(log_probs.exp() * log_probs).sum()
    return log_probs[actions], entropy.expand(len(actions)), torch.zeros(len(actions))


def test_two_steps_of_an_update_come_to_what_is_worked_out_by_hand() -> None:
    config = PpoConfig(clip=0.2, value_weight=0.5)
    actions, advantages = torch.tensor([1, 0]), torch.tensor([1.0, -1.0])
    batch = Batch(
        (torch.zeros(2, 1), actions),
        torch.full((2,), math.log(0.5)),
        advantages,
        torch.tensor([2.0, 0.0]),
    )
    log_odds = torch.zeros((), requires_grad=True)
    first = ppo.ppo_loss(evaluated(log_odds, actions), batch, config, 0.0)
    [gradient] = torch.autograd.grad(first.total, log_odds)
    # d ratio / d log-odds = 0.5 for action 1 and -0.5 for action 0: the gradient is -(0.5 * 1 +
    # -0.5 * -1) / 2
    assert float(gradient) == pytest.approx(-0.5)
    assert first.policy.item() == pytest.approx(0.0)
    assert first.value.item() == pytest.approx(0.5 * (4 + 0) / 2)
    assert first.total.item() == pytest.approx(0.5 * 1.0)
    assert (float(first.approx_kl), float(first.clip_frac)) == (0.0, 0.0)

    later = torch.tensor(0.6, requires_grad=True)  # after a step that went far: p = 0.6457
    second = ppo.ppo_loss(evaluated(later, actions), batch, config, 0.0)
    p = 1 / (1 + math.exp(-0.6))
    # 1.291 and 0.709: both beyond the clip, in the direction of their advantages
    ratios = (p / 0.5, (1 - p) / 0.5)
    assert second.policy.item() == pytest.approx(-(1.2 * 1 + 0.8 * -1) / 2)
    assert float(second.clip_frac) == 1.0
    assert float(second.approx_kl) == pytest.approx(
        sum(r - 1 - math.log(r) for r in ratios) / 2, abs=1e-6
    )
    [stopped] = torch.autograd.grad(second.total, later)
    assert float(stopped) == 0.0


def test_the_clip_never_stops_a_step_back() -> None:
    config = PpoConfig(clip=0.2)
    actions = torch.tensor([1])
    batch = Batch(
        (torch.zeros(1, 1), actions),
        torch.tensor([math.log(0.5)]),
        torch.tensor([-1.0]),
        torch.zeros(1),
    )
    far = torch.tensor(0.6, requires_grad=True)
    [gradient] = torch.autograd.grad(
        ppo.ppo_loss(evaluated(far, actions), batch, config, 0.0).total, far
    )
    assert float(gradient) > 0


def test_entropy_is_a_bonus() -> None:
    actions = torch.tensor([1])
    batch = Batch(
        (torch.zeros(1, 1), actions), torch.tensor([math.log(0.5)]), torch.zeros(1), torch.zeros(1)
    )
    loss = ppo.ppo_loss(evaluated(torch.zeros(()), actions), batch, PpoConfig(), 0.1)
    assert loss.total.item() == pytest.approx(-0.1 * math.log(2))


def noted(policy: float, norm: float) -> Tensor:
    return ppo.note_step(
        ppo.Losses(*(torch.tensor(each) for each in (9.0, policy, 2.0, 3.0, 4.0, 5.0))),
        torch.tensor(norm),
    )


def test_figures_are_means_over_the_steps_taken_under_the_names_of_their_losses() -> None:
    """A step that was left out counts in none of them: its own losses may be finite, where another
    rank's were not."""
    steps = torch.stack([noted(1.0, 6.0), noted(math.nan, math.inf), noted(7.0, math.nan)])
    assert steps[0, ppo.APPROX_KL] == 4
    assert ppo.Figures.of(ppo.average_steps(steps).tolist(), 0.7, 1, 2) == ppo.Figures(
        policy_loss=1.0,
        value_loss=2.0,
        entropy=3.0,
        approx_kl=4.0,
        clip_frac=5.0,
        explained_variance=0.7,
        grad_norm=6.0,
        skipped=1,
        epochs=2,
    )


def test_figures_of_no_step_taken_are_0() -> None:
    assert ppo.average_steps(torch.stack([noted(math.nan, math.nan)] * 2)).tolist() == [0.0] * 6
