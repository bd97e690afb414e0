"""The records of the Snake loop, as they pass between its stages. Tensors on the rank's device, N games, T steps."""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Tensor


@dataclass(frozen=True, slots=True)
class MoveResult:
    """What one step of N games brought, before those that ended begin anew."""

    rewards: Tensor  # float32 (N,)
    ate: Tensor  # bool (N,)
    terminated: Tensor  # bool (N,): died or won
    truncated: Tensor  # bool (N,): cut off, as nothing was eaten for too long; neither died nor won
    won: Tensor  # bool (N,): the board is full


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of N games."""

    grids: Tensor  # uint8 (T, N, cells): what the agent saw
    actions: Tensor  # int64 (T, N)
    log_probs: Tensor  # float32 (T, N): of these actions when they were taken
    values: Tensor  # float32 (T, N): of what the agent saw
    next_values: Tensor  # float32 (T, N): of what the step led to, a final observation included; any where it terminated
    rewards: Tensor  # float32 (T, N)
    terminated: Tensor  # bool (T, N)
    truncated: Tensor  # bool (T, N)


@dataclass(frozen=True, slots=True)
class GameTotals:
    """Sums over games that ended."""

    games: int = 0
    score: int = 0  # foods eaten
    won: int = 0
    cut: int = 0  # truncated
    steps: int = 0

    def add(self, other: GameTotals) -> GameTotals:
        """Both together."""
        return GameTotals(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))
