"""The forward of one grown network at a time: what the forward of many at once is measured, and tested, against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stageb.growth.blocks import add_branch, compute_branch, lower_precision, open_segment
from stageb.growth.hosts import HOST, Plan, name_segment
from stageb.growth.layers import guard_gradient


def forward(plan: Plan, params: Mapping[str, Tensor], x: Tensor, alphas: Sequence[float], active: Sequence[int]) -> Tensor:
    """Logits (N, classes), or (N, T, classes) of tokens, of ONE network for ``x``, (N, *shape).

    ``params`` holds its segments, flat, those in use at least; ``alphas`` weighs the seeds of early, mid and late;
    ``active`` says which blueprint stands there, or -1.
    """
    kind, host = plan.built, open_segment(plan, HOST, params[HOST])
    h = kind.stem(plan.form, host, lower_precision(plan, x))
    for slot, (alpha, index) in enumerate(zip(alphas, active, strict=True)):
        if slot:
            h = kind.body(plan.form, slot, host, h)
        if index >= 0 and alpha > 0:
            name = name_segment(plan, slot, index)
            branch = compute_branch(plan, slot, index, open_segment(plan, name, params[name]), guard_gradient(h))
            h = add_branch(h, branch, torch.full((), alpha, dtype=h.dtype, device=h.device), 1)
    return kind.head(plan.form, host, h)
