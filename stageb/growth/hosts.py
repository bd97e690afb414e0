"""Hosts: what they are made of, and their forward as a function of one network's parameters.

A network's parameters are *segments*: flat vectors named ``host`` and ``{slot}.{blueprint}``, all allocated ahead, so that
the set of parameters never changes. A seed that is inactive, at alpha 0, or that blew up, cannot reach the output or the
host's gradients: it is left out, or the choice is made by ``where`` (0 * NaN is NaN), and what a seed sends back through its
input is stopped where it is not finite. ``blocks`` is the same forward for many networks at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from stageb.config import require
from stageb.errors import ConfigError
from stageb.growth.blueprints import BLUEPRINTS, Place, Spec, gate, holds
from stageb.growth.config import HostConfig, Precision
from stageb.growth.kinds import KINDS, Form, place
from stageb.growth.layers import guarded, mix
from stageb.growth.types import SLOTS

HOST = "host"


@dataclass(frozen=True)
class Plan:
    """What a host is made of; no tensors."""

    form: Form
    kind: str
    width: int
    blueprints: tuple[str, ...]  # what ``active`` counts
    gated: bool  # whether each seed has a gate
    learning_rates: tuple[float, float, float, float]  # of the host, and of the seeds of early, mid and late
    precision: Precision
    segments: Mapping[str, tuple[Spec, ...]]  # in one order: host, then the seeds and the gate of early, mid, late
    slots: tuple[Place, Place, Place]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many numbers each segment holds."""
        return {name: sum(spec.size for spec in specs) for name, specs in self.segments.items()}

    @property
    def host_differentiated(self) -> bool:
        """Whether the host's gradient is asked for: not of a given host, unless the scale of 16-mixed losses goes by it."""
        return not self.form.given or self.precision == "16-mixed"


def plan(config: HostConfig, form: Form) -> Plan:
    """The host that ``config`` asks for, for a task of this ``form``.

    Raises ``ConfigError`` where such a host cannot read such examples, or cannot hold a blueprint.
    """
    if config.kind not in form.kinds:
        raise ConfigError("host.kind", config.kind, f"this task can be read by: {', '.join(form.kinds)}")
    kind = KINDS[config.kind]
    early, mid, late = (place(config.kind, form, config.width, slot) for slot in range(len(SLOTS)))
    able = holds(len(early.places))
    for name in config.blueprints:
        require(name in able, "host.blueprints", name, f"a host of kind {config.kind} can hold: {', '.join(able)}")
    segments: dict[str, tuple[Spec, ...]] = {HOST: tuple(kind.specs(form, config.width))}
    for slot, at in zip(SLOTS, (early, mid, late), strict=True):
        for name in config.blueprints:
            gates = gate(config.width) if config.blend == "gated" else ()
            segments[f"{slot}.{name}"] = (*BLUEPRINTS[name].specs(at), *gates)
    return Plan(
        form=form,
        kind=config.kind,
        width=config.width,
        blueprints=tuple(config.blueprints),
        gated=config.blend == "gated",
        learning_rates=(
            0.0 if form.given else config.learning_rate,
            *(config.seed_learning_rate or config.learning_rate,) * 3,
        ),
        precision=config.precision,
        segments=segments,
        slots=(early, mid, late),
    )


def parameters(plan: Plan, active: Sequence[int]) -> tuple[int, int]:
    """Parameters of one network: of its host, and of the seeds of blueprints ``active``, with their gates, each once."""
    sizes = plan.sizes
    return sizes[HOST], sum(sizes[segment(plan, slot, index)] for slot, index in enumerate(active) if index >= 0)


def segment(plan: Plan, slot: int, blueprint: int) -> str:
    """The name of a seed's segment."""
    return f"{SLOTS[slot]}.{plan.blueprints[blueprint]}"


def opened(plan: Plan, name: str, flat: Tensor) -> dict[str, Tensor]:
    """The tensors of a segment by name: views of ``flat``, (..., size), as they are computed with."""
    specs, flat = plan.segments[name], lowered(plan, flat)
    parts = torch.split(flat, [spec.size for spec in specs], -1)
    return {spec.name: part.view(*flat.shape[:-1], *spec.shape) for spec, part in zip(specs, parts, strict=True)}


def lowered(plan: Plan, tensor: Tensor) -> Tensor:
    """Numbers in the precision that the plan computes in; tokens, and all where nothing is mixed, as they are."""
    if plan.precision == "32-true" or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.float16 if plan.precision == "16-mixed" else torch.bfloat16)


def forward(plan: Plan, params: Mapping[str, Tensor], x: Tensor, alphas: Sequence[float], active: Sequence[int]) -> Tensor:
    """Logits (N, classes), or (N, T, classes) of tokens, of ONE network for ``x``, (N, *shape).

    ``params`` holds its segments, flat, those in use at least; ``alphas`` weighs the seeds of early, mid and late;
    ``active`` says which blueprint stands there, or -1.
    """
    kind, host = KINDS[plan.kind], opened(plan, HOST, params[HOST])
    h = kind.stem(plan.form, host, lowered(plan, x))
    for slot, (alpha, index) in enumerate(zip(alphas, active, strict=True)):
        if slot:
            h = kind.body(plan.form, slot, host, h)
        if index >= 0 and alpha > 0:
            name = segment(plan, slot, index)
            branch = branched(plan, slot, index, opened(plan, name, params[name]), guarded(h))
            h = joined(h, branch, torch.as_tensor(alpha, dtype=h.dtype, device=h.device), 1)
    return kind.head(plan.form, host, h)


def branched(plan: Plan, slot: int, blueprint: int, seed: Mapping[str, Tensor], h: Tensor) -> Tensor:
    """What a seed would add to ``h`` at alpha 1: its branch, times its gate where the plan has gates."""
    branch = BLUEPRINTS[plan.blueprints[blueprint]].branch(seed, h, plan.slots[slot])
    if not plan.gated:
        return branch
    return branch * mix(h, seed["gate"], seed["gate_bias"]).sigmoid()


def joined(h: Tensor, branch: Tensor, alpha: Tensor, axis: int) -> Tensor:
    """``h + alpha * branch`` where alpha is above 0 and the branch finite, else ``h``; examples lie before ``axis``.

    Whether it is finite, each example's own branch says: what one of them comes to hangs on no other.
    """
    total = branch.detach().float().sum(tuple(range(axis, branch.dim())), keepdim=True)
    reached = total.isfinite() & (alpha > 0)  # a sum is finite, if all its terms are and none is enormous
    return torch.where(reached, h + alpha * branch, h)
