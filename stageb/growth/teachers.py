"""Teachers: hosts that make the labels of other hosts, so that what these lack is known.

A *teacher* is a host with one seed in one slot, its own for every environment. Its pupil begins as that host without the
seed, and is to answer as the teacher does: what it lacks is exactly that blueprint in that slot. Where no growth pays, the
teacher is the host alone, and its answers are drawn from what it holds likely rather than its best guess: the pupil begins
as well as it can become, and whatever grows can only learn noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.growth import bank
from stageb.growth.blocks import Seeds, at_once, forward, parted
from stageb.growth.hosts import HOST, Plan
from stageb.growth.types import SLOTS

SHARPNESS = 2.0  # of the answers that teachers without a seed draw: what their logits are multiplied by

Right = tuple[int, int]
"""A slot and a blueprint."""


def stream(key: int) -> int:
    """The stream that names the teacher of the environment ``key``."""
    return seeds.stream(key, "teacher")


def choice(plan: Plan, key: int, slot: int | None, blueprint: int | None) -> Right:
    """The slot and the blueprint of an environment's teacher, drawn where they are None."""
    its = stream(key)
    drawn = seeds.bits(its, 0) % len(SLOTS), seeds.bits(its, 1) % len(plan.blueprints)
    return drawn[0] if slot is None else slot, drawn[1] if blueprint is None else blueprint


class Teachers:
    """The teachers of a block, on a device. Gates they have none, and they compute in float32."""

    def __init__(self, plan: Plan, keys: Sequence[int], right: Sequence[Right] | None, device: torch.device) -> None:
        """``keys`` name the environments; ``right``: what each teacher has; None: no seeds, and answers that are drawn."""
        self.plan, self.keys, self.drawn = replace(plan, gated=False, precision="32-true"), keys, right is None
        self.host = bank.drawn(plan, HOST, keys).float().to(device)
        pairs = [(-1, -1)] * len(keys) if right is None else right
        held: Seeds = [[(index, False) if slot == its else None for slot in range(len(SLOTS))] for its, index in pairs]
        self.slots, self.params = parted(plan, held, device), {}
        for group in (group for slot in self.slots for group in slot.groups):
            whose = [stream(keys[member]) for member in group.rows.tolist()]
            self.params[group] = bank.drawn(plan, group.segment, whose, teaching=True).float().to(device)

    def answers(self, inputs: Tensor, name: str) -> Tensor:
        """What each says of the inputs of the set ``name``, (N, *shape): int64 (B, N)."""
        ones = torch.ones(len(self.keys), 1, len(SLOTS), device=inputs.device)
        with torch.no_grad():
            said = [
                forward(self.plan, self.host, self.slots, self.params, part, ones)[:, 0]
                for part in torch.split(inputs, at_once(self.plan))
            ]
        logits = torch.cat(said, 1)
        return (SHARPNESS * logits + self._noise(logits, name) if self.drawn else logits).argmax(-1)

    def _noise(self, logits: Tensor, name: str) -> Tensor:
        """Gumbel noise, by which the largest is drawn as a softmax would."""
        keys = torch.tensor([draws.signed(seeds.stream(key, "noise", name)) for key in self.keys], device=logits.device)
        uniforms = draws.uniforms(keys[:, None], torch.arange(logits[0].numel(), device=logits.device))
        return -(-uniforms.clamp(1e-7, 1 - 1e-7).log()).log().view(logits.shape)
