"""Games as users bring them: vectors of their own, spaces of every kind, and faults that a first
try has."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

TURNS = 20
Shown = tuple[Any, dict[str, Any]]
Told = tuple[Any, Any, bool, bool, dict[str, Any]]


class Guess(VectorEnv[Any, Any, Any]):
    """A bit is shown, and is to be named. All steps write into one buffer, as many a fast
    environment's do."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 - Gymnasium's own way

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = spaces.Box(0, 1, (2,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.shown, self.turns = np.zeros((num_envs, 2), np.float32), np.zeros(num_envs, np.int64)
        self.streams = [np.random.default_rng(0)] * num_envs

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Shown:
        for game in np.flatnonzero((options or {})["reset_mask"]):
            self.streams[game], self.turns[game] = np.random.default_rng(seed[game]), 0
            self._show(game)
        return self.shown, {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        rewards = self.shown[np.arange(self.num_envs), actions].astype(np.float64)
        self.turns += 1
        for game in range(self.num_envs):
            self._show(game)
        return self.shown, rewards, np.zeros(self.num_envs, np.bool_), self.turns >= TURNS, {}

    def _show(self, game: Any) -> None:
        self.shown[game] = np.eye(2)[self.streams[game].integers(2)]


def async_cartpoles(num_envs: int) -> AsyncVectorEnv:
    """A process for each game, forked or spawned as this Python does by default."""
    return AsyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1")] * num_envs,
        autoreset_mode=AutoresetMode.DISABLED,
        context="fork",
    )


class Plain(gymnasium.Env[Any, Any]):
    """Twenty turns of noise, each worth 1."""

    observation_space: Any = spaces.Box(-1, 1, (3,), np.float32)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Shown:
        super().reset(seed=seed)
        self.turn = 0
        return self.show(), {}

    def step(self, action: Any) -> Told:
        reward = self.judge(action)
        self.turn += 1
        return self.show(), reward, False, self.turn >= TURNS, {}

    def show(self) -> Any:
        return self.np_random.random(3).astype(np.float32)

    def judge(self, action: Any) -> Any:
        return 1.0


class Endless(Plain):
    """No episode ends."""

    def step(self, action: Any) -> Told:
        return self.show(), 1.0, False, False, {}


class Crashing(Plain):
    """Its process is gone at some step."""

    def step(self, action: Any) -> Told:
        if self.turn == 3:
            os._exit(7)
        return super().step(action)


# Spaces: what is shown says which action is worth most.


class Scaled(Plain):
    """A number from 0 to 1000 is to be named, and another in whole numbers from 10 to 20."""

    action_space = spaces.Dict(
        {"far": spaces.Box(0, 1000, (1,), np.float32), "whole": spaces.Box(10, 20, (1,), np.int64)}
    )

    def judge(self, action: Any) -> float:
        assert action in self.action_space, action
        return -abs(float(action["far"][0]) - 700) / 500 - abs(int(action["whole"][0]) - 12) / 5


class Pictures(Plain):
    """A square on a picture of bytes is bright or dark: which?"""

    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)

    def show(self) -> Any:
        self.bright = int(self.np_random.integers(2))
        row, column = self.np_random.integers(0, 30, 2)
        picture = np.zeros((36, 36, 1), np.uint8)
        picture[row : row + 6, column : column + 6] = 255 if self.bright else 90
        return picture

    def judge(self, action: Any) -> float:
        return float(action == self.bright)


class Mixed(Plain):
    """Each part of what is shown is to be answered by a part of the action."""

    observation_space = spaces.Dict(
        {
            "kind": spaces.Discrete(3),
            "levels": spaces.MultiDiscrete([2, 2]),
            "lamps": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Tuple(
        (
            spaces.Discrete(3, start=5),
            spaces.MultiDiscrete([2, 2], start=[0, 10]),
            spaces.MultiBinary(2),
        )
    )

    def show(self) -> Any:
        kind, *bits = (int(self.np_random.integers(count)) for count in (3, 2, 2, 2, 2))
        self.shown = {
            "kind": kind,
            "levels": np.array(bits[:2]),
            "lamps": np.array(bits[2:], np.int8),
        }
        return self.shown

    def judge(self, action: Any) -> float:
        assert action in self.action_space, action
        kind, levels, lamps = action
        right = [
            kind - 5 == self.shown["kind"],
            *(levels - [0, 10] == self.shown["levels"]),
            *(lamps == self.shown["lamps"]),
        ]
        return float(np.mean(right))


class Shades(Plain):
    """The shades of a picture, from 0 to 255, as numbers of some type, alone or beside others."""

    def __init__(self, kind: str = "uint8", beside: bool = False) -> None:
        picture = spaces.Box(0, 255, (3, 3, 1), np.dtype(kind).type)
        self.beside = beside
        self.observation_space = spaces.Dict({"shades": picture}) if beside else picture

    def show(self) -> Any:
        found = self.np_random.integers(0, 256, (3, 3, 1))
        return {"shades": found} if self.beside else found


class Levers(Plain):
    """Which of two, and how far."""

    action_space = spaces.Dict(
        {"which": spaces.Discrete(2), "far": spaces.Box(0, np.inf, (2,), np.float64)}
    )

    def judge(self, action: Any) -> float:
        assert action in self.action_space, action
        return float(action["which"])


# Faults


def vector(num_envs: int, kind: str) -> SyncVectorEnv:
    """A vector of games of a ``kind`` that is named here."""
    return SyncVectorEnv([globals()[kind]] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


class OldReset(Plain):
    """As OpenAI's Gym had it."""

    def reset(self, **asked: Any) -> Any:
        return super().reset(**asked)[0]


class OldStep(Plain):
    """As OpenAI's Gym had it."""

    def step(self, action: Any) -> Any:
        return (*super().step(action)[:2], False, {})


class NoSeed(Plain):
    """Its reset takes nothing."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class WrongShape(Plain):
    """It shows more than it says."""

    def show(self) -> Any:
        return np.zeros(5, np.float32)


class NoSpaces(gymnasium.Env[Any, Any]):
    """It says nothing of what it shows and takes."""


class NanReward(Plain):
    """At its eighth step."""

    def judge(self, action: Any) -> Any:
        return float("nan") if self.turn == 7 else 1.0


class NanShown(Plain):
    """At its eighth step."""

    def show(self) -> Any:
        return np.array([0, np.nan if self.turn == 8 else 0, 0], np.float32)


class FarReward(Plain):
    """Further than float32 reaches, at its third step."""

    def judge(self, action: Any) -> Any:
        return 1e39 if self.turn == 2 else 1.0


class NoInfo(Plain):
    """It has nothing to say."""

    def reset(self, **asked: Any) -> Any:
        return super().reset(**asked)[0], None


class UnitPictures(Pictures):
    """Its shades are from 0 to 1, and its space still says bytes."""

    def show(self) -> Any:
        return super().show() / 255


class LogitMask(Plain):
    """It tells what to add to logits."""

    def reset(self, **asked: Any) -> Shown:
        return super().reset(**asked)[0], {"action_mask": np.array([0, -1e9])}


class Leaving(Plain):
    """It ends the process where it may not go on."""

    def step(self, action: Any) -> Told:
        if self.turn == 3:
            raise SystemExit("no licence")
        return super().step(action)


class Unseeded(Plain):
    """It draws from a generator that no reset seeds."""

    def show(self) -> Any:
        return np.random.default_rng().random(3).astype(np.float32)


class ListReward(Plain):
    """An array of one."""

    def judge(self, action: Any) -> Any:
        return np.array([1.0])


class LateMask(Plain):
    """It tells masks from its first step on."""

    def step(self, action: Any) -> Told:
        return (*super().step(action)[:4], {"action_mask": np.ones(2)})


class NoChoice(Plain):
    """Its masks allow nothing from the third step on."""

    def reset(self, **asked: Any) -> Shown:
        return super().reset(**asked)[0], {"action_mask": np.ones(2)}

    def step(self, action: Any) -> Told:
        return (*super().step(action)[:4], {"action_mask": np.full(2, self.turn < 3)})


class Raising(Plain):
    """Its twelfth step raises."""

    def step(self, action: Any) -> Told:
        if self.turn == 11:
            raise ValueError("sensor offline")
        return super().step(action)


def nothing() -> None:
    """It forgets to return what it made."""


class Stray(Plain):
    """It shows what its Box does not hold."""

    def show(self) -> Any:
        return np.full(3, 5, np.float32)
