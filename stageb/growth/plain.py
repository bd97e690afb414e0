"""Grown networks as plain modules of torch, which need nothing else: ``export`` copies the source of those it needs.

Each computes what ``kinds`` and ``blueprints`` compute with stacked tensors. A state is (N, C, *places), of as many ``axes``
of places as its host has: none, one or two.
"""

# mypy: disable-error-code="no-any-return, operator"
# To mypy, calling a module gives Any; the casts that would tell it otherwise have no place in files that users are given.

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

from stageb.growth.blueprints import attend


def mix(axes: int, inputs: int, outputs: int, bias: bool = True) -> nn.Module:
    """A linear map of the features at every place."""
    if axes == 0:
        return nn.Linear(inputs, outputs, bias)
    return nn.Conv1d(inputs, outputs, 1, bias=bias) if axes == 1 else nn.Conv2d(inputs, outputs, 1, bias=bias)


def convolution(axes: int, inputs: int, outputs: int, kernel: int, **more: int) -> nn.Module:
    """Of an odd kernel, padded with zeros."""
    kind = nn.Conv1d if axes == 1 else nn.Conv2d
    return kind(inputs, outputs, kernel, padding=kernel // 2, **more)  # type: ignore[arg-type]


class PlaceNorm(nn.LayerNorm):
    """Normalises the features of each place alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class Norm(nn.Module):
    """A seed: what normalising would change."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(math.gcd(width, 4), width) if axes else PlaceNorm(width)

    def forward(self, h: Tensor) -> Tensor:
        return self.norm(h)


class Mlp(nn.Module):
    """A seed of two layers."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        self.inner, self.outer = mix(axes, width, width), mix(axes, width, width)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.inner(h)))


class LowRank(nn.Module):
    """A seed that is a linear map of low rank."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        rank = max(1, width // 4)
        self.inner, self.outer = mix(axes, width, rank, bias=False), mix(axes, rank, width, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(self.inner(h))


class Attention(nn.Module):
    """A seed of one head of attention."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        rank = max(1, width // 4)
        self.queries, self.keys = mix(axes, width, rank, bias=False), mix(axes, width, rank, bias=False)
        self.values, self.outer = mix(axes, width, width, bias=False), mix(axes, width, width, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(attend(self.queries(h), self.keys(h), self.values(h)))


class Depthwise(nn.Module):
    """A seed: each feature is convolved for itself, and then they are mixed."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        kind = {"groups": width, "bias": False}
        self.filter = convolution(axes, width, width, 5, **kind)
        self.outer = mix(axes, width, width)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.filter(h)))


class ConvLight(nn.Module):
    """A seed: a convolution to half as many features, and back."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        half = max(1, width // 2)
        self.inner = convolution(axes, width, half, 3, bias=False)
        self.outer = mix(axes, half, width)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.inner(h)))


class ConvHeavy(nn.Module):
    """A seed of two convolutions, with twice as many features between them."""

    def __init__(self, axes: int, width: int) -> None:
        super().__init__()
        self.inner = convolution(axes, width, 2 * width, 3)
        self.outer = convolution(axes, 2 * width, width, 3)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.inner(h)))


class Network(nn.Module):
    """A stem, two bodies and a head; after the stem and after each body a seed, if there is one, adds what it makes of the
    state."""

    def __init__(self, early: nn.Module | None, mid: nn.Module | None, late: nn.Module | None) -> None:
        super().__init__()
        self.early, self.mid, self.late = early, mid, late

    def forward(self, x: Tensor) -> Tensor:
        h = self.read(x)
        h = h if self.early is None else h + self.early(h)
        h = self.body1(h)
        h = h if self.mid is None else h + self.mid(h)
        h = self.body2(h)
        h = h if self.late is None else h + self.late(h)
        return self.answer(h)

    def read(self, x: Tensor) -> Tensor:
        """The first state."""
        raise NotImplementedError

    def answer(self, h: Tensor) -> Tensor:
        """Logits."""
        raise NotImplementedError


class Dense(nn.Sequential):
    """A linear map and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Linear(inputs, outputs), nn.ReLU())


class DenseNetwork(Network):
    """Reads every example flat."""

    def __init__(self, numbers: int, width: int, classes: int, **seeds: nn.Module | None) -> None:
        super().__init__(**seeds)
        self.stem, self.body1, self.body2 = Dense(numbers, width), Dense(width, width), Dense(width, width)
        self.head = nn.Linear(width, classes)

    def read(self, x: Tensor) -> Tensor:
        return self.stem(x.flatten(1))

    def answer(self, h: Tensor) -> Tensor:
        return self.head(h)


class Halving(nn.Sequential):
    """A convolution of stride 2, group norm and ReLU."""

    def __init__(self, axes: int, inputs: int, width: int) -> None:
        norm = nn.GroupNorm(math.gcd(width, 4), width)
        super().__init__(convolution(axes, inputs, width, 3, stride=2, bias=False), norm, nn.ReLU())


class ConvNetwork(Network):
    """Reads (N, places, features) of one axis, or (N, rows, columns, channels) of two; an image of one axis by its rows."""

    def __init__(self, axes: int, features: int, places: int, width: int, classes: int, **seeds: nn.Module | None) -> None:
        super().__init__(**seeds)
        self.axes = axes
        self.stem, self.body1, self.body2 = (Halving(axes, each, width) for each in (features, width, width))
        self.head = nn.Linear(width * places, classes)

    def read(self, x: Tensor) -> Tensor:
        return self.stem(x.flatten(2).transpose(1, 2) if self.axes == 1 else x.movedim(3, 1))

    def answer(self, h: Tensor) -> Tensor:
        return self.head(h.flatten(1))
