"""What hosts are made of: the kinds that ship, and those of a user's own; what they cost.

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
from torch.utils.flop_counter import FlopCounterMode

from stageb.config import require
from stageb.errors import ConfigError, shown
from stageb.growth.blueprints import BLUEPRINTS, SeedPlace, Spec, holds
from stageb.growth.config import HostConfig
from stageb.growth.kinds import KINDS, Form, HostKind, make_place
from stageb.growth.observation import SIZE, make_blank
from stageb.growth.policy import Policy
from stageb.growth.types import SLOTS, Op
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
    slots: tuple[SeedPlace, SeedPlace, SeedPlace]

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


# Floating-point operations, counted from the plan: two for every multiplication of a layer, as is usual.
#
# Norms, activations and the optimiser are left out: they are far less. A backward pass counts as two forward passes wherever
# there is training, also where less is computed: no gradient of the host's parameters is made where a seed trains beside it,
# or where the host is given. So networks cost the same on every task. What a member of a block costs is what it would cost
# alone: that others of its block have other seeds, for which it is computed in vain, is not counted.


def count_forward(plan: Plan, active: Sequence[int]) -> int:
    """Of one example through one network whose slots hold the blueprints ``active``, -1 for none."""
    return 2 * (sum(plan.built.products(plan.form, plan.width)) + _seeds(plan, active))


def count_training(plan: Plan, active: Sequence[int], beside: Sequence[bool]) -> int:
    """Of one example in a step of training, forward and backward: of the network as it stands, and of one for each seed that
    trains ``beside`` it, in which that seed stands too."""
    stands = [-1 if trains else index for index, trains in zip(active, beside, strict=True)]
    tried = [slot for slot, trains in enumerate(beside) if trains]
    networks = [[*stands[:slot], active[slot], *stands[slot + 1 :]] for slot in tried]
    return 3 * sum(count_forward(plan, network) for network in (stands, *networks))


def count_evaluation(plan: Plan, active: Sequence[int], settings: int) -> int:
    """Of one example judged in as many settings: what comes before the first slot is computed once."""
    stem, later = plan.built.products(plan.form, plan.width)
    return 2 * (stem + settings * (later + _seeds(plan, active)))


def count_policy(hidden: int, blueprints: int) -> int:
    """Of an observation that the policy, actor and critic, reads; torch counts them."""
    legal, action = torch.ones((1, len(Op), len(SLOTS)), dtype=torch.bool), torch.zeros((1, 3), dtype=torch.int64)
    with FlopCounterMode(display=False) as counter:
        Policy(hidden, blueprints, 0)(torch.zeros(1, SIZE), make_blank(1), legal, action)
    return int(counter.get_total_flops())


def _seeds(plan: Plan, active: Sequence[int]) -> int:
    products = 0
    for index, at in zip(active, plan.slots, strict=True):
        if index >= 0:
            products += BLUEPRINTS[plan.blueprints[index]].products(at)
    return products
