"""Hosts that all ranks train together: what torch's wrapper would lose, and replicas that stay one; on forks of this process."""

from __future__ import annotations

import torch
from programs.ranks import Raised, on_ranks
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
    def act(world: World) -> tuple[dict[str, list[float]], int]:
        calls, reduce = [], world.fabric.all_reduce

        def counted(tensor: Tensor, **keywords: object) -> object:
            calls.append(tensor.tolist())
            return reduce(tensor, **keywords)  # type: ignore[arg-type]

        world.fabric.all_reduce = counted  # type: ignore[method-assign]
        held = {"loss": [5.0], "late.norm": [4.0], "mid.mlp": [0.0, 0.0], "early.mlp": [3.0], "host.stem": [1.0, 2.0]}
        scaled = {name: torch.tensor(values) * (1 + world.rank) for name, values in held.items()}
        means = Together(world).mean(scaled)
        return {name: mean.tolist() for name, mean in means.items()}, calls

    for means, calls in on_ranks(2, act):
        assert means == {"host.stem": [1.5, 3.0], "early.mlp": [4.5], "mid.mlp": [0.0, 0.0], "late.norm": [6.0], "loss": [7.5]}
        assert len(calls) == 1
        assert calls[0][:2] in ([1.0, 2.0], [2.0, 4.0])


def test_a_rank_that_parted_is_named_with_the_part_in_which_it_did() -> None:
    def act(world: World) -> list[str]:
        together, said = Together(world), []
        tensors = {"host.stem": torch.ones(3), "mid.mlp": torch.zeros(2, 2)}
        together.agree("epoch 1", [0, 1], tensors)
        for lifecycle, part, change in (([0, 1], "mid.mlp", 1e-30), ([0, 2], "host.stem", 0.0)):
            spoilt = {**tensors, part: tensors[part] + change * (world.rank == 1)}
            try:
                together.agree("epoch 2", lifecycle if world.rank == 1 else [0, 1], spoilt)
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        try:
            together.decide(3 + (world.rank == 1), lambda: "wait")
        except Exception as error:
            said.append(str(error))
        return said

    zero, one = on_ranks(2, act)
    assert zero == one[:2]
    assert zero[0].startswith("DivergedError: epoch 2: rank 1 parted from rank 0 in mid;")
    assert zero[1].startswith("DivergedError: epoch 2: rank 1 parted from rank 0 in lifecycle;")
    assert one[2] == "rank 1 is at step 4 of its hosts, rank 0 at step 3"


def test_decisions_are_rank_0s() -> None:
    assert on_ranks(2, lambda world: Together(world).decide(7, lambda: f"rank {world.rank} says")) == ["rank 0 says"] * 2
    assert not isinstance(on_ranks(1, lambda world: Together(world).decide(7, lambda: "wait"))[0], Raised)
