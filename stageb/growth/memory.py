"""What a policy remembers of an episode: which blueprint was tried in which slot, and what it came to.

An observation shows what is in a slot now, and a cull leaves it empty. Whoever looks for the right seed must know which
ones it has tried. This is the least that does it: two numbers for each slot and blueprint, taken from the observations
alone, so that it needs no training and a policy is a function of the present and of these.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stageb.growth.observation import BASE, HOST, MOST_BLUEPRINTS

SHAPE = (3, MOST_BLUEPRINTS, 2)  # slot, blueprint, (tried: 0 or 1; the last contribution seen, -1 to 1)
_CONTRIBUTION, _ONE_HOT = 3, 4  # places in the numbers of a slot


def make_blank(count: int) -> Tensor:
    """Of ``count`` episodes that begin: float32 (count, 3, 5, 2)."""
    return torch.zeros((count, *SHAPE))


def remember(memory: Tensor, observations: Tensor) -> Tensor:
    """``memory`` (N, 3, 5, 2) after observations (N, 80), as they are observed and not normalised."""
    slots = observations[:, HOST : HOST + 3 * BASE].reshape(-1, 3, BASE)
    here = slots[..., _ONE_HOT:] > 0
    contribution = slots[..., _CONTRIBUTION, None].expand_as(here)
    tried, seen = memory.unbind(-1)
    return torch.stack([torch.where(here, 1.0, tried), torch.where(here, contribution, seen)], dim=-1)


def remember_all(observations: Tensor) -> Tensor:
    """What is remembered at every step of whole episodes: of observations (T, N, 80), float32 (T, N, 3, 5, 2)."""
    memory, steps = make_blank(observations.shape[1]), []
    for each in observations:
        memory = remember(memory, each)
        steps.append(memory)
    return torch.stack(steps)
