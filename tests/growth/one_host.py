"""The forward of one grown network at a time: what the forward of many at once is measured, and
tested, against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stageb.growth.blocks import add_branch, open_segment
from stageb.growth.blueprints import BLUEPRINTS, guard_gradient
from stageb.growth.hosts import HOST, Plan, name_segment


def forward(
    plan: Plan,
    params: Mapping[str, Tensor],
    x: Tensor,
    alphas: Sequence[float],
    active: Sequence[int],
) -> Tensor:
    """Logits (N, classes) of ONE network for ``x``, (N, *shape).

    ``params`` holds its segments, flat, those in use at least; ``alphas`` weighs the seeds of
    early, mid and late; ``active`` says which blueprint stands there, or -1.
    """
    kind, host = plan.built, open_segment(plan, HOST, params[HOST])
    h = kind.stem(plan.shape, host, x)
    for slot, (alpha, index) in enumerate(zip(alphas, active, strict=True)):
        if slot:
            h = kind.body(plan.shape, slot, host, h)
        if index >= 0 and alpha > 0:
            name = name_segment(plan, slot, index)
            compute, seed = (
                BLUEPRINTS[plan.blueprints[index]].branch,
                open_segment(plan, name, params[name]),
            )
            branch = compute(seed, guard_gradient(h), plan.slots[slot])
            h = add_branch(h, branch, torch.full((), alpha, dtype=h.dtype, device=h.device), 1)
    return kind.head(plan.shape, host, h)
