"""Games as Gymnasium has them: made, stepped and read here, one after the other.

What a game returns is read strictly, and copied: a user may hand out a buffer that the next step
writes to. What cannot be played by is a ``GameError``, with the game and the place in the user's
code. No torch, since each process of games imports this.
"""

from __future__ import annotations

import contextlib
import inspect
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from stageb.errors import ConfigError, InputError
from stageb.job import heartbeat
from stageb.ppo.envs.gym_spaces import MASK, Bools, Spaces, read_reward

LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
PACKAGE = Path(__file__).parents[2]


class GameError(Exception):
    """A fault of one of the games, which makes it unplayable."""

    def __init__(self, game: int, what: str, place: str) -> None:
        """``game`` is its place among those that were stepped; ``place`` a file and line, or
        empty."""
        super().__init__(game, what, place)
        self.game, self.what, self.place = game, what, place


class Moves(NamedTuple):
    """The outcome of a step of N games; arrays that nobody writes to again."""

    observations: NDArray[Any]  # (N, ...), as agents see them
    masks: Bools | None  # (N, choices)
    rewards: NDArray[np.float64]  # (N,)
    terminated: Bools  # (N,)
    truncated: Bools  # (N,)


class Games(Protocol):
    """N games."""

    spaces: Spaces
    render_mode: str | None

    def reset(self, seeds: Sequence[int | None]) -> tuple[NDArray[Any], Bools | None]:
        """Begin an episode where there is a seed; the observations and masks of all. Raises
        ``GameError``, as ``step``."""

    def step(self, actions: NDArray[Any]) -> Moves:
        """Take the agent's actions, one of each game."""

    def render(self) -> Any:
        """A picture of the first game."""

    def close(self) -> None:
        """End what the games hold."""


class OwnGames:
    """Games of this process, one after the other."""

    def __init__(self, make: Callable[[], Any], count: int) -> None:
        """So many of what ``make`` makes. Raises ``GameError``."""
        self._envs: list[Any] = []
        self._made = place_of(make)
        try:
            for game in range(count):
                with watching(game, self._made):
                    self._envs.append(make())
                with self._reading(game, ""):
                    here = Spaces(
                        *(
                            getattr(self._envs[-1], name, None)
                            for name in ("observation_space", "action_space")
                        )
                    )
                self.spaces: Spaces = here if game == 0 else self.spaces
                if (here.shape, here.choices, here.numbers) != (
                    self.spaces.shape,
                    self.spaces.choices,
                    self.spaces.numbers,
                ):
                    raise GameError(
                        game,
                        "its spaces are not those of the first game; make all alike",
                        self._made,
                    )
                heartbeat.tick()
        except BaseException:
            self.close()
            raise
        self.render_mode = getattr(self._envs[0], "render_mode", None)
        self._seen = np.zeros((count, *self.spaces.shape), self.spaces.dtype)
        self._masks = np.ones((count, sum(self.spaces.choices)), np.bool_)
        self._masked: bool | None = None  # whether games tell masks, once one was asked

    def reset(self, seeds: Sequence[int | None]) -> tuple[NDArray[Any], Bools | None]:
        """See ``Games``."""
        for game, seed in enumerate(seeds):
            if seed is None:
                continue
            with watching(game, self._made, "reset: "):
                told = self._envs[game].reset(seed=seed)
            with self._reading(game, "reset"):
                seen, info = unpack("reset", told, "observation, info")
                self._take(game, seen, info, "reset", "step")
            heartbeat.tick()
        return self._seen.copy(), self._copy_masks()

    def step(self, actions: NDArray[Any]) -> Moves:
        """See ``Games``."""
        rewards, ended = np.zeros(len(actions)), np.zeros((2, len(actions)), np.bool_)
        for game, action in enumerate(self.spaces.native(actions)):
            with watching(game, self._made, "step: "):
                told = self._envs[game].step(action)
            with self._reading(game, "step"):
                seen, reward, terminated, truncated, info = unpack(
                    "step", told, "observation, reward, terminated, truncated, info"
                )
                rewards[game], ended[:, game] = (
                    read_reward(reward),
                    (bool(terminated), bool(truncated)),
                )
                self._take(game, seen, info, "step", "reset", is_last=bool(ended[:, game].any()))
            heartbeat.tick()
        return Moves(self._seen.copy(), self._copy_masks(), rewards, ended[0], ended[1])

    def render(self) -> Any:
        """See ``Games``."""
        return self._envs[0].render()

    def close(self) -> None:
        """See ``Games``: all, whatever one of them does."""
        for env in self._envs:
            with contextlib.suppress(Exception):
                env.close()
        self._envs = []

    def _copy_masks(self) -> Bools | None:
        return self._masks.copy() if self._masked else None

    def _take(
        self, game: int, seen: Any, info: dict[str, Any], by: str, other: str, is_last: bool = False
    ) -> None:
        """Take up what ``by`` told. After an episode's last step nobody acts, so a mask is not
        asked for."""
        self._seen[game] = self.spaces.read(seen)
        if is_last:
            return
        has = info.get(MASK) is not None
        self._masked = has if self._masked is None else self._masked
        if has != self._masked:
            tells, not_this = (by, other) if has else (other, by)
            raise ValueError(
                f"info of {tells} has {MASK}, that of {not_this} has none; tell it in both"
            )
        if has:
            self._masks[game] = self.spaces.read_mask(info[MASK])

    @contextlib.contextmanager
    def _reading(self, game: int, method: str) -> Iterator[None]:
        """Turn a ``ValueError`` about a ``method``'s answer into a ``GameError``."""
        try:
            yield
        except ValueError as error:
            env = getattr(self._envs[game], "unwrapped", self._envs[game])
            raise GameError(
                game, str(error), place_of(getattr(type(env), method, None)) or self._made
            ) from None


@contextlib.contextmanager
def watching(game: int, made: str, what: str = "") -> Iterator[None]:
    """Turn any error of the user's code, written at ``made`` unless it tells better, into a
    ``GameError`` that begins with ``what``."""
    try:
        yield
    except (GameError, InputError):
        raise
    except (Exception, SystemExit) as error:  # a run ends by what it does alone
        raise GameError(
            game, f"{what}{type(error).__name__}: {error}", place_raised(error) or made
        ) from error


def make_registered(name: str, /, **options: Any) -> Any:
    """One of Gymnasium's environments, by its id. Raises ``ConfigError``."""
    try:
        return gymnasium.make(name, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        remedy = "name snake, 2048, or an id of Gymnasium's that is installed"
        raise ConfigError("env.name", name, f"{error}; {remedy}") from error


def place_of(thing: Any) -> str:
    """Where a function or class is written: file and line; empty where that cannot be told."""
    thing = (
        inspect.unwrap(thing.func if isinstance(thing, partial) else thing)
        if thing is not None
        else None
    )
    try:
        file, line = inspect.getsourcefile(thing), inspect.getsourcelines(thing)[1]
    except (TypeError, OSError):
        return ""
    return (
        ""
        if file is None or Path(file).is_relative_to(PACKAGE)
        else f"{_shorten_path(file)}:{line}"
    )


def place_raised(error: BaseException) -> str:
    """Where the user's own code raised an error: its innermost frame that is in no library; empty
    where there is none."""
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if not Path(each.filename).is_relative_to(PACKAGE)
    ]
    own = [each for each in frames if not each.filename.startswith(LIBRARIES)]
    return f"{_shorten_path(own[-1].filename)}:{own[-1].lineno}" if own else ""


def _shorten_path(file: str) -> str:
    """A path as short as it can be told from here."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def unpack(method: str, told: Any, wanted: str) -> Sequence[Any]:
    """What a ``method`` returned, of which the last is an info. Raises ``ValueError`` where it is
    not what is ``wanted``: names, separated by commas."""
    if not isinstance(told, tuple | list):
        found = f"{type(told).__name__} alone"
    elif len(told) != len(wanted.split(",")):
        found = f"{len(told)} values"
    elif not isinstance(told[-1], dict):
        found = f"{type(told[-1]).__name__} as info"
    else:
        return told
    raise ValueError(f"{method} returned {found}; return {wanted} (as Gymnasium has it)")
