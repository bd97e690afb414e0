"""What each slot contributes: the network judged as it is, and with seeds turned out or in, in one batched forward.

Nothing changes by asking: no gradient is made, no state is held, nothing is drawn. What comes before the first slot is the
same in all settings, and is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from stageb.draws import wide
from stageb.growth.data import Split
from stageb.growth.hosts import HOST, Plan, forward, used
from stageb.growth.training import Hosts, mixed
from stageb.growth.types import SLOTS

MOST, NUMBERS = 512, 1 << 17  # examples at once; and numbers of a hidden state, of one network in one setting


@dataclass(frozen=True)
class Judged:
    """How members do on a set in each setting, on the CPU."""

    loss: Tensor  # float64 (B, S): mean cross entropy
    accuracy: Tensor  # float64 (B, S)


def turned_out(alphas: Tensor) -> Tensor:
    """The settings {full, -early, -mid, -late} of ``alphas``, (B, 3): (B, 4, 3), each slot's alpha 0 in its own."""
    kept = torch.cat([torch.ones(1, len(SLOTS)), 1 - torch.eye(len(SLOTS))])
    return alphas[:, None] * kept.to(alphas)


def judge(hosts: Hosts, split: Split, active: Tensor, alphas: Tensor) -> Judged:
    """Loss and accuracy on ``split``, whose targets are stacked over members, in S settings of ``alphas``, floats (B, S, 3).

    ``active`` is int64 (B, 3), as of ``training.epoch``.
    """
    device = hosts.counts.device
    names = used(hosts.plan, active.tolist())
    weights = {name: hosts.weights[name] for name in names}
    active, alphas = active.to(device), alphas.to(device, hosts.weights[HOST].dtype)

    def one(params: dict[str, Tensor], x: Tensor, y: Tensor, active: Tensor, settings: Tensor) -> Tensor:
        logits = torch.func.vmap(lambda alphas: forward(hosts.plan, params, x, alphas, active))(settings)
        targets = y.expand(logits.shape[:-1])
        log_probs = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
        losses = -log_probs.gather(-1, targets[..., None])[..., 0]
        right = logits.argmax(-1) == targets
        return torch.stack([each.to(wide(device)).flatten(1).sum(1) for each in (losses, right)])

    total = torch.zeros((hosts.members, 2, alphas.shape[1]), dtype=wide(device), device=device)
    step = at_once(hosts.plan)
    with torch.no_grad(), mixed(hosts.plan, device):
        for start in range(0, len(split), step):
            x, y = split.inputs[start : start + step], split.targets[:, start : start + step]
            total += torch.func.vmap(one, in_dims=(0, None, 0, 0, 0))(weights, x, y, active, alphas)
    means = total.cpu().double() / split.targets[0].numel()
    return Judged(means[:, 0], means[:, 1])


def at_once(plan: Plan) -> int:
    """How many examples are judged in one batch. The plan alone decides, since sums depend on it in their last bits."""
    return max(1, min(MOST, NUMBERS // (plan.width * prod(plan.slots[0].places))))
