"""Examples to learn from: three sets that share no example.

What is fit, validation and test, named streams decide, the same for every run: scores of different runs are of one test set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.errors import InputError


@dataclass(frozen=True)
class Split:
    """One of the three sets."""

    inputs: Tensor  # float32 (N, *shape)
    targets: Tensor  # int64 (N,); stacked over members: (B, N)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs (B, n, *shape) and targets (B, n) of ``indices``, int64 (B, n); of sets stacked over members."""
        inputs = self.inputs.index_select(0, indices.flatten()).view(*indices.shape, *self.inputs.shape[1:])
        members = torch.arange(len(indices), device=indices.device)[:, None]
        return inputs, self.targets[members, indices]

    def part(self, places: slice) -> tuple[Tensor, Tensor]:
        """Inputs, (n, *shape) for all members, and targets (B, n) of some; of stacked sets."""
        return self.inputs[places], self.targets[:, places]

    def stacked(self, members: int) -> Split:
        """The same targets for each of ``members``; nothing is copied."""
        return Split(self.inputs, self.targets.expand(members, *self.targets.shape))

    def to(self, device: torch.device | str) -> Split:
        """The same on ``device``."""
        return Split(self.inputs.to(device), self.targets.to(device))

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Sets:
    """All that there is to learn from and to be judged by."""

    fit: Split
    validation: Split
    test: Split

    def to(self, device: torch.device | str) -> Sets:
        """The same on ``device``."""
        return Sets(self.fit.to(device), self.validation.to(device), self.test.to(device))

    def stacked(self, members: int) -> Sets:
        """The same targets for each of ``members``."""
        return Sets(*(each.stacked(members) for each in (self.fit, self.validation, self.test)))


def cut(inputs: Tensor, targets: Tensor, sizes: tuple[int, int], name: str) -> Sets:
    """Examples in an order drawn from the stream ``name``; ``sizes`` say how many are for validation and for test."""
    order = seeds.shuffled(range(len(inputs)), seeds.stream("growth", "split", name))
    held, test = sizes
    parts = [order[held + test :], order[:held], order[held : held + test]]
    return Sets(*(Split(inputs[part].contiguous(), targets[part].contiguous()) for part in parts))


def gaussian(count: int, shape: tuple[int, ...], name: str) -> Tensor:
    """Standard normal float32 numbers (count, *shape) of the stream ``name``, by the inverse of their distribution."""
    keys = torch.tensor([draws.signed(seeds.stream("growth", "inputs", name))])
    places = torch.arange(count * int(np.prod(shape)))
    uniforms = draws.uniforms(keys, places).clamp(1e-12, 1 - 1e-12)
    normal: Tensor = torch.special.erfinv(2 * uniforms - 1) * 2**0.5
    return normal.float().view(count, *shape)


def digits() -> Sets:
    """scikit-learn's 1,797 digits of 8 x 8: the test set of Alpaydin and Kaynak's of 1998 (UCI, CC BY 4.0). Raises
    ``InputError`` where scikit-learn is missing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise InputError(f"task digits needs the package {error.name}: install the extra growth, stageb[growth]") from error
    found = load_digits()
    inputs = torch.from_numpy(found.images).float()[..., None] / 8 - 1
    return cut(inputs, torch.from_numpy(found.target).long(), (300, 300), "digits")
