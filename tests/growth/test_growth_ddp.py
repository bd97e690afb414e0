"""Hosts that all ranks train together: what torch's wrapper would lose, and replicas that stay one; on forks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from grown_hosts import turned_out
from programs import forks, growths, replicas
from programs.ranks import on_ranks
from torch import Tensor, nn

from stageb.errors import ConfigError
from stageb.growth import bank, counterfactual, hosts, training
from stageb.growth.config import HostConfig
from stageb.growth.data import Split
from stageb.growth.ddp import AllRanks, check
from stageb.growth.kinds import Form
from stageb.growth.types import Action, Op, View
from stageb.job.world import World
from stageb.training.replicas import DivergedError

PLAN = hosts.plan(HostConfig(width=8, blend="gated"), Form((6,), 3))
ACTIVE, ALPHAS = torch.tensor([[0, 1, -1], [-1, 2, 1]]), torch.tensor([[0.0, 0.5, 0.0], [0.0, 1.0, 0.3]])


IN_FORKS = pytest.mark.skipif(
    torch.cuda.is_available(), reason="autograd's threads, which a GPU brings, do not live on in forks of this process"
)


def fit_set() -> Split:
    """For two members."""
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0)).double()
    return Split(x, x[:, :3].argmax(1)).stacked(2)


def begun(dtype: torch.dtype = torch.float64) -> training.Hosts:
    """Two hosts, grown as ``ACTIVE`` says."""
    state = training.begin(PLAN, bank.drawn(PLAN, hosts.HOST, [1, 2]), "cpu", dtype)
    for member, slot in ACTIVE.ge(0).nonzero().tolist():
        training.germinate(state, member, slot, int(ACTIVE[member, slot]), slot)
    return state


BATCHES = torch.randint(0, 50, (2, 8, 12), generator=torch.Generator().manual_seed(1))


def gradients_under_the_wrapper(world: World) -> tuple[list[float], list[float]]:
    """What lab/notes/growth-ddp.md shows: gradients of a host's layer, and of one that it was given after it was wrapped."""
    torch.manual_seed(0)
    host = nn.ModuleList([nn.Linear(4, 4)])
    host.forward = lambda x: sum(layer(x) for layer in host)  # type: ignore[method-assign]
    model = nn.parallel.DistributedDataParallel(host)
    host.append(nn.Linear(4, 4))  # a seed germinates, with the same weights on every rank
    examples = torch.full((8, 4), 1.0 + world.rank)  # each rank's own
    model(examples).square().mean().backward()
    of_host, of_seed = (layer.weight.grad for layer in host)
    return of_host.flatten().tolist(), of_seed.flatten().tolist()


@IN_FORKS
def test_the_wrapper_does_not_reduce_what_was_added_after_it_was_wrapped() -> None:
    (host, seed), (other_host, other_seed) = on_ranks(2, gradients_under_the_wrapper)
    assert host == other_host
    assert seed != other_seed


def test_means_are_over_ranks_by_name_in_one_reduction() -> None:
    def act(world: World) -> tuple[dict[str, list[float]], list[list[float]]]:
        calls, reduce = [], torch.distributed.all_reduce

        def counted(tensor: Tensor) -> object:
            calls.append(tensor.tolist())
            return reduce(tensor)

        torch.distributed.all_reduce = counted
        held = {
            "host": [[1.0, 2.0]],
            "early.mlp": [[3.0]],
            "mid.mlp": [[0.0]],
            "late.norm": [[4.0]],
            "figures": [[5.0, 0.0]],
        }
        means = AllRanks(world).mean({name: torch.tensor(values) * (1 + world.rank) for name, values in held.items()})
        return {name: mean.tolist() for name, mean in means.items()}, calls

    for rank, (means, calls) in enumerate(on_ranks(2, act)):
        assert means == {
            "host": [[1.5, 3.0]],
            "early.mlp": [[4.5]],
            "mid.mlp": [[0.0]],
            "late.norm": [[6.0]],
            "figures": [[7.5, 0.0]],
        }
        assert calls == [[each * (1 + rank) for each in (1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 0.0)]]


@IN_FORKS
@pytest.mark.parametrize("world_size", [2, 4])
def test_replicas_are_equal_to_the_bit_through_a_hundred_lifecycle_operations(world_size: int) -> None:
    (done, held), *others = on_ranks(world_size, replicas.operate)
    assert all(other == (done, held) for other in others)
    assert len(done) >= 100
    assert set(done) == {"GERMINATE", "FOSSILIZE", "CULL"}
    for part in ("host", "early", "mid", "late"):
        assert len({digests[part] for digests in held}) > len(held) / 2  # all of it is trained


@IN_FORKS
def test_ranks_together_train_and_judge_as_one_alone_does_each_on_its_part() -> None:
    def act(world: World) -> tuple[list[int], list[Any]]:
        sizes: list[int] = []
        epoch, judge = training.epoch, counterfactual.judge
        training.epoch = lambda *given: (sizes.append(given[-1].shape[-1]), epoch(*given))[1]  # type: ignore[func-returns-value]
        counterfactual.judge = lambda *given: (sizes.append(len(given[1])), judge(*given))[1]  # type: ignore[func-returns-value]
        state, together = begun(), AllRanks(world)
        figures = together.epoch(state, ACTIVE, ALPHAS, ACTIVE >= 0, fit_set(), BATCHES)
        judged = together.judge(state, fit_set(), ACTIVE, turned_out(ALPHAS))
        training.epoch, counterfactual.judge = epoch, judge  # one rank alone is this process itself
        found = [
            *state.weights.values(),
            figures.loss,
            figures.accuracy,
            figures.gradient_norms,
            judged.loss,
            judged.accuracy,
        ]
        return sizes, [each.numpy() for each in found]

    [(sizes, alone)] = on_ranks(1, act)
    assert sizes == [12, 50]
    for world_size, parts in ((2, [[6, 25], [6, 25]]), (3, [[4, 17], [4, 17], [4, 16]])):
        for part, (sizes, together) in zip(parts, on_ranks(world_size, act), strict=True):
            assert sizes == part
            assert max(abs(one - other).max() for one, other in zip(alone, together, strict=True)) < 1e-10


@IN_FORKS
def test_a_rank_that_parted_is_named_with_the_part_in_which_it_did() -> None:
    def act(world: World) -> list[str]:
        said = []
        for spoilt in ("weights.mid.mlp", "first.late.norm", "skipped", ""):
            state, together, alphas = begun(), AllRanks(world), ALPHAS
            if spoilt and world.rank == 1:
                state.state()[spoilt][0, 0] += 1
            elif world.rank == 1:
                alphas = ALPHAS * 1.000001
            try:
                together.epoch(state, ACTIVE, alphas, ACTIVE >= 0, fit_set(), BATCHES)
            except DivergedError as error:
                said.append(str(error).partition(";")[0])
        together.step += world.rank
        try:
            together.decide([Action()])
        except DivergedError as error:
            said.append(str(error))
        return said

    zero, one = on_ranks(2, act)
    assert zero == one[:4]
    parted = "epoch 1: rank 1 parted from rank 0 in"
    assert zero == [f"{parted} mid", f"{parted} late", f"{parted} counts", f"{parted} lifecycle"]
    assert one[4] == "rank 1 has trained its hosts for 2 epochs, rank 0 for 1"


def test_rank_0_alone_decides() -> None:
    class Own:
        """Would have every rank do something else."""

        def __init__(self, rank: int) -> None:
            self.rank, self.asked = rank, 0

        def begin(self, count: int) -> None:
            """Nothing to do."""

        def act(self, views: Sequence[View], observations: Tensor, legal: Tensor, keys: Sequence[int]) -> list[Action]:
            self.asked += 1
            return [Action(Op.CULL, slot=self.rank)]

    def act(world: World) -> tuple[list[Action], int]:
        own = Own(world.rank)
        return AllRanks(world).led(own).act([], torch.empty(0, 80), torch.empty(0, 4, 3), []), own.asked

    assert on_ranks(3, act) == [([Action(Op.CULL, slot=0)], int(rank == 0)) for rank in range(3)]


def test_a_minibatch_must_be_shared_out_evenly() -> None:
    config = replicas.CONFIG
    check(config, 8)
    check(replace(config, growth=replace(config.growth, ddp=False)), 7)
    with pytest.raises(ConfigError, match=r"host\.batch_size: 24: a multiple of the number of ranks, 7"):
        check(config, 7)


@pytest.mark.parametrize(
    ("mishap", "said"),
    [
        ("weights", "epoch 3: rank 1 parted from rank 0 in host;"),
        ("lifecycle", "rank 1 parted from rank 0 in lifecycle,"),
        ("absent", ""),  # whichever notices first
    ],
)
def test_a_run_whose_ranks_part_ends_in_time(mishap: str, said: str, tmp_path: Path) -> None:
    keys = {"growth__ddp": True, "mishap": mishap, "fabric__timeout_s": 3, "host__epochs": 6}
    ended = forks.run(growths.arguments(tmp_path, 2, "diverging", **keys), 2, tmp_path / "said")
    assert ended.codes == (1, 1)
    assert "rank" in ended.err.splitlines()[-1]
    assert said in ended.err.splitlines()[-1]
    assert ended.seconds < 30
