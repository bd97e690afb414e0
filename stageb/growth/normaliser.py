"""Running moments of observations, by which a policy's inputs come to mean 0 and deviation 1.

They are part of what is learnt: handed out with the policy, and kept at every commit. While a round is played and learnt
from, they stay as they are, so that the policy that learns is the very one that played.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAR = 10.0  # deviations, beyond which a number is held
LEAST_VARIANCE = 1e-4  # of bounded numbers: what hardly moves is not blown up


class Normaliser:
    """Of numbers in rows of ``size``."""

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = torch.zeros(size, dtype=torch.float64)
        self.squares = torch.zeros(size, dtype=torch.float64)  # sum of squared differences from the mean

    def take(self, rows: Tensor) -> None:
        """Count ``rows``, floats (..., size): Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance"."""
        rows = rows.detach().cpu().double().flatten(0, -2)
        if not len(rows):
            return
        count, mean = self.count + len(rows), rows.mean(0)
        apart = mean - self.mean
        self.squares = self.squares + (rows - mean).square().sum(0) + apart.square() * self.count * len(rows) / count
        self.mean = self.mean + apart * len(rows) / count
        self.count = count

    def __call__(self, rows: Tensor) -> Tensor:
        """``rows``, floats (..., size), with mean 0 and deviation 1: float32. Before anything was counted, as they are."""
        if not self.count:
            return rows.float()
        deviation = (self.squares / self.count).clamp(min=LEAST_VARIANCE).sqrt()
        return ((rows.double() - self.mean) / deviation).clamp(-FAR, FAR).float()

    def state(self) -> dict[str, Tensor]:
        """All that it knows."""
        return {"count": torch.tensor(self.count), "mean": self.mean, "squares": self.squares}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from what ``state`` gave. Raises ``RuntimeError`` where it is of another size."""
        if {state["mean"].shape, state["squares"].shape} != {self.mean.shape}:
            raise RuntimeError("the normaliser is of another size")
        self.count, self.mean, self.squares = int(state["count"]), state["mean"].clone(), state["squares"].clone()
