"""What each slot contributes: the network judged as it is, and with seeds turned out or in, in one batched forward.

Nothing changes by asking: no gradient is made, no state is held, nothing is drawn. What comes before the first slot is the
same in all settings, and is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from stageb.draws import wide
from stageb.growth.blocks import Seeds, choose_batch_size, forward, group_members
from stageb.growth.data import Split
from stageb.growth.hosts import HOST
from stageb.growth.training import Hosts


@dataclass(frozen=True)
class Evaluation:
    """How members do on a set in each setting, on the CPU."""

    loss: Tensor  # float64 (B, S): mean cross entropy
    accuracy: Tensor  # float64 (B, S)


def judge(hosts: Hosts, split: Split, active: Tensor, alphas: Tensor) -> Evaluation:
    """Loss and accuracy on ``split``, whose targets are stacked over members, in S settings of ``alphas``, floats (B, S, 3).

    ``active`` is int64 (B, 3), as of ``training.train_epoch``.
    """
    plan, device, count = hosts.plan, hosts.device, len(split)
    seen = (alphas > 0).any(1).tolist()  # in one setting at least
    seeds: Seeds = [
        [(index, False) if index >= 0 and any_at_all else None for index, any_at_all in zip(indices, its, strict=True)]
        for indices, its in zip(active.tolist(), seen, strict=True)
    ]
    slots = group_members(plan, seeds, device)
    params = {group: hosts.weights[group.segment][group.rows] for slot in slots for group in slot.groups}
    alphas = alphas.to(device, hosts.weights[HOST].dtype)
    total = torch.zeros((2, *alphas.shape[:2]), dtype=wide(device), device=device)
    with torch.no_grad():
        for start in range(0, count, choose_batch_size(plan)):
            chunk = slice(start, start + choose_batch_size(plan))
            inputs, targets = split.part(chunk)
            logits = forward(plan, hosts.weights[HOST], slots, params, inputs, alphas)
            total += _sums(logits, targets[:, None])
    losses, right = total.cpu().double() / count
    return Evaluation(losses, right)


def _sums(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropies and right answers, (2, B, S), of (B, S, N, classes) for (B, 1, N), summed."""
    targets = targets.expand(logits.shape[:-1])
    log_probs = logits.log_softmax(-1)
    losses = -log_probs.gather(-1, targets[..., None])[..., 0]
    right = log_probs.argmax(-1) == targets
    return torch.stack([each.to(wide(logits.device)).sum(2) for each in (losses, right)])
