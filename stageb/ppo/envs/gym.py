"""Environments of Gymnasium's, on the CPU, as the loop's.

Every episode is reset with a seed of its own, named by the run's seed, the episode's number and how
many came before it. What goes on inside an environment cannot be saved, but it follows from that
seed and the actions: those of episodes under way are kept, and a run that is resumed takes them
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from stageb import seeds
from stageb.errors import ConfigError, InputError
from stageb.ppo.environment import (
    Actions,
    Box,
    Discrete,
    Environment,
    Frame,
    Joint,
    Transition,
    Units,
)
from stageb.ppo.envs.gym_games import GameError, Games
from stageb.ppo.envs.gym_spaces import Spaces

# steps of an episode; one that goes on is cut off, since all its actions are kept
LONGEST = 100_000


class GymEnvironment(Environment):
    """Games of Gymnasium's."""

    measures: Mapping[str, str] = {
        "return": "rewards of an episode",
        "cut_rate": "",
        "length": "steps an episode",
    }
    single = True

    def __init__(
        self,
        config: tuple[str, str],
        make: Callable[[int], Games],
        seed: int,
        numbers: Sequence[int],
        device: str,
    ) -> None:
        """``make`` makes so many games; the key and the value of the ``config`` that name them are
        told where they fail."""
        self._config, self.device, self._seed = config, torch.device(device), seed
        self._episodes = np.full(len(numbers), -1)
        self._returns, self._lengths = np.zeros(len(numbers)), np.zeros(len(numbers), np.int64)
        self._number(numbers)
        with self._telling():
            self._games = make(len(numbers))
        self.spaces = self._games.spaces
        self.actions = find_actions(self.spaces)
        # the actions of the last steps, back to the start of the oldest episode
        self._taken: list[NDArray[Any]] = []
        try:
            self._begin_anew()
        except BaseException:
            self.close()
            raise

    def observe(self) -> Tensor:
        """See ``Environment``: float32, flattened by Gymnasium where they are no Box; images of
        bytes stay bytes."""
        return torch.from_numpy(self._seen).to(self.device)

    def masks(self) -> Tensor | None:
        """See ``Environment``."""
        return None if self._masks is None else torch.from_numpy(self._masks).to(self.device)

    def step(self, actions: Tensor) -> Transition:
        """See ``Environment``."""
        chosen = actions.cpu().numpy()
        self._taken.append(chosen)
        with self._telling():
            self._seen, self._masks, rewards, terminated, truncated = self._games.step(chosen)
        self._returns += rewards
        self._lengths += 1
        truncated = (truncated | (self._lengths >= LONGEST)) & ~terminated
        found = (
            rewards.astype(np.float32),
            terminated,
            truncated,
            self._returns.copy(),
            self._lengths.copy(),
        )
        first, ended, cut, returns, lengths = (
            torch.from_numpy(each).to(self.device) for each in found
        )
        return Transition(first, ended, cut, (returns, cut, lengths))

    def restart(self, done: Tensor) -> None:
        """See ``Environment``."""
        begun = done.cpu().numpy()
        if begun.any():
            self._episodes[begun] += 1
            self._returns[begun], self._lengths[begun] = 0.0, 0
            self._reset(begun)
        del self._taken[: len(self._taken) - int(self._lengths.max())]

    def state(self) -> dict[str, Tensor]:
        """See ``Environment``: how many episodes there were, and what happened in those under
        way."""
        blank = self.actions.blank(len(self._keys), "cpu").numpy()
        taken = np.stack([blank, *self._taken], 1)[:, 1:]
        kept = {
            "episodes": self._episodes,
            "lengths": self._lengths,
            "returns_so_far": self._returns,
        }
        return {
            name: torch.from_numpy(each.copy()) for name, each in {**kept, "taken": taken}.items()
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """See ``Environment``: begin each episode so late that by the last step all have come to
        where they were."""
        lengths, taken = state["lengths"].numpy().copy(), state["taken"].numpy()
        self._episodes[:] = state["episodes"].numpy()
        steps, over = int(lengths.max()), np.ones(len(lengths), np.bool_)
        self._taken = [taken[:, step] for step in range(taken.shape[1] - steps, taken.shape[1])]
        for left, chosen in zip(range(steps, 0, -1), self._taken, strict=True):
            if (fresh := over | (lengths == left)).any():
                self._reset(fresh)
            begun, waiting = lengths >= left, self.spaces.idle(self._masks, len(lengths))
            with self._telling():
                moved = self._games.step(
                    np.where(begun.reshape(-1, *[1] * (chosen.ndim - 1)), chosen, waiting)
                )
            self._seen, self._masks, over = (
                moved.observations,
                moved.masks,
                moved.terminated | moved.truncated,
            )
            lengths[begun & over] = 0  # it did not follow from seed and actions, and begins anew
        if (fresh := lengths == 0).any():
            self._reset(fresh)
        self._lengths[:], self._returns[:] = (
            lengths,
            np.where(fresh, 0.0, state["returns_so_far"].numpy()),
        )

    def renumber(self, numbers: Sequence[int]) -> None:
        """Play other episodes, as many, from the first of each."""
        self._number(numbers)
        self._episodes[:] = -1
        self._begin_anew()

    def frame(self) -> Frame:
        """See ``Environment``: pictures, where ``render_mode`` is rgb_array."""
        if self._games.render_mode != "rgb_array":
            return super().frame()
        try:
            shown = np.asarray(self._games.render())
        except DependencyNotInstalled as error:
            raise InputError(f"stageb play: {error}") from error
        # even, as films want their sides
        height, width = (side // 2 * 2 for side in shown.shape[:2])
        return Frame("", partial(Image.fromarray, shown[:height, :width].copy()))

    def units(self) -> Units:
        """See ``Environment``."""
        return Units(*(tuple(each.tolist()) for each in self.spaces.list_units()))

    def find_strays(self) -> str:
        """See ``Environment``: of the observations that it shows now."""
        box = self.spaces.seen
        if not isinstance(box, spaces.Box):
            return ""
        low, high = (bound.reshape(self.spaces.shape) for bound in (box.low, box.high))
        shown = self._seen * (1 if self._seen.dtype == np.uint8 else self.spaces.divisors)
        beyond = shown[(shown < low) | (shown > high)]
        return f"an observation holds {beyond.flat[0]:g}, beyond {box}" if beyond.size else ""

    def close(self) -> None:
        """See ``Environment``."""
        self._games.close()

    def _number(self, numbers: Sequence[int]) -> None:
        self._numbers = list(numbers)
        self._keys = [seeds.stream(self._seed, "gymnasium", number) for number in numbers]

    def _begin_anew(self) -> None:
        self.restart(torch.ones(len(self._keys), dtype=torch.bool))

    def _reset(self, begun: NDArray[np.bool_]) -> None:
        """Begin the episodes that are counted in ``_episodes``."""
        seeds_of = [
            seeds.bits(key, int(episode)) >> 32 if each else None
            for key, episode, each in zip(self._keys, self._episodes, begun, strict=True)
        ]
        with self._telling():
            self._seen, self._masks = self._games.reset(seeds_of)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Name the game and the step that failed. Raises ``ConfigError``."""
        try:
            yield
        except GameError as error:
            number, episode, step = (
                each[error.game] for each in (self._numbers, self._episodes, self._lengths)
            )
            where = (
                f"game {number}, step {step + 1} of its episode {episode + 1}: "
                if episode >= 0
                else ""
            )
            place = f" ({error.place})" if error.place else ""
            raise ConfigError(*self._config, f"{where}{error.what}{place}") from error.__cause__


def find_actions(here: Spaces) -> Actions:
    """Return the loop's action type for a space of actions."""
    if isinstance(here.acts, spaces.Discrete):
        return Discrete(here.choices[0])
    return Joint(here.choices, here.numbers) if here.choices else Box(here.numbers)
