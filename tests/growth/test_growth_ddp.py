"""Hosts that all ranks train together: what torch's wrapper would lose, and replicas that stay one; on forks of this process."""

from __future__ import annotations

import pytest
import torch
from programs import replicas
from programs.ranks import on_ranks
from torch import Tensor, nn

from stageb.growth.ddp import Together
from stageb.world import World


def gradients_under_the_wrapper(world: World) -> tuple[list[float], list[float]]:
    """What docs/growth-ddp.md shows: gradients of a host's layer, and of one that it was given after it was wrapped."""
    torch.manual_seed(0)
    host = nn.ModuleList([nn.Linear(4, 4)])
    host.forward = lambda x: sum(layer(x) for layer in host)  # type: ignore[method-assign]
    model = nn.parallel.DistributedDataParallel(host)
    host.append(nn.Linear(4, 4))  # a seed germinates, with the same weights on every rank
    examples = torch.full((8, 4), 1.0 + world.rank)  # each rank's own
    model(examples).square().mean().backward()
    of_host, of_seed = (layer.weight.grad for layer in host)
    return of_host.flatten().tolist(), of_seed.flatten().tolist()


def test_the_wrapper_does_not_reduce_what_was_added_after_it_was_wrapped() -> None:
    (host, seed), (other_host, other_seed) = on_ranks(2, gradients_under_the_wrapper)
    assert host == other_host
    assert seed != other_seed


def test_means_are_over_ranks_by_name_in_one_reduction() -> None:
    def act(world: World) -> tuple[dict[str, list[float]], list[list[float]]]:
        calls, reduce = [], world.fabric.all_reduce

        def counted(tensor: Tensor, **keywords: object) -> object:
            calls.append(tensor.tolist())
            return reduce(tensor, **keywords)  # type: ignore[arg-type]

        world.fabric.all_reduce = counted  # type: ignore[method-assign]
        held = {"host": [[1.0, 2.0]], "early.mlp": [[3.0]], "mid.mlp": [[0.0]], "late.norm": [[4.0]], "figures": [[5.0, 0.0]]}
        means = Together(world).mean({name: torch.tensor(values) * (1 + world.rank) for name, values in held.items()})
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


@pytest.mark.parametrize("world_size", [2, 4])
def test_replicas_are_equal_to_the_bit_after_each_of_a_hundred_lifecycle_operations(world_size: int) -> None:
    first, *others = on_ranks(world_size, lambda world: replicas.operate(world, 100))
    assert all(other == first for other in others)
    assert {what for what, _ in first} == {"germinate", "advance", "cull"}
    for part in ("host", "early", "mid", "late"):
        assert len({digests[part] for _, digests in first}) > 50  # all of it is trained


def test_ranks_together_train_as_one_alone_does() -> None:
    [[(_, alone)]] = on_ranks(1, lambda world: replicas.operate(world, 12, torch.float64)[-1:])
    for world_size in (2, 3):
        for [(_, together)] in on_ranks(world_size, lambda world: replicas.operate(world, 12, torch.float64)[-1:]):
            assert together == alone
