"""Environments so small that what an agent must learn of them is plain, made as a user's own
are."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stageb.ppo.agents import VectorAgent

TURNS = 8


class Doors(gymnasium.Env[Any, Any]):
    """One of four doors is open. Nothing but the mask tells which; any other ends the episode."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self, told: bool = True) -> None:
        self.told = told

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn = 0
        return np.zeros(1, np.float32), self._open()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = action == self.door
        self.turn += 1
        return (
            np.zeros(1, np.float32),
            float(right),
            bool(not right),
            self.turn == TURNS,
            self._open(),
        )

    def _open(self) -> dict[str, Any]:
        self.door = int(self.np_random.integers(4))
        return {"action_mask": np.eye(4, dtype=np.int8)[self.door]} if self.told else {}


class Mirror(gymnasium.Env[Any, Any]):
    """Two numbers are shown, in units far from 1; the nearer the action comes to their sign and
    size, the better."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn = 0
        return self._show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action.shape == (2,) and abs(action).max() <= 1, "actions are clipped to their box"
        reward = -1000 * float(np.square(action - self.shown).sum())
        self.turn += 1
        return self._show(), reward, False, self.turn == TURNS, {}

    def _show(self) -> Any:
        self.shown = self.np_random.uniform(-0.8, 0.8, 2)
        return (500 + 100 * self.shown).astype(np.float32)


class Cue(gymnasium.Env[Any, Any]):
    """One of two lamps is lit, at the first step alone; the action of the last step must name it.
    The episode ends then, or is ``cut``."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, cut: bool = False) -> None:
        self.cut = cut

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.turn, self.lamp = 0, int(self.np_random.integers(2))
        return np.eye(2, dtype=np.float32)[self.lamp], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.turn += 1
        last = self.turn == TURNS
        return (
            np.zeros(2, np.float32),
            float(last and action == self.lamp),
            last and not self.cut,
            last and self.cut,
            {},
        )


class Pictures(Doors):
    """It shows other than it says: an array in place of a dictionary."""

    observation_space = spaces.Dict({"it": spaces.Discrete(2)})  # type: ignore[assignment]


class Listed(Doors):
    """Its mask is a list, of one number too few."""

    def _open(self) -> dict[str, Any]:
        return {"action_mask": super()._open()["action_mask"].tolist()[:-1]}


class Shown(Doors):
    """Its pictures are the brighter the more turns there were, and of an odd height."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        return np.full((33, 48, 3), 30 * self.turn, np.uint8)


class Narrow(VectorAgent):
    """An agent of a user's own."""
