"""Teachers: hosts that make the labels of other hosts, so that what these lack is known.

A *teacher* is a host with a seed in a slot, or several, its own for every environment. Its pupil is that host without, and
is to answer as the teacher does. The host stays as it is given, since one that learns soon makes up for what it lacks, in
its own way, and no growth pays; and the right seed germinates as the teacher's, but for its last layer, which is to be
learnt: so what a pupil lacks is exactly that blueprint in that slot. Nobody who grows a network on data is given that: with
``task.inner: own`` the teacher's seed has weights of its own, and all of the right seed is to be learnt.

Where no growth pays, the teacher is the host alone, and its answers are drawn from what it holds likely rather than its best
guess: its pupil is as good as it can become, and whatever grows can only learn noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.growth import bank
from stageb.growth.blocks import Seeds, choose_batch_size, forward, group_members, open_segment
from stageb.growth.hosts import HOST, Plan
from stageb.growth.types import SLOTS

SHARPNESS = 4.0  # deviation of a teacher's logits: enough that to be as sure as it is, is to answer as it does

Right = tuple[int, int]
"""A slot and a blueprint."""


def seed_key(key: int) -> int:
    """The stream of all seeds of the environment ``key``: the same blueprint in the same slot always begins alike."""
    return seeds.stream(key, "seed")


def _teaching_key(key: int, known: bool) -> int:
    """The stream of the seed of the environment's teacher."""
    return seed_key(key) if known else seeds.stream(key, "seed of the teacher")


def choose_seeds(plan: Plan, key: int, count: int, slot: int | None, blueprint: int | None) -> tuple[Right, ...]:
    """The ``count`` slots and blueprints of an environment's teacher, by slot; drawn, but for the first slot and all
    blueprints where they are not None."""
    its, free, chosen = seeds.stream(key, "teacher"), list(range(len(SLOTS))), list[Right]()
    for number in range(count):
        at, which = (seeds.bits(its, 2 * number + each) for each in (0, 1))
        place = free[at % len(free)] if slot is None or number else slot
        free.remove(place)
        chosen.append((place, which % len(plan.blueprints) if blueprint is None else blueprint))
    return tuple(sorted(chosen))


class Teachers:
    """The teachers of a block, on a device. Gates they have none, and they compute in float32."""

    def __init__(
        self, plan: Plan, keys: Sequence[int], right: Sequence[Sequence[Right]] | None, inputs: Tensor, known: bool = True
    ) -> None:
        """``keys`` name the environments; ``right``: what each teacher has; None: no seeds, and answers that are drawn.
        ``known``: whether the right seed germinates with the inner weights of the teacher's.

        The last layer is scaled by ``inputs``, (N, *shape), so that logits have mean 0 for every class and one deviation.
        """
        self.plan, self.keys, self.drawn = replace(plan, gated=False, precision="32-true"), keys, right is None
        self.host = bank.draw(plan, HOST, keys).float().to(inputs.device)  # (B, size)
        has = [dict(each) for each in right or [()] * len(keys)]
        held: Seeds = [[(its[slot], False) if slot in its else None for slot in range(len(SLOTS))] for its in has]
        self.slots, self.params = group_members(plan, held, inputs.device), {}
        for group in (group for slot in self.slots for group in slot.groups):
            whose = [_teaching_key(keys[member], known) for member in group.rows.tolist()]
            drawn = bank.draw(plan, group.segment, whose, teaching=True)
            self.params[group] = drawn.float().to(inputs.device)
        logits, last = self._logits(inputs), open_segment(self.plan, HOST, self.host)
        mean = logits.mean(1)
        last["head_bias"].sub_(mean)
        scale = SHARPNESS / (logits - mean[:, None]).flatten(1).std(1)
        last["head"].mul_(scale[:, None, None])
        last["head_bias"].mul_(scale[:, None])

    def answers(self, inputs: Tensor, name: str) -> Tensor:
        """What each says of the inputs of the set ``name``, (N, *shape): int64 (B, N)."""
        logits = self._logits(inputs)
        return (logits + self._noise(logits, name) if self.drawn else logits).argmax(-1)

    def _logits(self, inputs: Tensor) -> Tensor:
        """(B, N, classes)"""
        ones = torch.ones(len(self.keys), 1, len(SLOTS), device=inputs.device)
        with torch.no_grad():
            parts = torch.split(inputs, choose_batch_size(self.plan))
            said = [forward(self.plan, self.host, self.slots, self.params, part, ones)[:, 0] for part in parts]
        return torch.cat(said, 1)

    def _noise(self, logits: Tensor, name: str) -> Tensor:
        """Gumbel noise, by which the largest is drawn as a softmax would."""
        keys = torch.tensor([draws.signed(seeds.stream(key, "noise", name)) for key in self.keys], device=logits.device)
        uniforms = draws.uniforms(keys[:, None], torch.arange(logits[0].numel(), device=logits.device))
        return -(-uniforms.clamp(1e-7, 1 - 1e-7).log()).log().view(logits.shape)
