"""Grown networks as plain modules of torch, which need nothing else: ``export`` copies the source of those it needs.

Each computes what ``kinds`` and ``blueprints`` compute with stacked tensors. A state is (N, C, *places), of as many ``axes``
of places as its host has: none, one or two.
"""

# mypy: disable-error-code="no-any-return, operator"
# To mypy, calling a module gives Any; the casts that would tell it otherwise have no place in files that users are given.

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from stageb.growth.layers import attend


def mix(axes: int, inputs: int, outputs: int, bias: bool = True) -> nn.Module:
    """A linear map of the features at every place."""
    if axes == 0:
        return nn.Linear(inputs, outputs, bias)
    return nn.Conv1d(inputs, outputs, 1, bias=bias) if axes == 1 else nn.Conv2d(inputs, outputs, 1, bias=bias)


def convolution(axes: int, inputs: int, outputs: int, kernel: int, **more: int) -> nn.Module:
    """Of an odd kernel, padded with zeros."""
    kind = nn.Conv1d if axes == 1 else nn.Conv2d
    return kind(inputs, outputs, kernel, padding=kernel // 2, **more)  # type: ignore[arg-type]


class Causal(nn.Conv1d):
    """A convolution in which no place sees a later one."""

    def __init__(self, inputs: int, outputs: int, kernel: int, **more: int) -> None:
        super().__init__(inputs, outputs, kernel, **more)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(functional.pad(x, (self.kernel_size[0] - 1, 0)))


class PlaceNorm(nn.LayerNorm):
    """Normalises the features of each place alone."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


class Norm(nn.Module):
    """A seed: what normalising would change."""

    def __init__(self, axes: int, width: int, causal: bool = False) -> None:
        super().__init__()
        by_place = causal or not axes
        self.norm = PlaceNorm(width) if by_place else nn.GroupNorm(math.gcd(width, 4), width)

    def forward(self, h: Tensor) -> Tensor:
        return self.norm(h)


class Mlp(nn.Module):
    """A seed of two layers."""

    def __init__(self, axes: int, width: int, causal: bool = False) -> None:
        super().__init__()
        self.inner, self.outer = mix(axes, width, width), mix(axes, width, width)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.inner(h)))


class LowRank(nn.Module):
    """A seed that is a linear map of low rank."""

    def __init__(self, axes: int, width: int, causal: bool = False) -> None:
        super().__init__()
        rank = max(1, width // 4)
        self.inner, self.outer = mix(axes, width, rank, bias=False), mix(axes, rank, width, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(self.inner(h))


class Attention(nn.Module):
    """A seed of one head of attention."""

    def __init__(self, axes: int, width: int, causal: bool = False) -> None:
        super().__init__()
        rank, self.causal = max(1, width // 4), causal
        self.queries, self.keys = mix(axes, width, rank, bias=False), mix(axes, width, rank, bias=False)
        self.values, self.outer = mix(axes, width, width, bias=False), mix(axes, width, width, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(attend(self.queries(h), self.keys(h), self.values(h), causal=self.causal))


class Depthwise(nn.Module):
    """A seed: each feature is convolved for itself, and then they are mixed."""

    def __init__(self, axes: int, width: int, causal: bool = False) -> None:
        super().__init__()
        kind = {"groups": width, "bias": False}
        self.filter = Causal(width, width, 5, **kind) if causal else convolution(axes, width, width, 5, **kind)
        self.outer = mix(axes, width, width)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.filter(h)))


class ConvLight(nn.Module):
    """A seed: a convolution to half as many features, and back."""

    def __init__(self, axes: int, width: int, causal: bool = False) -> None:
        super().__init__()
        half = max(1, width // 2)
        self.inner = Causal(width, half, 3, bias=False) if causal else convolution(axes, width, half, 3, bias=False)
        self.outer = mix(axes, half, width)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.inner(h)))


class ConvHeavy(nn.Module):
    """A seed of two convolutions, with twice as many features between them."""

    def __init__(self, axes: int, width: int, causal: bool = False) -> None:
        super().__init__()
        self.inner = Causal(width, 2 * width, 3) if causal else convolution(axes, width, 2 * width, 3)
        self.outer = Causal(2 * width, width, 3) if causal else convolution(axes, 2 * width, width, 3)

    def forward(self, h: Tensor) -> Tensor:
        return self.outer(functional.relu(self.inner(h)))


class Gated(nn.Module):
    """A seed, times a gate that is trained."""

    def __init__(self, axes: int, width: int, seed: nn.Module) -> None:
        super().__init__()
        self.seed, self.gate = seed, mix(axes, width, 1)

    def forward(self, h: Tensor) -> Tensor:
        return self.seed(h) * self.gate(h).sigmoid()


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


class Transformer(nn.Module):
    """A block of a transformer, norms first, of two heads."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.causal, self.first, self.second = causal, PlaceNorm(width), PlaceNorm(width)
        self.queries, self.keys = mix(1, width, width, bias=False), mix(1, width, width, bias=False)
        self.values, self.mixed = mix(1, width, width, bias=False), mix(1, width, width, bias=False)
        self.inner, self.outer = mix(1, width, 2 * width), mix(1, 2 * width, width)

    def forward(self, h: Tensor) -> Tensor:
        normed = self.first(h)
        h = h + self.mixed(attend(self.queries(normed), self.keys(normed), self.values(normed), 2, self.causal))
        return h + self.outer(functional.relu(self.inner(self.second(h))))


class TransformerNetwork(Network):
    """Reads (N, places, features) and says one thing of it; of tokens, (N, places), it tells the next one at every place."""

    def __init__(
        self, features: int, vocabulary: int, places: int, width: int, classes: int, **seeds: nn.Module | None
    ) -> None:
        super().__init__(**seeds)
        self.tokens = vocabulary > 0
        self.stem = nn.Embedding(vocabulary, width) if self.tokens else nn.Linear(features, width)
        self.positions = nn.Parameter(torch.zeros(width, places))
        self.body1, self.body2 = Transformer(width, self.tokens), Transformer(width, self.tokens)
        self.end, self.head = PlaceNorm(width), nn.Linear(width, classes)

    def read(self, x: Tensor) -> Tensor:
        first = self.stem(x if self.tokens else x.flatten(2)).transpose(1, 2)
        return first + self.positions[:, : x.shape[1]]

    def answer(self, h: Tensor) -> Tensor:
        h = self.end(h).transpose(1, 2)
        return self.head(h if self.tokens else h.mean(1))
