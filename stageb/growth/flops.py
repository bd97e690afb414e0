"""Floating-point operations, counted from the plan: two for every multiplication of a layer, as is usual.

Norms, activations and the optimiser are left out: they are far less. A backward pass counts as two forward passes wherever
there is training, also where less is computed: no gradient of the host's parameters is made where a seed trains beside it,
or where the host is given. So networks cost the same on every task. What a member of a block costs is what it would cost
alone: that others of its block have other seeds, for which it is computed in vain, is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.flop_counter import FlopCounterMode

from stageb.growth.blueprints import BLUEPRINTS
from stageb.growth.hosts import Plan
from stageb.growth.observation import SIZE, make_blank
from stageb.growth.policy import Policy
from stageb.growth.types import SLOTS, Op


def count_forward(plan: Plan, active: Sequence[int]) -> int:
    """Of one example through one network whose slots hold the blueprints ``active``, -1 for none."""
    return 2 * (sum(plan.built.products(plan.form, plan.width)) + _seeds(plan, active))


def count_training(plan: Plan, active: Sequence[int], beside: Sequence[bool]) -> int:
    """Of one example in a step of training, forward and backward: of the network as it stands, and of one for each seed that
    trains ``beside`` it, in which that seed stands too."""
    stands = [-1 if trains else index for index, trains in zip(active, beside, strict=True)]
    tried = [slot for slot, trains in enumerate(beside) if trains]
    networks = [[*stands[:slot], active[slot], *stands[slot + 1 :]] for slot in tried]
    return 3 * sum(count_forward(plan, network) for network in (stands, *networks))


def count_evaluation(plan: Plan, active: Sequence[int], settings: int) -> int:
    """Of one example judged in as many settings: what comes before the first slot is computed once."""
    stem, later = plan.built.products(plan.form, plan.width)
    return 2 * (stem + settings * (later + _seeds(plan, active)))


def count_policy(hidden: int, blueprints: int) -> int:
    """Of an observation that the policy, actor and critic, reads; torch counts them."""
    legal, action = torch.ones((1, len(Op), len(SLOTS)), dtype=torch.bool), torch.zeros((1, 3), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        Policy(hidden, blueprints, 0)(torch.zeros(1, SIZE), make_blank(1), legal, action)
    return int(counter.get_total_flops())


def _seeds(plan: Plan, active: Sequence[int]) -> int:
    products = 0
    for index, at in zip(active, plan.slots, strict=True):
        if index >= 0:
            products += BLUEPRINTS[plan.blueprints[index]].products(at)
    return products
