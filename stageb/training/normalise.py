"""Running moments of observations and rewards, equal on all ranks: a rank adds up its own, and all add up the sums.

They are taken up after an update has learnt from a rollout, never amid one, so what an agent was when it acted can be told.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

FAR = 10.0  # normalised numbers are clipped there, as in Huang et al. 2022
LEAST_VARIANCE = 1e-8

SumOverRanks = Callable[[Tensor], Tensor]


class RunningNorm(nn.Module):
    """Makes numbers of a shape have mean 0 and deviation 1; leaves them as they are before the first update. Its moments are
    part of an agent's weights, so that they are stored and compared with these."""

    moments: Tensor  # float64 (3, size): counts, sums, sums of squares

    def __init__(self, size: int, least_variance: float = LEAST_VARIANCE) -> None:
        """For rows of ``size`` numbers, of which none is amplified as if it varied by less than ``least_variance``."""
        super().__init__()
        self._least = least_variance
        self.register_buffer("moments", torch.zeros((3, size), dtype=torch.float64))

    def forward(self, rows: Tensor) -> Tensor:
        """Float32 (..., size), of the same."""
        count, total, squares = self.moments
        known = count > 0
        mean = total / count.clamp(min=1)
        variance = (squares / count.clamp(min=1) - mean.square()).clamp(min=self._least)
        found = ((rows - mean) * variance.rsqrt()).clamp(-FAR, FAR)
        return torch.where(known, found, rows.double()).float()

    @torch.no_grad()
    def take(self, rows: Tensor, sum_over_ranks: SumOverRanks = lambda mine: mine) -> None:
        """Take up what ranks saw: each its own rows, (..., size)."""
        seen = rows.double().flatten(0, -2)
        self.moments += sum_over_ranks(torch.stack([torch.ones_like(seen).sum(0), seen.sum(0), seen.square().sum(0)]))


class RewardScale:
    """Divides rewards by the deviation of discounted returns (Huang et al. 2022, of continuous actions: details 8 and 9).

    A return begins and ends with its episode, as in OpenAI's baselines and Stable-Baselines3. Gymnasium's NormalizeReward
    takes an episode's last reward for its return where it terminates, and where nothing resets by itself carries the
    return of one that was cut off into the next.
    """

    def __init__(self, gamma: float, games: int, device: str | torch.device) -> None:
        """For so many ``games`` of this rank."""
        self.gamma = gamma
        self.moments = torch.zeros(3, dtype=torch.float64, device=device)  # of all ranks: count, sum, sum of squares
        self.returns = torch.zeros(games, dtype=torch.float64, device=device)  # discounted, from an episode's start

    def scale(self, rewards: Tensor, done: Tensor, sum_over_ranks: SumOverRanks) -> Tensor:
        """``rewards``, float32 (T, N), scaled by all that was seen up to and with them. ``done`` is bool (T, N)."""
        found = torch.empty_like(rewards, dtype=torch.float64)
        for step in range(len(rewards)):
            self.returns.mul_(self.gamma).add_(rewards[step])
            found[step] = self.returns
            self.returns.masked_fill_(done[step], 0.0)
        count = torch.full_like(self.moments[0], float(found.numel()))
        self.moments += sum_over_ranks(torch.stack([count, found.sum(), found.square().sum()]))
        count, total, squares = self.moments
        variance = (squares / count - (total / count).square()).clamp(min=LEAST_VARIANCE)
        scaled: Tensor = (rewards * variance.rsqrt()).clamp(-FAR, FAR)
        return scaled.to(torch.float32)

    def load(self, returns: Tensor, moments: Tensor) -> None:
        """Go on from what was kept."""
        self.returns.copy_(returns)
        self.moments.copy_(moments)
