"""Convolutions of many networks at once: what ``torch.func.vmap`` makes of torch's own, beside ways to unfold and multiply.

``stageb/growth/layers.py`` takes the first; ``bin/bench growth conv`` measures them all on the device at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

Form = Callable[[Tensor, Tensor], Tensor]
"""(N, C, *places), (O, C, *kernel) to (N, O, *places): of odd kernels, padded with zeros."""


def grouped(x: Tensor, weight: Tensor) -> Tensor:
    """Torch's own; under ``vmap`` a grouped convolution, a group for each network."""
    convolve = functional.conv1d if x.dim() == 3 else functional.conv2d
    return convolve(x, weight, padding=weight.shape[2] // 2)


def stacked(x: Tensor, weight: Tensor) -> Tensor:
    """One product, with what every place sees stacked behind its features."""
    columns = torch.stack(_taps(x, weight), 2).flatten(1, 2).flatten(2)  # (N, C * taps, places)
    mixed = torch.einsum("ok,nkp->nop", weight.flatten(1), columns)
    return mixed.view(*mixed.shape[:2], *x.shape[2:])


def shifted(x: Tensor, weight: Tensor) -> Tensor:
    """A product for every tap of the kernel, summed."""
    pairs = zip(_taps(x, weight), weight.flatten(2).unbind(2), strict=True)
    return torch.stack([torch.einsum("oc,nc...->no...", each, tap) for tap, each in pairs]).sum(0)


def features_last(x: Tensor, weight: Tensor) -> Tensor:
    """One product of two plain matrices, what every place sees in a row."""
    rows = torch.cat([tap.movedim(1, -1) for tap in _taps(x, weight)], -1)  # (N, *places, taps * C)
    mixed = rows.reshape(-1, rows.shape[-1]) @ weight.flatten(2).permute(2, 1, 0).flatten(0, 1)
    return mixed.view(*rows.shape[:-1], -1).movedim(-1, 1)


FORMS: dict[str, Form] = {
    "grouped": grouped,
    "stacked, multiplied": stacked,
    "shifted, multiplied": shifted,
    "features last, multiplied": features_last,
}


def _taps(x: Tensor, weight: Tensor) -> list[Tensor]:
    """``x`` as each tap of the kernel sees it."""
    reach = weight.shape[2] // 2
    padded = functional.pad(x, (reach, reach) * (x.dim() - 2))
    starts = product(*(range(size) for size in weight.shape[2:]))
    found = []
    for start in starts:
        tap = padded
        for axis, (begin, size) in enumerate(zip(start, x.shape[2:], strict=True), start=2):
            tap = tap.narrow(axis, begin, size)
        found.append(tap)
    return found


def stepper(form: Form | None, networks: int, examples: int, shape: tuple[int, ...], device: str) -> Callable[[], object]:
    """A call that takes the gradient of ``networks`` networks of three convolutions; one by one where ``form`` is None."""
    generator = torch.Generator().manual_seed(0)
    kernel = (3,) * (len(shape) - 1)
    weights = [torch.randn(networks, shape[0], shape[0], *kernel, generator=generator).to(device) * 0.1 for _ in range(3)]
    x = torch.randn(networks, examples, *shape, generator=generator).to(device)

    def loss(weights: list[Tensor], x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.relu((form or grouped)(x, weight)) + x
        return x.square().mean()

    if form:
        batched = vmap(grad(loss))
        return lambda: batched(weights, x)
    leaves = [[each.clone().requires_grad_() for each in network] for network in zip(*weights, strict=True)]
    return lambda: [torch.autograd.grad(loss(network, each), network) for network, each in zip(leaves, x, strict=True)]
