"""A policy's memory of an episode: which blueprint was tried in which slot, and its last contribution.

An observation shows the current content of a slot, which a cull removes, but a search for the right seed must remember what
was tried. This memory is minimal: two numbers for each slot and blueprint, computed from observations alone. It needs no
training, and the policy stays a function of the current observation and these numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from stageb.growth.observation import BASE, HOST, MOST_BLUEPRINTS

SHAPE = (3, MOST_BLUEPRINTS, 2)  # slot, blueprint, (tried: 0 or 1; the last contribution seen, -1 to 1)
_CONTRIBUTION, _ONE_HOT = 3, 4  # places in the numbers of a slot


def make_blank(count: int) -> Tensor:
    """The empty memory of ``count`` episodes: float32 (count, 3, 5, 2)."""
    return torch.zeros((count, *SHAPE))


def remember(memory: Tensor, observations: Tensor) -> Tensor:
    """``memory`` (N, 3, 5, 2) updated with observations (N, 80), which are not normalised."""
    slots = observations[:, HOST : HOST + 3 * BASE].reshape(-1, 3, BASE)
    here = slots[..., _ONE_HOT:] > 0
    contribution = slots[..., _CONTRIBUTION, None].expand_as(here)
    tried, seen = memory.unbind(-1)
    return torch.stack([torch.where(here, 1.0, tried), torch.where(here, contribution, seen)], dim=-1)


def remember_all(observations: Tensor) -> Tensor:
    """The memory at every step of whole episodes: float32 (T, N, 3, 5, 2) from observations (T, N, 80)."""
    memory, steps = make_blank(observations.shape[1]), []
    for each in observations:
        memory = remember(memory, each)
        steps.append(memory)
    return torch.stack(steps)
