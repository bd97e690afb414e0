"""Seed modules, and the layers that they and hosts are made of.

A seed is a residual branch: a slot hands on ``h + alpha * f(h)``. With ``seed(h) = h + f(h)`` that
is ``h + alpha * (seed(h) - h)``, a blend of the host's own state with the seed's, so both views are
one formula, and at alpha 0 the host's state stands untouched. The last layer of ``f`` begins at
zero (as in Zhang et al. 2019, "Fixup initialization"): a germinated seed changes nothing, bit for
bit, and still learns, since the last layer's gradient does not vanish with its weights. The seeds
of teachers begin with all weights drawn.

A host can hold what makes sense for its states (``holds``): states without places cannot convolve
or attend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

# Layers as functions of one network's tensors, written to be batched over networks by
# ``torch.func.vmap``.
#
# A hidden state is (N, C, *places): N examples, C features, and no, one or two axes of places.
# ``vmap`` turns a convolution into a grouped one, a group for each network. On a CPU that won
# against every way of unfolding and multiplying that was tried, by 1.6 to 7 times; on an H200, with
# 256 networks, one product of what every place sees won by 1.2 to 7.7 times. So ``convolve`` takes
# the form that suits the device.


def mix(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A linear map of the features at every place: (N, I, *places), (O, I), (O,) to (N, O,
    *places)."""
    if x.dim() == 2:
        mixed = x @ weight.T
        return mixed if bias is None else mixed + bias
    return convolve(x, weight.reshape(*weight.shape, *([1] * (x.dim() - 2))), bias)


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: int = 1) -> Tensor:
    """Of odd kernels, padded with zeros to as many places: (N, I, *places), (O, I / groups,
    *kernel), (O,) to (N, O, *places). How many groups there are, the shapes say."""
    padding = weight.shape[2] // 2
    if x.is_cuda:
        return convolve_as_product(
            functional.pad(x, (padding, padding) * (x.dim() - 2)), weight, bias, stride
        )
    function = functional.conv1d if x.dim() == 3 else functional.conv2d
    return function(x, weight, bias, stride, padding, groups=x.shape[1] // weight.shape[1])


def convolve_as_product(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    """The same of what is padded already, in products: of all that a place sees, or, where each
    feature has a kernel of its own, of feature and tap."""
    taps = []
    for start in product(*(range(size) for size in weight.shape[2:])):
        tap = x
        for axis, (begin, size) in enumerate(zip(start, weight.shape[2:], strict=True), start=2):
            tap = tap.narrow(axis, begin, x.shape[axis] - size + 1)
        taps.append(tap[..., ::stride] if x.dim() == 3 else tap[..., ::stride, ::stride])
    flat = weight.flatten(2)  # (O, I / groups, taps)
    if weight.shape[1] == x.shape[1]:
        seen = torch.cat([tap.movedim(1, -1) for tap in taps], -1)  # (N, *places, taps * I)
        mixed = (seen @ flat.movedim(2, 1).flatten(1).T).movedim(-1, 1)
    else:  # as many groups as features
        ones = [1] * (x.dim() - 2)
        mixed = torch.stack(
            [tap * flat[:, 0, number].view(-1, *ones) for number, tap in enumerate(taps)]
        ).sum(0)
    return mixed if bias is None else mixed + bias.view(-1, *[1] * (x.dim() - 2))


def group_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Wu and He 2018, "Group normalization": over the places and the features of a group, of four
    groups where C allows."""
    # vmap knows it of three axes
    flat = functional.group_norm(x.flatten(2), math.gcd(x.shape[1], 4), gain, bias)
    return flat.view(x.shape)


def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """Ba et al. 2016, "Layer normalization": over the features of each place alone."""
    normed = functional.layer_norm(x.movedim(1, -1), (x.shape[1],), gain, bias)
    return normed.movedim(-1, 1)


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Dot-product attention (Vaswani et al. 2017, section 3.2) of every place to every place.

    ``queries`` and ``keys`` (N, D, *places), ``values`` (N, E, *places); the answer has the shape
    of the values.
    """
    q, k, v = (each.flatten(2) for each in (queries, keys, values))
    scores = q.transpose(1, 2) @ k / q.shape[1] ** 0.5
    mixed: Tensor = v @ scores.softmax(-1).transpose(1, 2)
    return mixed.reshape(values.shape)


class _Guard(torch.autograd.Function):
    """The identity; non-finite gradients become zero in the backward pass."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.nan_to_num(gradients[0], 0.0, 0.0, 0.0)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor) -> tuple[Tensor, int | None]:
        return guard_gradient(x), in_dims[0]


def guard_gradient(x: Tensor) -> Tensor:
    """``x``, with non-finite gradients replaced by zero in the backward pass."""
    return cast(Tensor, _Guard.apply(x))  # type: ignore[no-untyped-call]


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
    """Weights (O, I, ...): uniform with variance ``gain`` / fan-in (He et al. 2015, equation 10,
    for 2)."""
    return Spec(name, shape, (3.0 * gain / prod(shape[1:])) ** 0.5)


def last(name: str, shape: tuple[int, ...]) -> Spec:
    """Weights of a branch's last layer: zero, but in teachers."""
    return Spec(name, shape, teaching=TEACHING * (3.0 / prod(shape[1:])) ** 0.5)


@dataclass(frozen=True, slots=True)
class SeedPlace:
    """The shape of the slot that a seed stands in."""

    width: int  # features
    places: tuple[int, ...]  # along each axis


@dataclass(frozen=True, slots=True)
class Blueprint:
    """One kind of seed."""

    axes: tuple[int, ...]  # how many axes of places states may have
    specs: Callable[[SeedPlace], list[Spec]]
    # f: (N, C, *places) to the same
    branch: Callable[[Mapping[str, Tensor], Tensor, SeedPlace], Tensor]
    products: Callable[[SeedPlace], int]  # multiplications that f takes for one example


def _norm_specs(at: SeedPlace) -> list[Spec]:
    return [
        Spec("gain", (at.width,), teaching=2.0 * TEACHING),
        Spec("bias", (at.width,), teaching=TEACHING),
    ]


def _norm(params: Mapping[str, Tensor], h: Tensor, at: SeedPlace) -> Tensor:
    norm = group_norm if at.places else layer_norm
    return norm(h, params["gain"], params["bias"])


def _mlp_specs(at: SeedPlace) -> list[Spec]:
    inner = [weight("in", (at.width, at.width)), Spec("in_bias", (at.width,), teaching=TEACHING)]
    return [*inner, last("out", (at.width, at.width)), Spec("bias", (at.width,))]


def _mlp(params: Mapping[str, Tensor], h: Tensor, at: SeedPlace) -> Tensor:
    return mix(
        functional.relu(mix(h, params["in"], params["in_bias"])), params["out"], params["bias"]
    )


def narrow_width(width: int) -> int:
    """The rank of low-rank maps, and the width of attention's queries and keys."""
    return max(1, width // 4)


def _low_rank_specs(at: SeedPlace) -> list[Spec]:
    return [
        weight("in", (narrow_width(at.width), at.width), 1.0),
        last("out", (at.width, narrow_width(at.width))),
    ]


def _low_rank(params: Mapping[str, Tensor], h: Tensor, at: SeedPlace) -> Tensor:
    return mix(mix(h, params["in"]), params["out"])


def _attention_specs(at: SeedPlace) -> list[Spec]:
    width = at.width
    narrow = [weight(name, (narrow_width(width), width), 1.0) for name in ("queries", "keys")]
    return [*narrow, weight("values", (width, width), 1.0), last("out", (width, width))]


def _attention(params: Mapping[str, Tensor], h: Tensor, at: SeedPlace) -> Tensor:
    queries, keys, values = (mix(h, params[name]) for name in ("queries", "keys", "values"))
    return mix(attend(queries, keys, values), params["out"])


def _attention_products(at: SeedPlace) -> int:
    width, places = at.width, prod(at.places)
    return places * (2 * narrow_width(width) * width + 2 * width * width) + places * places * (
        narrow_width(width) + width
    )


def kernel(at: SeedPlace, size: int) -> tuple[int, ...]:
    """A kernel of ``size`` along each axis."""
    return (size,) * len(at.places)


def _depthwise_specs(at: SeedPlace) -> list[Spec]:
    return [
        weight("filter", (at.width, 1, *kernel(at, 5))),
        last("out", (at.width, at.width)),
        Spec("bias", (at.width,)),
    ]


def _depthwise(params: Mapping[str, Tensor], h: Tensor, at: SeedPlace) -> Tensor:
    filtered = convolve(h, params["filter"])
    return mix(functional.relu(filtered), params["out"], params["bias"])


def _light_specs(at: SeedPlace) -> list[Spec]:
    half = max(1, at.width // 2)
    return [
        weight("in", (half, at.width, *kernel(at, 3))),
        last("out", (at.width, half)),
        Spec("bias", (at.width,)),
    ]


def _light(params: Mapping[str, Tensor], h: Tensor, at: SeedPlace) -> Tensor:
    return mix(functional.relu(convolve(h, params["in"])), params["out"], params["bias"])


def _count_products(specs: Callable[[SeedPlace], list[Spec]]) -> Callable[[SeedPlace], int]:
    """Products of layers whose every weight is used once at every place."""
    return lambda at: prod(at.places) * sum(spec.size for spec in specs(at) if len(spec.shape) > 1)


BLUEPRINTS: Mapping[str, Blueprint] = {
    "norm": Blueprint((0, 1, 2), _norm_specs, _norm, lambda at: 0),
    "attention": Blueprint((1, 2), _attention_specs, _attention, _attention_products),
    "depthwise": Blueprint((1, 2), _depthwise_specs, _depthwise, _count_products(_depthwise_specs)),
    "conv_light": Blueprint((1, 2), _light_specs, _light, _count_products(_light_specs)),
    "mlp": Blueprint((0, 1, 2), _mlp_specs, _mlp, _count_products(_mlp_specs)),
    "low_rank": Blueprint((0, 1, 2), _low_rank_specs, _low_rank, _count_products(_low_rank_specs)),
}


def holds(axes: int) -> list[str]:
    """The blueprints that a host can hold whose states have ``axes`` axes of places."""
    return [name for name, blueprint in BLUEPRINTS.items() if axes in blueprint.axes]
