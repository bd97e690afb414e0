"""The three kinds of hosts: a stem, two bodies and a head, with a slot after the stem and after each body.

Hidden states are (N, C, *places). Convolutional hosts normalise by groups: the running statistics of batch normalisation are
buffers, which do not survive ``vmap``. They halve their places at every convolution, so that most work lies in the stem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from torch import Tensor
from torch.nn import functional

from stageb.growth.blueprints import SeedPlace, Spec, convolve, group_norm, mix, weight

Params = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Form:
    """What the examples of a task look like, and what is said of them."""

    shape: tuple[int, ...]  # of one example: (features,), (places, features) or (rows, columns, channels)
    classes: int
    kinds: tuple[str, ...] = ("mlp", "conv1d", "conv2d")  # the hosts that can read them
    given: bool = False  # hosts are given as good as they can be without seeds, and do not learn themselves


@dataclass(frozen=True, slots=True)
class HostKind:
    """How a host of one kind is built. ``widths`` below is C."""

    places: Callable[[Form, int], tuple[int, ...]]  # at a slot, 0 to 2
    specs: Callable[[Form, int], list[Spec]]  # of stem, bodies and head, from the width
    stem: Callable[[Form, Params, Tensor], Tensor]
    body: Callable[[Form, int, Params, Tensor], Tensor]  # number 1 or 2
    head: Callable[[Form, Params, Tensor], Tensor]  # to logits, (N, classes)
    products: Callable[[Form, int], tuple[int, int]]  # multiplications for one example: of the stem, of all that comes later


def _affine(name: str, shape: tuple[int, ...], gain: float = 2.0) -> list[Spec]:
    return [weight(name, shape, gain), Spec(f"{name}_bias", shape[:1])]


def _normed(name: str, width: int) -> list[Spec]:
    return [Spec(f"{name}_gain", (width,), fill=1.0), Spec(f"{name}_shift", (width,))]


def _mix(params: Params, name: str, x: Tensor) -> Tensor:
    return mix(x, params[name], params[f"{name}_bias"])


# Dense layers. An example is read flat.


def _dense_specs(form: Form, width: int) -> list[Spec]:
    bodies = [spec for body in ("body1", "body2") for spec in _affine(body, (width, width))]
    return [*_affine("stem", (width, prod(form.shape))), *bodies, *_affine("head", (form.classes, width), 1.0)]


# Convolutions of stride 2, group norm, ReLU; the head reads every place for itself. A sequence has one axis, an image two;
# read by a host of one axis, an image is the sequence of its rows.

KERNEL, STRIDE = 3, 2


def _rows(form: Form) -> tuple[int, int]:
    """Places and features of an example, read as a sequence."""
    return form.shape[0], prod(form.shape[1:])


def _halved(places: int, times: int) -> int:
    for _ in range(times):
        places = -(-places // STRIDE)
    return places


def _places_1d(form: Form, slot: int) -> tuple[int, ...]:
    return (_halved(_rows(form)[0], slot + 1),)


def _places_2d(form: Form, slot: int) -> tuple[int, ...]:
    return tuple(_halved(side, slot + 1) for side in form.shape[:2])


def _conv_specs(form: Form, width: int, axes: int) -> list[Spec]:
    read = _rows(form)[1] if axes == 1 else form.shape[2]
    places = _places_1d(form, 2) if axes == 1 else _places_2d(form, 2)
    specs = []
    for name, before in (("stem", read), ("body1", width), ("body2", width)):
        specs += [weight(name, (width, before, *(KERNEL,) * axes)), *_normed(name, width)]
    return [*specs, *_affine("head", (form.classes, width * prod(places)), 1.0)]


def _conv(params: Params, name: str, x: Tensor) -> Tensor:
    convolved = convolve(x, params[name], stride=STRIDE)
    return functional.relu(group_norm(convolved, params[f"{name}_gain"], params[f"{name}_shift"]))


def _flat_head(form: Form, params: Params, h: Tensor) -> Tensor:
    return _mix(params, "head", h.flatten(1))


def _conv_products(form: Form, width: int, axes: int) -> tuple[int, int]:
    places = [_places_1d(form, slot) if axes == 1 else _places_2d(form, slot) for slot in range(3)]
    read = _rows(form)[1] if axes == 1 else form.shape[2]
    taps = KERNEL**axes * width
    later = taps * width * (prod(places[1]) + prod(places[2])) + width * prod(places[2]) * form.classes
    return taps * read * prod(places[0]), later


KINDS: Mapping[str, HostKind] = {
    "mlp": HostKind(
        lambda form, slot: (),
        _dense_specs,
        lambda form, params, x: functional.relu(_mix(params, "stem", x.flatten(1))),
        lambda form, number, params, h: functional.relu(_mix(params, f"body{number}", h)),
        _flat_head,
        lambda form, width: (prod(form.shape) * width, 2 * width * width + width * form.classes),
    ),
    "conv1d": HostKind(
        _places_1d,
        lambda form, width: _conv_specs(form, width, 1),
        lambda form, params, x: _conv(params, "stem", x.flatten(2).transpose(1, 2)),
        lambda form, number, params, h: _conv(params, f"body{number}", h),
        _flat_head,
        lambda form, width: _conv_products(form, width, 1),
    ),
    "conv2d": HostKind(
        _places_2d,
        lambda form, width: _conv_specs(form, width, 2),
        lambda form, params, x: _conv(params, "stem", x.movedim(3, 1)),
        lambda form, number, params, h: _conv(params, f"body{number}", h),
        _flat_head,
        lambda form, width: _conv_products(form, width, 2),
    ),
}


def make_place(kind: HostKind, form: Form, width: int, slot: int) -> SeedPlace:
    """What a seed must know of ``slot`` of such a host."""
    return SeedPlace(width, kind.places(form, slot))
