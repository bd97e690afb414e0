"""Small hosts of every kind, and blocks in which each member has other seeds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stageb import seeds
from stageb.growth import blocks, hosts, training
from stageb.growth.blueprints import holds
from stageb.growth.config import HostConfig
from stageb.growth.hosts import KINDS, TaskShape
from stageb.growth.tasks import Split
from stageb.growth.types import SLOTS

SHAPES = {
    "mlp": TaskShape((5,), 3),
    "conv1d": TaskShape((9, 2), 3),
    "conv2d": TaskShape((5, 6, 2), 3),
}
NAMES = ["mlp", *(f"{kind}{half}" for kind in list(SHAPES)[1:] for half in ("", " second"))]
KEYS = [seeds.stream("test", member) for member in range(7)]
Grown = tuple[training.Hosts, tuple[Tensor, Tensor, Tensor]]


def plan_of(name: str, **more: Any) -> hosts.Plan:
    """A small host of one of ``NAMES``. Those of many blueprints come in two halves, the second one
    named so."""
    kind, _, half = name.partition(" ")
    able = holds(len(KINDS[kind].places(SHAPES[kind], 0)))
    keys: dict[str, Any] = {"kind": kind, "width": 6, "blueprints": able[4:] if half else able[:4]}
    return hosts.make_plan(HostConfig(**keys | more), SHAPES[kind])


def examples(shape: TaskShape, count: int, members: int) -> Split:
    """Random examples and answers, own ones for each member."""
    stream = torch.Generator().manual_seed(5)
    inputs = torch.randn((count, *shape.example), generator=stream, dtype=torch.float64)
    return Split(inputs, torch.randint(shape.classes, (members, count), generator=stream))


def bare(plan: hosts.Plan, keys: list[int], dtype: torch.dtype = torch.float64) -> Grown:
    """A block without seeds: its hosts, active, alphas, learns."""
    block = training.make_hosts(plan, blocks.draw(plan, "host", keys), "cpu", dtype)
    shape = (len(keys), 3)
    return block, (
        torch.full(shape, -1),
        torch.zeros(shape, dtype=dtype),
        torch.zeros(shape, dtype=torch.bool),
    )


def grown(plan: hosts.Plan, keys: list[int]) -> Grown:
    """A block in which each member has other seeds, in other slots: beside the host, blending,
    whole; not all learn."""
    block, (active, alphas, learns) = bare(plan, keys)
    for member, key in enumerate(keys):
        number = KEYS.index(key)
        for slot in range(3):
            index = (number + 2 * slot) % (len(plan.blueprints) + 1) - 1
            if index >= 0:
                block.germinate(member, slot, index, seeds.stream(key, "seed", slot))
                active[member, slot], alphas[member, slot] = (
                    index,
                    (0.0, 0.4, 1.0)[(number + slot) % 3],
                )
                learns[member, slot] = (number + slot) % 4 != 3
    return block, (active, alphas, learns)


def state(block: training.Hosts) -> dict[str, Tensor]:
    """All that the block holds, by name; the tensors themselves, no copies."""
    tables = {"weights": block.weights, "first": block.first, "second": block.second}
    held = {
        f"{table}.{name}": tensor for table, its in tables.items() for name, tensor in its.items()
    }
    return held | {"counts": block.counts, "skipped": block.skipped, "broken": block.broken}


def copied(block: training.Hosts) -> dict[str, Tensor]:
    """All that the block holds, as it is now."""
    return {name: tensor.clone() for name, tensor in state(block).items()}


def load(block: training.Hosts, held: dict[str, Tensor]) -> None:
    """Have ``block`` hold copies of what another one's ``state`` gave."""
    for name, tensor in state(block).items():
        tensor.copy_(held[name])


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """Whether two states are the same bytes."""
    return all(
        torch.equal(one[name].view(torch.uint8), other[name].view(torch.uint8)) for name in one
    )


def turned_out(alphas: Tensor) -> Tensor:
    """The settings {full, -early, -mid, -late} of ``alphas``, (B, 3): (B, 4, 3), each slot's alpha
    0 in its own."""
    kept = torch.cat([torch.ones(1, len(SLOTS)), 1 - torch.eye(len(SLOTS))])
    return alphas[:, None] * kept.to(alphas)
