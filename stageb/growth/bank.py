"""The parameters of a block of networks: segments stacked over its members, allocated ahead and drawn from named streams.

A member's numbers depend on its own key, the segment's name and the place in it: on no batch, order or rank. They are drawn
on the CPU in float64, so that every device starts from the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.growth.blueprints import Spec
from stageb.growth.hosts import HOST, Plan
from stageb.growth.types import SLOTS

PARTS = (HOST, *SLOTS)  # what is updated and measured as one


def find_part(segment: str) -> int:
    """The index in ``PARTS`` of what a segment belongs to."""
    return PARTS.index(segment.partition(".")[0])


def allocate(plan: Plan, members: int, device: torch.device | str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Zeros for every segment: (members, size)."""
    return {name: torch.zeros((members, size), dtype=dtype, device=device) for name, size in plan.sizes.items()}


def draw(plan: Plan, segment: str, keys: Sequence[int], teaching: bool = False) -> Tensor:
    """How a segment begins for the members that ``keys`` name: float64 (members, size) on the CPU.

    ``teaching``: as part of a teacher, whose seed's last layer is drawn too.
    """
    specs = plan.segments[segment]
    streams = torch.tensor([draws.signed(seeds.stream(key, "weights", segment)) for key in keys])
    places = torch.arange(sum(spec.size for spec in specs))
    uniforms = draws.uniforms(streams[:, None], places)
    fill = torch.cat([torch.full((spec.size,), spec.fill, dtype=torch.float64) for spec in specs])
    bound = torch.cat([torch.full((spec.size,), _bound(spec, teaching), dtype=torch.float64) for spec in specs])
    return fill + bound * (2.0 * uniforms - 1.0)


def _bound(spec: Spec, teaching: bool) -> float:
    return spec.teaching if teaching and spec.teaching is not None else spec.bound
