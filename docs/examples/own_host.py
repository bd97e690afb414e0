"""A host of your own: dense layers with a shortcut around every body, as ``host.make: own_host:build``.

Parameters are named by ``specs`` and handed to ``stem``, ``body`` and ``head``, which are functions of one network's
tensors. Many networks run at once by ``torch.func.vmap``, so keep to torch's functions: no modules, no buffers,
nothing in place.
"""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from stageb.growth.blueprints import Spec, weight
from stageb.growth.kinds import Form, HostKind

Params = Mapping[str, Tensor]


def places(form: Form, slot: int) -> tuple[int, ...]:
    """Of the state at a slot, (N, width, *places): none. Seeds that want places cannot stand in such a host."""
    return ()


def specs(form: Form, width: int) -> list[Spec]:
    """Tensors of parameters, and how they begin: ``weight`` draws as He et al. 2015 do, a plain ``Spec`` is zero."""
    square = (width, width)
    layers = [weight("stem", (width, prod(form.shape))), Spec("stem_bias", (width,))]
    return [*layers, weight("body1", square, 1.0), weight("body2", square, 1.0), weight("head", (form.classes, width), 1.0)]


def stem(form: Form, params: Params, x: Tensor) -> Tensor:
    """Examples (N, *form.shape) to the first state, (N, width)."""
    return torch.relu(x.flatten(1) @ params["stem"].T + params["stem_bias"])


def body(form: Form, number: int, params: Params, h: Tensor) -> Tensor:
    """The state behind body 1 or 2. A slot follows the stem and each body."""
    return h + torch.tanh(h @ params[f"body{number}"].T)


def head(form: Form, params: Params, h: Tensor) -> Tensor:
    """Logits (N, classes)."""
    return h @ params["head"].T


def products(form: Form, width: int) -> tuple[int, int]:
    """Multiplications for one example, by which FLOPs are counted: of the stem, and of all that comes later."""
    return prod(form.shape) * width, 2 * width * width + width * form.classes


def build(form: Form) -> HostKind:
    """What ``host.make`` names. ``form`` says what examples look like: ``shape``, ``classes``."""
    return HostKind(places, specs, stem, body, head, products)
