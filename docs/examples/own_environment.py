"""Catch: a ball falls down a board of 8 x 5 cells, and a paddle below it steps left, stays, or
steps right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.ppo.environment import Discrete, Environment, Transition

ROWS, COLUMNS = 8, 5


class Catch(Environment):
    """Many boards at once; nothing in a step waits for the device."""

    actions = Discrete(3)
    # of episodes: a name, and a title for its curve
    measures: Mapping[str, str] = {"catch_rate": "balls caught"}
    recordable = True

    def __init__(self, seed: int, numbers: Sequence[int], device: torch.device) -> None:
        """Boards by their global ``numbers``, which with ``seed`` name where balls fall."""
        self.device = device
        self._keys = torch.tensor(
            [draws.signed(seeds.stream(seed, "catch", n)) for n in numbers], device=device
        )
        self.row, self.ball, self.paddle, self.episode = torch.zeros(
            (4, len(numbers)), dtype=torch.int64, device=device
        )
        self.episode -= 1
        self.restart(torch.ones_like(self.row, dtype=torch.bool))

    def observe(self) -> Tensor:
        """How far the ball has come, and how far it is aside: float32 (N, 2)."""
        return torch.stack([self.row / ROWS, (self.ball - self.paddle) / COLUMNS], dim=1)

    def step(self, actions: Tensor) -> Transition:
        """Move the paddle; the ball falls by a row."""
        self.paddle.add_(actions - 1).clamp_(0, COLUMNS - 1)
        self.row += 1
        landed = self.row == ROWS - 1
        caught = landed & (self.ball == self.paddle)
        return Transition(
            caught.float() - (landed & ~caught).float(), landed, torch.zeros_like(landed), (caught,)
        )

    def restart(self, done: Tensor) -> None:
        """A new ball, where the last one landed."""
        self.episode += done
        fallen = draws.below(self._keys, self.episode, torch.full_like(self.row, COLUMNS))
        self.ball.copy_(torch.where(done, fallen, self.ball))
        self.row.masked_fill_(done, 0)
        self.paddle.masked_fill_(done, COLUMNS // 2)

    def state(self) -> dict[str, Tensor]:
        """All that a run goes on from, with ``load``."""
        return {name: getattr(self, name).cpu() for name in ("row", "ball", "paddle", "episode")}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from there."""
        for name, value in state.items():
            getattr(self, name).copy_(value)
