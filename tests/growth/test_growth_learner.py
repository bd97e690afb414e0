"""Rewards, and what the policy learns from them: on made hosts, whose answers are known."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from growth.made_hosts import Answer, Made, answers, block, kept

from stageb import seeds
from stageb.config import PpoConfig
from stageb.growth.config import GrowthConfig, HostConfig, PolicyConfig, RewardConfig
from stageb.growth.controllers import PolicyController
from stageb.growth.lifecycle import Rules
from stageb.growth.observation import observe
from stageb.growth.policy import (
    GrowthRollout,
    PolicyLearner,
    _make_trajectory,
    encode_action,
    make_masks,
)
from stageb.growth.types import EnvironmentView, SlotView
from stageb.growth.views import SCALE, compute_objective, compute_reward, measure_growth
from stageb.training import ppo
from stageb.training.ppo import Batch, Figures
from stageb.training.step import NonFiniteError

CONFIG = GrowthConfig(
    host=HostConfig(epochs=14, blueprints=["norm", "mlp"]),
    policy=PolicyConfig(hidden=32),
    ppo=PpoConfig(1.0, epochs=6, entropy_weight=0.03, learning_rate=0.006, max_grad_norm=5.0),
)
RULES = Rules(CONFIG.gates, (True, True, True), 2)
MADE = Made(epochs=14, lift=0.3, noise=0.005)
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
ON_EACH = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]
VIEW = EnvironmentView(
    5, 10, 40, 1, 0.5, 1, 0.5, (1.0,), (0.5,), 1, 0.5, 0, 1000, 250, (SlotView(),) * 3, 1
)


def round_of(
    learner: PolicyLearner, sought: list[Answer], key: int, greedy: bool = False
) -> tuple[GrowthRollout, list[set[tuple[int, int]]]]:
    """Whole episodes under the policy as it stands, and what each kept."""
    environments = block(MADE, RULES, sought, key)
    controller = PolicyController(learner.policy, learner.normaliser, len(environments), greedy)
    rows = []
    for epoch in range(MADE.epochs - 1):
        views = [each.view for each in environments]
        observations, legal = observe(views), make_masks([RULES.legal(view) for view in views])
        actions = controller.act(
            views,
            observations,
            legal,
            [seeds.stream(key, epoch, place) for place in range(len(views))],
        )
        after = [each.step(action) for each, action in zip(environments, actions, strict=True)]
        finals = [each.final() if epoch == MADE.epochs - 2 else None for each in environments]
        paid = [
            compute_reward(old, new, final, CONFIG.reward, CONFIG.ppo.gamma)
            for old, new, final in zip(views, after, finals, strict=True)
        ]
        rows.append(
            (
                observations,
                legal,
                torch.tensor([encode_action(each) for each in actions]),
                torch.tensor(paid),
            )
        )
    return GrowthRollout(*(torch.stack(each) for each in zip(*rows, strict=True))), [
        kept(each.final()) for each in environments
    ]


def learnt(updates: int, futile: float) -> tuple[PolicyLearner, list[Figures]]:
    """A policy after some updates of 32 episodes each."""
    learner = PolicyLearner(CONFIG)
    figures = []
    for update in range(updates):
        sought = answers(32, 1 if futile == 0 else 2, seeds.stream("learnt", update), futile)
        played, _ = round_of(learner, sought, seeds.stream("round", update))
        figures.append(learner.learn(played, update, update / updates))
    return learner, figures


@pytest.mark.slow
def test_it_learns_to_grow_what_pays_and_its_values_foresee_the_returns() -> None:
    learner, figures = learnt(18, futile=0.0)
    sought = answers(40, 1, 1)
    _, found = round_of(learner, sought, 2, greedy=True)
    _, before = round_of(PolicyLearner(CONFIG), sought, 2)
    right, at_first = (
        sum(answer in each for answer, each in zip(sought, all_kept, strict=True))
        for all_kept in (found, before)
    )
    assert at_first < 16
    assert right >= 28
    assert sum(each.explained_variance for each in figures[-5:]) / 5 > 0.5
    assert figures[0].approx_kl > 0
    assert 0 < max(each.clip_frac for each in figures) < 0.5


@pytest.mark.slow
def test_it_learns_to_leave_hosts_alone_where_nothing_pays() -> None:
    learner, _ = learnt(12, futile=1.0)
    _, found = round_of(learner, [None] * 40, 2, greedy=True)
    assert sum(not each for each in found) >= 38


def weights(learner: PolicyLearner) -> torch.Tensor:
    return torch.cat([each.detach().flatten().cpu() for each in learner.policy.parameters()])


def going_on(state: dict[str, Any], device: str) -> PolicyLearner:
    learner = PolicyLearner(replace(CONFIG, seed=CONFIG.seed + 1), device)
    learner.load(state)
    learner.config = CONFIG
    return learner


@pytest.mark.parametrize("device", ON_EACH)
def test_an_update_goes_on_from_a_state_as_from_itself(device: str) -> None:
    first, _ = learnt(1, futile=0.0)
    played, _ = round_of(first, answers(8, 2, 3), 4)
    learner = going_on(first.state(), device)
    learner.learn(played, 1, 0.4)
    other = going_on(learner.state(), device)
    assert other.learn(played, 2, 0.5) == learner.learn(played, 2, 0.5)
    assert torch.equal(weights(learner), weights(other))


@pytest.mark.parametrize("device", ON_EACH)
def test_gradients_that_are_not_finite_are_left_out_and_end_the_run_after_three(
    device: str,
) -> None:
    first, _ = learnt(1, futile=0.0)
    played, _ = round_of(first, answers(8, 2, 3), 4)
    learner = going_on(first.state(), device)
    with pytest.raises(NonFiniteError, match="3 steps in a row"):
        learner.learn(replace(played, rewards=played.rewards * torch.inf), 1, 0.5)
    assert torch.equal(weights(learner), weights(first))


@pytest.mark.gpu
@NO_GPU
def test_a_gpu_learns_what_a_cpu_does() -> None:
    """Of minibatches of two sizes."""
    first, _ = learnt(1, futile=0.0)
    played, _ = round_of(first, answers(9, 2, 3), 4)
    assert played.rewards.numel() % CONFIG.policy.minibatches
    here, there = (going_on(first.state(), device) for device in ("cpu", "cuda"))
    assert {each.device.type for each in there.policy.parameters()} == {"cuda"}
    for update in (1, 2):
        wanted, found = (asdict(each.learn(played, update, 0.5)) for each in (here, there))
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-5)
    moved = (weights(here) - weights(first)).norm()
    assert (weights(there) - weights(here)).norm() < 1e-3 * moved


def test_the_objective_is_accuracy_less_the_price_of_size() -> None:
    config = RewardConfig(size_price=0.1)
    assert compute_objective(VIEW, config) == pytest.approx(0.5 - 0.1 * math.log(1.25))
    assert measure_growth(replace(VIEW, extra_parameters=0)) == 0.0


def test_shaping_pays_the_objective_as_it_comes_and_moves_no_sum() -> None:
    """Over an episode shaped rewards come to the objective at its end, less what the first view was
    worth."""
    config = RewardConfig(shaping=1.0)
    views = [replace(VIEW, epoch=epoch, accuracy=epoch / 20) for epoch in range(1, 11)]
    final = replace(VIEW, accuracy=0.45, extra_parameters=0)
    ends = [None] * 8 + [final]
    steps = zip(views, views[1:], ends, strict=False)
    shaped = [compute_reward(old, new, end, config, 1.0) for old, new, end in steps]
    assert sum(shaped) == pytest.approx(SCALE * (0.45 - compute_objective(views[0], config)))
    plain = replace(config, shaping=0.0)
    assert [
        compute_reward(views[0], views[1], end, plain, 1.0) for end in (None, final)
    ] == pytest.approx([0, SCALE * 0.45])


def test_the_policy_learns_where_it_is_put() -> None:
    """On a device without numbers, where what was left on the CPU would be told."""
    policy = PolicyLearner(CONFIG).policy.to("meta")
    with torch.device("meta"):
        seen = (
            torch.empty(20, 80),
            torch.empty(20, 3, 5, 2),
            torch.ones(20, 4, 3, dtype=torch.bool),
        )
        actions = torch.zeros(20, 3, dtype=torch.int64)
    log_probs, entropies, values = policy(*seen, actions)
    batch = Batch((*seen, actions), *(each.detach() for each in (log_probs, values, values)))
    losses = ppo.ppo_loss((log_probs, entropies, values), batch, CONFIG.ppo, 0.01)
    losses.total.backward()
    assert {
        each.grad.device.type for each in policy.actor.parameters() if each.grad is not None
    } == {"meta"}
    assert ppo.note_step(losses, losses.total.detach()).device.type == "meta"


def test_every_pass_of_every_update_has_minibatches_of_its_own() -> None:
    learner, count = PolicyLearner(CONFIG), 64
    numbers = torch.arange(float(count))
    nothing = torch.zeros(count, 1)
    whole = Batch((nothing, nothing, nothing, nothing), numbers, numbers, numbers)
    passes = [
        [some.log_probs.tolist() for some in learner._minibatches(whole, names)]
        for names in ((0, 0), (0, 1), (1, 0))
    ]
    orders = [[number for some in minibatches for number in some] for minibatches in passes]
    assert all(sorted(order) == numbers.tolist() for order in orders)
    assert len({tuple(order) for order in orders}) == len(orders)


def test_what_the_last_step_brings_reaches_the_first() -> None:
    rewards, values = torch.zeros(4, 2), torch.zeros(4, 2)
    rewards[-1] = torch.tensor([1.0, -2.0])
    advantages = ppo.gae(_make_trajectory(rewards, values), gamma=0.5, gae_lambda=1.0)
    assert advantages.tolist() == [[0.5**back, -2 * 0.5**back] for back in (3, 2, 1, 0)]
