"""What ranks of Snake do together."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace

import pytest
import torch
from programs.ranks import on_ranks
from torch import Tensor

from stageb.config import PpoConfig
from stageb.job.world import World
from stageb.ppo.config import AgentConfig, GameConfig, PpoLoopConfig, PpoRunnerConfig
from stageb.ppo.envs.snake_agent import Agent
from stageb.ppo.learner import make_batch
from stageb.ppo.ranks import Ranks
from stageb.ppo.rollout import Rollout
from stageb.ppo.schedule import Schedule
from stageb.training import ppo
from stageb.training.ppo import Batch
from stageb.training.step import NonFiniteError

GAMES = 12
CONFIG = PpoLoopConfig(
    game=GameConfig(size=5),
    agent=AgentConfig(channels=4, blocks=1, hidden=16),
    ppo=PpoConfig(epochs=2, learning_rate=0.01),
    runner=PpoRunnerConfig(
        total_steps=GAMES * 8 * 100, rollout_steps=8, global_batch=GAMES * 4, envs=GAMES
    ),
)


def ranks_of(world: World, config: PpoLoopConfig = CONFIG) -> Ranks:
    ranks = Ranks(config, Schedule.of(config, world.world_size, GAMES), world)
    ranks.take_up(None)
    return ranks


def weights(ranks: Ranks) -> Tensor:
    return torch.cat([each.detach().flatten() for each in ranks.agent.parameters()])


def test_the_gradient_of_two_ranks_is_that_of_one_on_both_their_batches() -> None:
    chance = torch.Generator().manual_seed(0)
    grids = torch.randint(0, 4, (32, 25), generator=chance, dtype=torch.uint8)
    grids[:, 7] = 4  # a head
    columns = [torch.randn(32, generator=chance) for _ in range(3)]
    actions = torch.randint(0, 4, (32,), generator=chance)
    batch = Batch((grids, actions), columns[0] * 0.1 - 1.4, *columns[1:])

    def act(world: World) -> list[float]:
        ranks = ranks_of(world)
        count = 32 // world.world_size
        mine = slice(world.rank * count, (world.rank + 1) * count)
        part = batch.rows(mine)
        losses = ppo.ppo_loss(ranks.step.model(*part.inputs), part, CONFIG.ppo, 0.01)
        world.fabric.backward(losses.total)
        gradient: list[float] = torch.cat(
            [each.grad.flatten() for each in ranks.agent.parameters()]  # type: ignore[union-attr]
        ).tolist()
        return gradient

    [alone] = on_ranks(1, act)
    both = on_ranks(2, act)
    assert both[0] == both[1]
    assert max(abs(one - other) for one, other in zip(alone, both[0], strict=True)) < 1e-6
    assert max(map(abs, alone)) > 1e-2


def test_minibatches_are_equal_and_their_union_is_the_same_at_every_world_size() -> None:
    def act(world: World) -> list[list[int]]:
        ranks = ranks_of(world)
        names = torch.arange(8)[:, None] * GAMES + torch.tensor(ranks.schedule.share(world.rank))
        nothing = names.float()
        steps = (nothing, nothing, nothing, names > 0, names > 0)
        rollout = Rollout(*steps, names[..., None].to(torch.uint8), None, names, nothing)
        batches = list(ranks.learner._minibatches(make_batch(rollout, nothing, nothing), 8, (3, 1)))
        for batch in batches:
            assert torch.equal(batch.inputs[1], batch.returns.long())
        return [batch.inputs[1].tolist() for batch in batches]

    whole, two, three, five = ([*zip(*on_ranks(size, act), strict=True)] for size in (1, 2, 3, 5))
    for parts in zip(whole, two, three, five, strict=True):
        one, *others = [sorted(name for part in each for name in part) for each in parts]
        assert others == [one, one, one]
        assert [[len(part) for part in each] for each in parts[1:]] == [
            [24, 24],
            [16, 16, 16],
            [8, 8, 12, 8, 12],
        ]
    assert sorted(name for (part,) in whole for name in part) == list(range(8 * GAMES))


def test_ranks_with_unequal_shares_learn_what_one_rank_does() -> None:
    """Of 12 games on 5 ranks. Adam's first mean is a tenth of the first gradient."""
    whole = replace(
        CONFIG,
        runner=replace(CONFIG.runner, global_batch=GAMES * 8),
        ppo=PpoConfig(epochs=1, max_grad_norm=1e9),
    )

    def act(world: World) -> tuple[list[float], dict[str, float]]:
        ranks = ranks_of(world, whole)
        figures = asdict(ranks.learn(ranks.roll_out(0), 0))
        means = [
            ranks.optimizer.state[each]["exp_avg"].flatten() for each in ranks.agent.parameters()
        ]
        return torch.cat(means).tolist(), figures

    [(alone, wanted)] = on_ranks(1, act)
    assert max(map(abs, alone)) > 1e-3
    for means, figures in on_ranks(5, act):
        assert means == pytest.approx(alone, abs=1e-6)
        assert figures == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_every_pass_of_every_update_has_minibatches_of_its_own() -> None:
    def act(world: World) -> list[list[float]]:
        ranks = ranks_of(world)
        rollout, seen = ranks.roll_out(0), list[list[float]]()
        # so that a step of a game can be told
        named = replace(rollout, log_probs=torch.arange(8.0 * GAMES).view(8, GAMES))
        ranks.step.take = lambda batch: (seen.append(batch.log_probs.tolist()), torch.zeros(6))[1]  # type: ignore[method-assign, func-returns-value]
        for update in (0, 1):
            ranks.learn(named, update)
        return [sorted(each) for each in seen]

    [seen] = on_ranks(1, act)
    passes = [seen[:2], seen[2:4], seen[4:6], seen[6:]]
    assert all(sorted(one + other) == list(range(8 * GAMES)) for one, other in passes)
    assert all(one[0] not in other for one, other in itertools.combinations(passes, 2))


def test_losses_that_are_not_finite_are_counted_on_all_ranks_and_end_the_run_after_three_in_a_row() -> (
    None
):
    def act(world: World) -> tuple[list[int], str]:
        ranks, skipped = ranks_of(world), []
        for update in range(2):
            rollout = ranks.roll_out(update)
            if update == 1 and world.rank == world.world_size - 1:
                rollout = replace(rollout, log_probs=rollout.log_probs * torch.nan)
            try:
                skipped.append(ranks.learn(rollout, update).skipped)
            except NonFiniteError as error:
                return skipped, str(error)
        return skipped, ""

    for size in (1, 2):
        for skipped, said in on_ranks(size, act):
            assert skipped == [0]
            assert "update 1: the gradients of 3 steps in a row are not finite" in said
            assert "fabric.precision" in said


def test_a_step_that_is_not_finite_leaves_the_weights_as_they_are() -> None:
    def act(world: World) -> tuple[bool, bool]:
        ranks = ranks_of(world)
        rollout = ranks.roll_out(0)
        advantages = rollout.rewards.clone()
        good, bad, *_ = ranks.learner._minibatches(
            make_batch(rollout, advantages, advantages), 8, (0, 0)
        )
        ranks.step.set_hyperparameters(learning_rate=0.01, entropy_weight=0.01)
        ranks.step.take(good)
        before = weights(ranks)
        ranks.step.take(replace(bad, returns=bad.returns * torch.inf) if world.rank == 0 else bad)
        same = torch.equal(before, weights(ranks))
        ranks.step.take(good)
        return same, not torch.equal(before, weights(ranks))

    assert on_ranks(2, act) == [(True, True)] * 2


def test_warming_up_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is freed from then on stays the process's own."""
    kept: list[str] = []
    monkeypatch.setattr("stageb.training.run.keep_freed", kept.append)

    def act(world: World) -> tuple[bool, list[float]]:
        ranks = ranks_of(world)
        fresh = Agent(CONFIG.agent, CONFIG.game.size, CONFIG.seed)
        same = all(map(torch.equal, ranks.agent.parameters(), fresh.parameters())) and kept[
            -1:
        ] == ["cpu"]
        return same, [
            float(each.abs().sum())
            for state in ranks.optimizer.state.values()
            for each in state.values()
        ]

    for size in (1, 2):
        for same, sums in on_ranks(size, act):
            assert same
            assert sums and not any(sums)


def test_a_step_that_is_left_out_leaves_the_stop_by_divergence_on() -> None:
    def act(world: World) -> list[tuple[int, int, bool]]:
        found = []
        for target in (1e-7, 1e9):
            runner, ppo = (
                replace(CONFIG.runner, global_batch=GAMES * 2),
                replace(CONFIG.ppo, target_kl=target),
            )
            ranks = ranks_of(world, replace(CONFIG, runner=runner, ppo=ppo))
            rollout = ranks.roll_out(0)
            if world.rank == world.world_size - 1:
                rollout.log_probs[0, 0] = torch.nan  # which one minibatch of each pass reads
            figures = ranks.learn(rollout, 0)
            found.append((figures.epochs, figures.skipped, figures.approx_kl > 1e-7))
        return found

    for size in (1, 2):
        assert on_ranks(size, act) == [[(1, 1, True), (2, 2, True)]] * size
