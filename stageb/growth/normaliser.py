"""Running mean and variance of observations, which normalise a policy's inputs to mean 0 and standard deviation 1.

They are part of the learnt state: distributed with the policy, and saved with every commit. They stay fixed while a round is
played and learnt from, so that the policy that learns is the one that played.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAR = 10.0  # standard deviations at which normalised numbers are clipped
LEAST_VARIANCE = 1e-4  # keeps numbers that hardly vary from being amplified


class Normaliser:
    """Normalises rows of ``size`` numbers."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64)
        self.squares = torch.zeros(size, dtype=torch.float64)  # sum of squared differences from the mean

    def take(self, rows: Tensor) -> None:
        """Update the moments with ``rows``, floats (..., size), as in Chan, Golub & LeVeque 1983, "Algorithms for computing
        the sample variance"."""
        rows = rows.detach().cpu().double().flatten(0, -2)
        if not len(rows):
            return
        count, mean = self.count + len(rows), rows.mean(0)
        apart = mean - self.mean
        self.squares = self.squares + (rows - mean).square().sum(0) + apart.square() * self.count * len(rows) / count
        self.mean = self.mean + apart * len(rows) / count
        self.count = count

    def __call__(self, rows: Tensor) -> Tensor:
        """``rows``, floats (..., size), normalised and clipped, as float32; unchanged before the first update."""
        if not self.count:
            return rows.float()
        deviation = (self.squares / self.count).clamp(min=LEAST_VARIANCE).sqrt()
        return ((rows.double() - self.mean) / deviation).clamp(-FAR, FAR).float()

    def state(self) -> dict[str, Tensor]:
        """The state for ``load``."""
        return {"count": torch.tensor(self.count), "mean": self.mean, "squares": self.squares}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore the result of ``state``. Raises ``RuntimeError`` if it has another size."""
        if {state["mean"].shape, state["squares"].shape} != {self.mean.shape}:
            raise RuntimeError("the normaliser is of another size")
        self.count, self.mean, self.squares = int(state["count"]), state["mean"].clone(), state["squares"].clone()
