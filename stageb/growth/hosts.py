"""What hosts are made of.

A network's parameters are *segments*: flat vectors named ``host`` and ``{slot}.{blueprint}``, all allocated ahead, so that
the set of parameters never changes. ``blocks`` computes with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from stageb.config import require
from stageb.growth.blueprints import BLUEPRINTS, Place, Spec, gate, holds
from stageb.growth.config import HostConfig, Precision
from stageb.growth.kinds import KINDS, Form, HostKind, make_place
from stageb.growth.own import make_own
from stageb.growth.types import SLOTS

HOST = "host"


@dataclass(frozen=True)
class Plan:
    """What a host is made of; no tensors."""

    form: Form
    kind: str  # or the function that makes such hosts
    built: HostKind
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


def make_plan(config: HostConfig, form: Form) -> Plan:
    """The host that ``config`` asks for, for a task of this ``form``.

    Raises ``ConfigError`` where such a host cannot read such examples or hold a blueprint, or one's own is no host.
    """
    if config.make:
        name, kind = config.make, make_own(config.make, form, config.width)
    else:
        require(config.kind in form.kinds, "host.kind", config.kind, f"this task can be read by: {', '.join(form.kinds)}")
        name, kind = config.kind, KINDS[config.kind]
    early, mid, late = (make_place(kind, form, config.width, slot) for slot in range(len(SLOTS)))
    able = holds(len(early.places))
    for blueprint in config.blueprints:
        require(blueprint in able, "host.blueprints", blueprint, f"a host of kind {name} can hold: {', '.join(able)}")
    segments: dict[str, tuple[Spec, ...]] = {HOST: tuple(kind.specs(form, config.width))}
    for slot, at in zip(SLOTS, (early, mid, late), strict=True):
        for blueprint in config.blueprints:
            gates = gate(config.width) if config.blend == "gated" else ()
            segments[f"{slot}.{blueprint}"] = (*BLUEPRINTS[blueprint].specs(at), *gates)
    return Plan(
        form=form,
        kind=name,
        built=kind,
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


def count_parameters(plan: Plan, active: Sequence[int]) -> tuple[int, int]:
    """Parameters of one network: of its host, and of the seeds of blueprints ``active``, with their gates, each once."""
    sizes = plan.sizes
    return sizes[HOST], sum(sizes[name_segment(plan, slot, index)] for slot, index in enumerate(active) if index >= 0)


def name_segment(plan: Plan, slot: int, blueprint: int) -> str:
    """The name of a seed's segment."""
    return f"{SLOTS[slot]}.{plan.blueprints[blueprint]}"
