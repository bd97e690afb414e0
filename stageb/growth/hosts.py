"""What hosts are made of: the kinds that ship, and those of a user's own.

A network's parameters are *segments*: flat vectors named ``host`` and ``{slot}.{blueprint}``, all allocated ahead, so that
the set of parameters never changes. ``blocks`` computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import vmap

from stageb.config import require
from stageb.errors import ConfigError, shown
from stageb.growth.blueprints import BLUEPRINTS, Place, Spec, holds
from stageb.growth.config import HostConfig
from stageb.growth.kinds import KINDS, Form, HostKind, make_place
from stageb.growth.types import SLOTS
from stageb.settings import function_named

MEMBERS, EXAMPLES = 3, 2  # of the trial


def make_own(name: str, form: Form, width: int) -> HostKind:
    """What the function ``name`` builds for examples of this ``form``. Raises ``ConfigError`` where that is no host, or its
    functions do not fit together."""
    found = function_named("host.make", name)(form)
    if not isinstance(found, HostKind):
        raise ConfigError("host.make", name, f"it returned {shown(repr(found), 60)}; return a stageb.growth.kinds.HostKind")
    _try(found, form, width, name)
    return found


def _try(kind: HostKind, form: Form, width: int, name: str) -> None:
    """Run a host through all its functions, as blocks do: several networks at once."""

    def refuse(part: str, why: str) -> ConfigError:
        return ConfigError("host.make", name, f"{part}: {why}")

    def run(part: str, function: Callable[..., Tensor], *given: object, expected: tuple[int, ...]) -> Tensor:
        try:
            result = vmap(function)(*given)
        except Exception as error:  # a user's function may raise anything
            raise refuse(part, shown(f"{type(error).__name__}: {error}", 300)) from error
        shape = tuple(result.shape[1:])
        if shape != expected:
            raise refuse(part, f"it returns {shape} for {EXAMPLES} examples, not {expected}")
        return result

    specs = kind.specs(form, width)
    if not specs or not all(isinstance(spec, Spec) for spec in specs) or len({spec.name for spec in specs}) < len(specs):
        raise refuse("specs", "return a list of Spec, each with a name of its own")
    params: Mapping[str, Tensor] = {spec.name: torch.full((MEMBERS, *spec.shape), 0.1) for spec in specs}
    h = torch.zeros((MEMBERS, EXAMPLES, *form.shape))
    for slot in range(3):
        part = "body" if slot else "stem"

        def step(params: Mapping[str, Tensor], h: Tensor, slot: int = slot) -> Tensor:
            return kind.body(form, slot, params, h) if slot else kind.stem(form, params, h)

        h = run(part, step, params, h, expected=(EXAMPLES, width, *kind.places(form, slot)))
    run("head", lambda params, h: kind.head(form, params, h), params, h, expected=(EXAMPLES, form.classes))
    counts = kind.products(form, width)
    if not (isinstance(counts, tuple) and len(counts) == 2 and all(isinstance(each, int) and each >= 0 for each in counts)):
        raise refuse("products", "return two numbers: multiplications of the stem, and of all that comes later")


HOST = "host"


@dataclass(frozen=True)
class Plan:
    """What a host is made of; no tensors."""

    form: Form
    kind: str  # or the function that makes such hosts
    built: HostKind
    width: int
    blueprints: tuple[str, ...]  # what ``active`` counts
    learning_rates: tuple[float, float, float, float]  # of the host, and of the seeds of early, mid and late
    segments: Mapping[str, tuple[Spec, ...]]  # in one order: host, then the seeds of early, mid, late
    slots: tuple[Place, Place, Place]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many numbers each segment holds."""
        return {name: sum(spec.size for spec in specs) for name, specs in self.segments.items()}


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
            segments[f"{slot}.{blueprint}"] = tuple(BLUEPRINTS[blueprint].specs(at))
    return Plan(
        form=form,
        kind=name,
        built=kind,
        width=config.width,
        blueprints=tuple(config.blueprints),
        learning_rates=(
            0.0 if form.given else config.learning_rate,
            *(config.seed_learning_rate or config.learning_rate,) * 3,
        ),
        segments=segments,
        slots=(early, mid, late),
    )


def count_parameters(plan: Plan, active: Sequence[int]) -> tuple[int, int]:
    """Parameters of one network: of its host, and of the seeds of blueprints ``active``."""
    sizes = plan.sizes
    return sizes[HOST], sum(sizes[name_segment(plan, slot, index)] for slot, index in enumerate(active) if index >= 0)


def name_segment(plan: Plan, slot: int, blueprint: int) -> str:
    """The name of a seed's segment."""
    return f"{SLOTS[slot]}.{plan.blueprints[blueprint]}"
