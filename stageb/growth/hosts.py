"""Hosts: what they are made of, and their forward as a function of one network's parameters.

A network's parameters are *segments*: flat vectors named ``host``, ``{slot}.{blueprint}`` and ``{slot}.gate``, all
allocated ahead, so that the set of parameters never changes. ``forward`` computes the seeds whose segments it is given, and
an inactive one, or one that blew up, cannot reach the output or the host's gradients: choices are made by ``where`` (0 *
NaN is NaN), and what a seed sends back through its input is stopped where it is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stageb.config import require
from stageb.errors import ConfigError
from stageb.growth.blueprints import BLUEPRINTS, Place, Spec, holds
from stageb.growth.config import HostConfig, Precision
from stageb.growth.kinds import KINDS, Form, place
from stageb.growth.layers import guarded, mix
from stageb.growth.types import SLOTS

HOST, GATE = "host", "gate"


@dataclass(frozen=True)
class Plan:
    """What a host is made of; no tensors."""

    form: Form
    kind: str
    width: int
    blueprints: tuple[str, ...]  # what ``active`` counts
    gated: bool  # whether slots have a gate
    learning_rate: float
    precision: Precision
    segments: Mapping[str, tuple[Spec, ...]]  # in one order: host, then the seeds and the gate of early, mid, late
    slots: tuple[Place, Place, Place]

    @property
    def sizes(self) -> dict[str, int]:
        """How many numbers each segment holds."""
        return {name: sum(spec.size for spec in specs) for name, specs in self.segments.items()}


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
            segments[f"{slot}.{name}"] = tuple(BLUEPRINTS[name].specs(at))
        if config.blend == "gated":
            segments[f"{slot}.{GATE}"] = (Spec("weight", (1, config.width)), Spec("bias", (1,)))
    return Plan(
        form=form,
        kind=config.kind,
        width=config.width,
        blueprints=tuple(config.blueprints),
        gated=config.blend == "gated",
        learning_rate=config.learning_rate,
        precision=config.precision,
        segments=segments,
        slots=(early, mid, late),
    )


def used(plan: Plan, active: list[list[int]]) -> list[str]:
    """The segments that a block needs whose members' seeds are ``active``: (B, 3) indices of blueprints, -1 for none."""
    names = [HOST]
    for slot, indices in zip(SLOTS, zip(*active, strict=True), strict=True):
        names += [f"{slot}.{name}" for index, name in enumerate(plan.blueprints) if index in indices]
        if plan.gated and max(indices) >= 0:
            names.append(f"{slot}.{GATE}")
    return names


def parameters(plan: Plan, active: list[int]) -> tuple[int, int]:
    """Parameters of one network: of its host, and of its ``active`` seeds with their gates, each counted once."""
    sizes = plan.sizes
    names = used(plan, [active])
    return sizes[HOST], sum(sizes[name] for name in names[1:])


def forward(plan: Plan, params: Mapping[str, Tensor], x: Tensor, alphas: Tensor, active: Tensor) -> Tensor:
    """Logits (N, classes), or (N, T, classes) of tokens, of ONE network; ``vmap`` makes it many.

    ``params`` holds the segments in use, flat; ``x`` is (N, *shape); ``alphas``, floats (3,), weigh the seeds of early, mid
    and late; ``active``, int64 (3,), says which blueprint stands there, or -1.
    """
    kind = KINDS[plan.kind]
    host = opened(plan, params, HOST)
    h = kind.stem(plan.form, host, x)
    for slot in range(len(SLOTS)):
        if slot:
            h = kind.body(plan.form, host, h, slot)
        h = _grown(plan, params, h, slot, (alphas[slot], active[slot]))
    return kind.head(plan.form, host, h)


def opened(plan: Plan, params: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    """The tensors of a segment by name: views of its flat vector."""
    specs = plan.segments[name]
    parts = torch.split(params[name], [spec.size for spec in specs])
    return {spec.name: part.view(spec.shape) for spec, part in zip(specs, parts, strict=True)}


def _grown(plan: Plan, params: Mapping[str, Tensor], h: Tensor, slot: int, at: tuple[Tensor, Tensor]) -> Tensor:
    """The state that a slot hands on: ``h + alpha * gate * f(h)`` where a seed is active and finite, else ``h`` itself.

    Whether it is finite, each example's own branch says: what one of them comes to hangs on no other.
    """
    (alpha, active), name = at, SLOTS[slot]
    given = [index for index, blueprint in enumerate(plan.blueprints) if f"{name}.{blueprint}" in params]
    if not given:
        return h
    read = guarded(h)
    branch = torch.zeros_like(h)
    for index in given:
        blueprint = plan.blueprints[index]
        seed = opened(plan, params, f"{name}.{blueprint}")
        branch = torch.where(active == index, BLUEPRINTS[blueprint].branch(seed, read, plan.slots[slot]), branch)
    if plan.gated:
        gate = opened(plan, params, f"{name}.{GATE}")
        branch = branch * mix(read, gate["weight"], gate["bias"]).sigmoid()
    finite = branch.detach().float().flatten(1).sum(1).isfinite()  # a sum is, if all its terms are and none is enormous
    reached = (finite & (active >= 0) & (alpha > 0)).view(-1, *[1] * (h.dim() - 1))
    return torch.where(reached, h + alpha * torch.where(reached, branch, 0.0), h)
