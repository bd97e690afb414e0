"""Seed modules: which there are, which hosts can hold them, and what they compute.

A seed is a residual branch: a slot hands on ``h + alpha * f(h)``. With ``seed(h) = h + f(h)`` that is ``h + alpha *
(seed(h) - h)``, a blend of the host's own state with the seed's, so both views are one formula, and at alpha 0 the host's
state stands untouched. The last layer of ``f`` begins at zero (as in Zhang et al. 2019, "Fixup initialization"): a
germinated seed changes nothing, bit for bit, and still learns, since the last layer's gradient does not vanish with its
weights. The seeds of teachers begin with all weights drawn.

A host can hold what makes sense for its states (``holds``): states without places cannot convolve or attend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from torch import Tensor
from torch.nn import functional

from stageb.growth.layers import attend, convolve, group_norm, layer_norm, mix

TEACHING = 3.0  # how strong a teacher's seed is: gain of its last layer's weights


@dataclass(frozen=True, slots=True)
class Spec:
    """One tensor of parameters, and how it begins: uniform in ``fill`` +- ``bound``."""

    name: str
    shape: tuple[int, ...]
    bound: float = 0.0
    fill: float = 0.0
    teaching: float | None = None  # the bound where it is part of a teacher; None: the same

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


def weight(name: str, shape: tuple[int, ...], gain: float = 2.0) -> Spec:
    """Weights (O, I, ...): uniform with variance ``gain`` / fan-in (He et al. 2015, equation 10, for 2)."""
    return Spec(name, shape, (3.0 * gain / prod(shape[1:])) ** 0.5)


def last(name: str, shape: tuple[int, ...]) -> Spec:
    """Weights of a branch's last layer: zero, but in teachers."""
    return Spec(name, shape, teaching=TEACHING * (3.0 / prod(shape[1:])) ** 0.5)


@dataclass(frozen=True, slots=True)
class Place:
    """What a seed must know of the slot it stands in."""

    width: int  # features
    places: tuple[int, ...]  # along each axis


@dataclass(frozen=True, slots=True)
class Blueprint:
    """One kind of seed."""

    axes: tuple[int, ...]  # how many axes of places states may have
    specs: Callable[[Place], list[Spec]]
    branch: Callable[[Mapping[str, Tensor], Tensor, Place], Tensor]  # f: (N, C, *places) to the same
    products: Callable[[Place], int]  # multiplications that f takes for one example


def _norm_specs(at: Place) -> list[Spec]:
    return [Spec("gain", (at.width,), teaching=2.0 * TEACHING), Spec("bias", (at.width,), teaching=TEACHING)]


def _norm(params: Mapping[str, Tensor], h: Tensor, at: Place) -> Tensor:
    norm = group_norm if at.places else layer_norm
    return norm(h, params["gain"], params["bias"])


def _mlp_specs(at: Place) -> list[Spec]:
    inner = [weight("in", (at.width, at.width)), Spec("in_bias", (at.width,), teaching=TEACHING)]
    return [*inner, last("out", (at.width, at.width)), Spec("bias", (at.width,))]


def _mlp(params: Mapping[str, Tensor], h: Tensor, at: Place) -> Tensor:
    return mix(functional.relu(mix(h, params["in"], params["in_bias"])), params["out"], params["bias"])


def rank(width: int) -> int:
    """Of low-rank maps, and the width of attention's queries."""
    return max(1, width // 4)


def _low_rank_specs(at: Place) -> list[Spec]:
    return [weight("in", (rank(at.width), at.width), 1.0), last("out", (at.width, rank(at.width)))]


def _low_rank(params: Mapping[str, Tensor], h: Tensor, at: Place) -> Tensor:
    return mix(mix(h, params["in"]), params["out"])


def _attention_specs(at: Place) -> list[Spec]:
    width = at.width
    narrow = [weight(name, (rank(width), width), 1.0) for name in ("queries", "keys")]
    return [*narrow, weight("values", (width, width), 1.0), last("out", (width, width))]


def _attention(params: Mapping[str, Tensor], h: Tensor, at: Place) -> Tensor:
    queries, keys, values = (mix(h, params[name]) for name in ("queries", "keys", "values"))
    return mix(attend(queries, keys, values), params["out"])


def _attention_products(at: Place) -> int:
    width, places = at.width, prod(at.places)
    return places * (2 * rank(width) * width + 2 * width * width) + places * places * (rank(width) + width)


def kernel(at: Place, size: int) -> tuple[int, ...]:
    """A kernel of ``size`` along each axis."""
    return (size,) * len(at.places)


def _depthwise_specs(at: Place) -> list[Spec]:
    return [weight("filter", (at.width, 1, *kernel(at, 5))), last("out", (at.width, at.width)), Spec("bias", (at.width,))]


def _depthwise(params: Mapping[str, Tensor], h: Tensor, at: Place) -> Tensor:
    filtered = convolve(h, params["filter"])
    return mix(functional.relu(filtered), params["out"], params["bias"])


def _light_specs(at: Place) -> list[Spec]:
    half = max(1, at.width // 2)
    return [weight("in", (half, at.width, *kernel(at, 3))), last("out", (at.width, half)), Spec("bias", (at.width,))]


def _light(params: Mapping[str, Tensor], h: Tensor, at: Place) -> Tensor:
    return mix(functional.relu(convolve(h, params["in"])), params["out"], params["bias"])


def _heavy_specs(at: Place) -> list[Spec]:
    wide, size = 2 * at.width, kernel(at, 3)
    return [
        weight("in", (wide, at.width, *size)),
        Spec("in_bias", (wide,)),
        last("out", (at.width, wide, *size)),
        Spec("bias", (at.width,)),
    ]


def _heavy(params: Mapping[str, Tensor], h: Tensor, at: Place) -> Tensor:
    inner = functional.relu(convolve(h, params["in"], params["in_bias"]))
    return convolve(inner, params["out"], params["bias"])


def _everywhere(specs: Callable[[Place], list[Spec]]) -> Callable[[Place], int]:
    """Products of layers whose every weight is used once at every place."""
    return lambda at: prod(at.places) * sum(spec.size for spec in specs(at) if len(spec.shape) > 1)


BLUEPRINTS: Mapping[str, Blueprint] = {
    "norm": Blueprint((0, 1, 2), _norm_specs, _norm, lambda at: 0),
    "attention": Blueprint((1, 2), _attention_specs, _attention, _attention_products),
    "depthwise": Blueprint((1, 2), _depthwise_specs, _depthwise, _everywhere(_depthwise_specs)),
    "conv_light": Blueprint((1, 2), _light_specs, _light, _everywhere(_light_specs)),
    "conv_heavy": Blueprint((1, 2), _heavy_specs, _heavy, _everywhere(_heavy_specs)),
    "mlp": Blueprint((0, 1, 2), _mlp_specs, _mlp, _everywhere(_mlp_specs)),
    "low_rank": Blueprint((0, 1, 2), _low_rank_specs, _low_rank, _everywhere(_low_rank_specs)),
}


def holds(axes: int) -> list[str]:
    """The blueprints that a host can hold whose states have ``axes`` axes of places."""
    return [name for name, blueprint in BLUEPRINTS.items() if axes in blueprint.axes]
