"""The three kinds of hosts, what one is made of, and what it costs.

A host is a stem, two bodies and a head, with a slot after the stem and after each body. Hidden
states are (N, C, *places). Convolutional hosts normalise by groups: the running statistics of batch
normalisation are buffers, which do not survive ``vmap``. They halve their places at every
convolution, so that most work lies in the stem.

A network's parameters are *segments*: flat vectors named ``host`` and ``{slot}.{blueprint}``, all
allocated ahead, so that the set of parameters never changes. ``blocks`` computes with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from stageb.config import require
from stageb.growth.blueprints import (
    BLUEPRINTS,
    SeedPlace,
    Spec,
    convolve,
    group_norm,
    holds,
    mix,
    weight,
)
from stageb.growth.config import HostConfig
from stageb.growth.observation import SIZE, make_blank
from stageb.growth.policy import Policy
from stageb.growth.types import SLOTS, Op

Params = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class TaskShape:
    """The shapes of a task's examples and targets."""

    # of one example: (features,), (places, features) or (rows, columns, channels)
    example: tuple[int, ...]
    classes: int
    # hosts are given as good as they can be without seeds, and do not learn themselves
    given: bool = False


@dataclass(frozen=True, slots=True)
class HostKind:
    """How a host of one kind is built, of a width that is C."""

    places: Callable[[TaskShape, int], tuple[int, ...]]  # at a slot, 0 to 2
    specs: Callable[[TaskShape, int], list[Spec]]  # of stem, bodies and head, from the width
    stem: Callable[[TaskShape, Params, Tensor], Tensor]
    body: Callable[[TaskShape, int, Params, Tensor], Tensor]  # number 1 or 2
    head: Callable[[TaskShape, Params, Tensor], Tensor]  # to logits, (N, classes)
    # multiplications for one example: of the stem, of all that comes later
    products: Callable[[TaskShape, int], tuple[int, int]]


def _make_affine(name: str, shape: tuple[int, ...], gain: float = 2.0) -> list[Spec]:
    return [weight(name, shape, gain), Spec(f"{name}_bias", shape[:1])]


def _make_norm(name: str, width: int) -> list[Spec]:
    return [Spec(f"{name}_gain", (width,), fill=1.0), Spec(f"{name}_shift", (width,))]


def _mix(params: Params, name: str, x: Tensor) -> Tensor:
    return mix(x, params[name], params[f"{name}_bias"])


# Dense layers. An example is read flat.


def _dense_specs(shape: TaskShape, width: int) -> list[Spec]:
    bodies = [spec for body in ("body1", "body2") for spec in _make_affine(body, (width, width))]
    return [
        *_make_affine("stem", (width, prod(shape.example))),
        *bodies,
        *_make_affine("head", (shape.classes, width), 1.0),
    ]


# Convolutions of stride 2, group norm, ReLU; the head reads every place for itself. A sequence has
# one axis, an image two; read by a host of one axis, an image is the sequence of its rows.

KERNEL, STRIDE = 3, 2


def _conv(params: Params, name: str, x: Tensor) -> Tensor:
    convolved = convolve(x, params[name], stride=STRIDE)
    return functional.relu(group_norm(convolved, params[f"{name}_gain"], params[f"{name}_shift"]))


def _flat_head(shape: TaskShape, params: Params, h: Tensor) -> Tensor:
    return _mix(params, "head", h.flatten(1))


def _convolutional(axes: int) -> HostKind:
    """The kind of host that convolves along so many axes."""

    def places(shape: TaskShape, slot: int) -> tuple[int, ...]:
        return tuple(-(-side // STRIDE ** (slot + 1)) for side in shape.example[:axes])

    def specs(shape: TaskShape, width: int) -> list[Spec]:
        made = []
        for name, before in (
            ("stem", prod(shape.example[axes:])),
            ("body1", width),
            ("body2", width),
        ):
            made += [weight(name, (width, before, *(KERNEL,) * axes)), *_make_norm(name, width)]
        return [*made, *_make_affine("head", (shape.classes, width * prod(places(shape, 2))), 1.0)]

    def products(shape: TaskShape, width: int) -> tuple[int, int]:
        early, mid, late = (prod(places(shape, slot)) for slot in range(3))
        taps = KERNEL**axes * width
        return taps * prod(shape.example[axes:]) * early, taps * width * (
            mid + late
        ) + width * late * shape.classes

    return HostKind(
        places,
        specs,
        lambda shape, params, x: _conv(params, "stem", x.flatten(1 + axes).movedim(-1, 1)),
        lambda shape, number, params, h: _conv(params, f"body{number}", h),
        _flat_head,
        products,
    )


KINDS: Mapping[str, HostKind] = {
    "mlp": HostKind(
        lambda shape, slot: (),
        _dense_specs,
        lambda shape, params, x: functional.relu(_mix(params, "stem", x.flatten(1))),
        lambda shape, number, params, h: functional.relu(_mix(params, f"body{number}", h)),
        _flat_head,
        lambda shape, width: (
            prod(shape.example) * width,
            2 * width * width + width * shape.classes,
        ),
    ),
    "conv1d": _convolutional(1),
    "conv2d": _convolutional(2),
}


HOST = "host"


@dataclass(frozen=True)
class Plan:
    """The layout of a host, without tensors."""

    shape: TaskShape
    built: HostKind
    width: int
    blueprints: tuple[str, ...]  # what ``active`` counts
    # of the host, and of the seeds of early, mid and late
    learning_rates: tuple[float, float, float, float]
    # in one order: host, then the seeds of early, mid, late
    segments: Mapping[str, tuple[Spec, ...]]
    slots: tuple[SeedPlace, SeedPlace, SeedPlace]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many numbers each segment holds."""
        return {name: sum(spec.size for spec in specs) for name, specs in self.segments.items()}

    def count_parameters(self, active: Sequence[int]) -> tuple[int, int]:
        """Parameters of one network: of its host, and of the seeds of blueprints ``active``."""
        return self.sizes[HOST], sum(
            self.sizes[name_segment(self, slot, index)]
            for slot, index in enumerate(active)
            if index >= 0
        )

    # Floating-point operations: two for every multiplication of a layer, as is usual.
    #
    # Norms, activations and the optimiser are left out: they are far less. A backward pass counts
    # as two forward passes wherever there is training, also where less is computed: no gradient of
    # the host's parameters is made where a seed trains beside it, or where the host is given. So
    # networks cost the same on every task. What a member of a block costs is what it would cost
    # alone: that others of its block have other seeds, for which it is computed in vain, is not
    # counted.

    def count_forward(self, active: Sequence[int]) -> int:
        """Of one example through one network whose slots hold the blueprints ``active``, -1 for
        none."""
        return 2 * (
            sum(self.built.products(self.shape, self.width)) + self._count_seed_products(active)
        )

    def count_training(self, active: Sequence[int], beside: Sequence[bool]) -> int:
        """Of one example in a step of training, forward and backward: of the network as it stands,
        and of one for each seed that trains ``beside`` it, in which that seed stands too."""
        stands = [-1 if trains else index for index, trains in zip(active, beside, strict=True)]
        tried = [slot for slot, trains in enumerate(beside) if trains]
        networks = [[*stands[:slot], active[slot], *stands[slot + 1 :]] for slot in tried]
        return 3 * sum(self.count_forward(network) for network in (stands, *networks))

    def count_evaluation(self, active: Sequence[int], settings: int) -> int:
        """Of one example judged in as many settings: what comes before the first slot is computed
        once."""
        stem, later = self.built.products(self.shape, self.width)
        return 2 * (stem + settings * (later + self._count_seed_products(active)))

    def _count_seed_products(self, active: Sequence[int]) -> int:
        products = 0
        for index, at in zip(active, self.slots, strict=True):
            if index >= 0:
                products += BLUEPRINTS[self.blueprints[index]].products(at)
        return products


def make_plan(config: HostConfig, shape: TaskShape) -> Plan:
    """The host that ``config`` asks for, for a task of this ``shape``.

    Raises ``ConfigError`` where such a host cannot hold a blueprint.
    """
    kind = KINDS[config.kind]
    early, mid, late = (
        SeedPlace(config.width, kind.places(shape, slot)) for slot in range(len(SLOTS))
    )
    able = holds(len(early.places))
    for blueprint in config.blueprints:
        require(
            blueprint in able,
            "host.blueprints",
            blueprint,
            f"a host of kind {config.kind} can hold: {', '.join(able)}",
        )
    segments: dict[str, tuple[Spec, ...]] = {HOST: tuple(kind.specs(shape, config.width))}
    for slot, at in zip(SLOTS, (early, mid, late), strict=True):
        for blueprint in config.blueprints:
            segments[f"{slot}.{blueprint}"] = tuple(BLUEPRINTS[blueprint].specs(at))
    return Plan(
        shape=shape,
        built=kind,
        width=config.width,
        blueprints=tuple(config.blueprints),
        learning_rates=(
            0.0 if shape.given else config.learning_rate,
            *(config.seed_learning_rate or config.learning_rate,) * 3,
        ),
        segments=segments,
        slots=(early, mid, late),
    )


def name_segment(plan: Plan, slot: int, blueprint: int) -> str:
    """The name of a seed's segment."""
    return f"{SLOTS[slot]}.{plan.blueprints[blueprint]}"


def count_policy(hidden: int, blueprints: int) -> int:
    """Of an observation that the policy, actor and critic, reads; torch counts them."""
    legal, action = (
        torch.ones((1, len(Op), len(SLOTS)), dtype=torch.bool),
        torch.zeros((1, 3), dtype=torch.int64),
    )
    with FlopCounterMode(display=False) as counter:
        Policy(hidden, blueprints, 0)(torch.zeros(1, SIZE), make_blank(1), legal, action)
    return int(counter.get_total_flops())
