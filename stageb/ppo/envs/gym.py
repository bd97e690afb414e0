"""Environments of Gymnasium's, on the CPU, as the loop's.

Every episode is reset with a seed of its own, named by the run's seed, the episode's number and how many came before it.
What goes on inside an environment cannot be saved, so all begin anew after every commit, whether the run goes on or is
resumed there: both leave the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from stageb import seeds
from stageb.config import require
from stageb.errors import InputError
from stageb.ppo.environment import Actions, Box, Discrete, Environment, Frame, Transition

MASK = "action_mask"  # in what environments tell beside observations: as Gymnasium's own Taxi has it


class GymEnvironment(Environment):
    """A vector of Gymnasium's, with autoreset disabled."""

    begins_anew = True
    measures: Mapping[str, str] = {"return": "rewards of an episode", "cut_rate": "", "length": "steps an episode"}

    def __init__(self, key: str, envs: VectorEnv[Any, Any, Any], seed: int, numbers: Sequence[int], device: str) -> None:
        """``key`` and its value, a name, told the user where the loop cannot use ``envs``."""
        mode = envs.metadata.get("autoreset_mode")
        remedy = "a vector whose metadata have autoreset_mode AutoresetMode.DISABLED: the loop resets"
        require(mode == AutoresetMode.DISABLED, key, str(mode), remedy)
        self.device, self._envs = torch.device(device), envs
        self._space, self._acts = envs.single_observation_space, envs.single_action_space
        require(isinstance(self._space, spaces.Box | spaces.Discrete), key, str(self._space), "observations in a Box, or "
                "Discrete; gymnasium.wrappers.FlattenObservation makes vectors of others")  # fmt: skip
        self.actions = read_actions(key, self._acts)
        self._keys = [seeds.stream(seed, "gymnasium", number) for number in numbers]
        self._episodes = np.full(len(numbers), -1)
        self._returns, self._lengths = np.zeros(len(numbers)), np.zeros(len(numbers), np.int64)
        self._masks: NDArray[np.bool_] | None = None
        self._begin_anew()
        fits = self._masks is None or self._masks.shape[1:] == (getattr(self._acts, "n", None),)
        require(fits, key, MASK, "as a mask an array with 0 or 1 for each of Discrete actions")

    def observe(self) -> Tensor:
        """See ``Environment``: float32, of numbers or of classes as vectors of 0 and a 1; bytes stay bytes."""
        seen = torch.as_tensor(self._seen)
        if isinstance(self._space, spaces.Discrete):
            seen = torch.nn.functional.one_hot(seen - int(self._space.start), int(self._space.n))
        return (seen if seen.dtype == torch.uint8 else seen.float()).to(self.device)

    def masks(self) -> Tensor | None:
        """See ``Environment``."""
        return None if self._masks is None else torch.tensor(self._masks, device=self.device)

    def step(self, actions: Tensor) -> Transition:
        """See ``Environment``."""
        self._seen, rewards, terminated, truncated, told = self._envs.step(self._native(actions.cpu().numpy()))
        self._note_masks(told)
        self._returns += rewards
        self._lengths += 1
        truncated = truncated & ~terminated
        found = (rewards.astype(np.float32), terminated, truncated, self._returns.copy(), self._lengths.copy())
        first, ended, cut, returns, lengths = (torch.from_numpy(each).to(self.device) for each in found)
        return Transition(first, ended, cut, (returns, cut, lengths))

    def restart(self, done: Tensor) -> None:
        """See ``Environment``."""
        begun = done.cpu().numpy()
        if not begun.any():
            return
        self._episodes[begun] += 1
        self._returns[begun], self._lengths[begun] = 0.0, 0
        seeds_of = [
            seeds.bits(key, int(episode)) >> 32 if each else None
            for key, episode, each in zip(self._keys, self._episodes, begun, strict=True)
        ]
        self._seen, told = self._envs.reset(seed=seeds_of, options={"reset_mask": begun})  # type: ignore[arg-type]
        self._note_masks(told)

    def state(self) -> dict[str, Tensor]:
        """See ``Environment``: how many episodes there were, and all begin anew."""
        self._begin_anew()
        return {"episodes": torch.from_numpy(self._episodes.copy())}

    def load(self, state: dict[str, Tensor]) -> None:
        """See ``Environment``."""
        self._episodes[:] = state["episodes"].numpy() - 1
        self._begin_anew()

    def frame(self) -> Frame:
        """See ``Environment``: pictures, where ``render_mode`` is rgb_array."""
        if self._envs.render_mode != "rgb_array":
            return super().frame()
        try:
            shown = np.asarray(self._envs.render()[0])  # type: ignore[index]
        except DependencyNotInstalled as error:
            raise InputError(f"stageb play: {error}") from error
        height, width = (side // 2 * 2 for side in shown.shape[:2])  # even, as films want their sides
        return Frame("", partial(Image.fromarray, shown[:height, :width].copy()))

    def _begin_anew(self) -> None:
        self.restart(torch.ones(len(self._keys), dtype=torch.bool))

    def _native(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Actions as the environment takes them."""
        if isinstance(self._acts, spaces.Discrete):
            return np.asarray(actions + self._acts.start)
        assert isinstance(self._acts, spaces.Box)
        shaped = actions.reshape(-1, *self._acts.shape)
        clipped: NDArray[Any] = np.clip(shaped, self._acts.low, self._acts.high).astype(self._acts.dtype)
        return clipped

    def _note_masks(self, told: Mapping[str, Any]) -> None:
        if MASK in told:
            known, new = told[f"_{MASK}"], np.asarray(told[MASK], dtype=np.bool_)
            self._masks = new.copy() if self._masks is None else np.where(known[:, None], new, self._masks)


def read_actions(key: str, space: Space[Any]) -> Actions:
    """What the loop makes of a space of actions. Raises ``ConfigError`` for one that it cannot choose from."""
    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    require(isinstance(space, spaces.Box), key, str(space), "actions that are Discrete or a Box")
    return Box(int(np.prod(space.shape or ())))
