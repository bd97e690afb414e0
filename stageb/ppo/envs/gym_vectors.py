"""Many games at once: in processes of the loop's, each with a part of them, or in a vector that a
user makes."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from stageb.errors import InputError
from stageb.job import heartbeat, lifetime
from stageb.ppo.envs.gym_games import GameError, Games, Moves, OwnGames, place_of, unpack, watching
from stageb.ppo.envs.gym_spaces import FARTHEST, MASK, Bools, Spaces, read_reward


def make_games(make: partial[Any], count: int, workers: int) -> Games:
    """So many games: a vector where ``make`` takes ``num_envs``, or else one after the other, in
    ``workers`` processes if there are to be any. Raises ``GameError``."""
    if "num_envs" in inspect.signature(make.func).parameters:
        return VectorGames(make, count)
    return (
        WorkerGames(make, count, min(workers, count))
        if workers and count > 1
        else OwnGames(make, count)
    )


class WorkerGames:
    """Games in some processes, each with a part of them; a process ends with this one, however that
    ends."""

    def __init__(self, make: Callable[[], Any], count: int, workers: int) -> None:
        """Raises ``GameError``."""
        # a fork of a process with torch's threads may hang
        context = multiprocessing.get_context("spawn")
        ends = [count * place // workers for place in range(workers + 1)]
        self._parts = [slice(*pair) for pair in itertools.pairwise(ends) if pair[0] < pair[1]]
        self._pipes, self._processes = [], []
        try:
            for part in self._parts:
                ours, theirs = context.Pipe()
                words = (theirs, os.getpid(), make, part.stop - part.start)
                process = context.Process(
                    target=_serve,
                    args=words,
                    name=f"games {part.start} to {part.stop - 1}",
                    daemon=True,
                )
                self._pipes.append(ours)
                self._processes.append(process)
                process.start()
                theirs.close()
            self.spaces, self.render_mode = self._receive()[0]
        except BaseException:
            self.close()
            raise

    def reset(self, seeds: Sequence[int | None]) -> tuple[NDArray[Any], Bools | None]:
        """See ``Games``."""
        seen, masks = zip(*self._ask("reset", seeds), strict=True)
        return np.concatenate(seen), _join(masks)

    def step(self, actions: NDArray[Any]) -> Moves:
        """See ``Games``."""
        parts: list[Moves] = self._ask("step", actions)
        seen, masks, *others = zip(*parts, strict=True)
        return Moves(np.concatenate(seen), _join(masks), *(np.concatenate(each) for each in others))

    def render(self) -> Any:
        """See ``Games``."""
        self._pipes[0].send(("render", ()))
        return self._receive(slice(1))[0]

    def close(self) -> None:
        """See ``Games``: a process that does not end is ended."""
        for pipe in self._pipes:
            pipe.close()  # it reads the end of its work
        for process in self._processes:
            if process.pid is not None:
                process.join(2.0)
                if process.is_alive():
                    process.kill()
                    process.join()
        self._pipes, self._processes = [], []

    def _ask(self, what: str, items: Any) -> list[Any]:
        for pipe, part in zip(self._pipes, self._parts, strict=True):
            # of a process that has ended: its answer will be missed
            with contextlib.suppress(OSError):
                pipe.send((what, (items[part],)))
        return self._receive()

    def _receive(self, some: slice = slice(None)) -> list[Any]:
        """An answer of each process, in order. Raises the ``GameError`` of the first that has
        one."""
        places = {pipe: place for place, pipe in enumerate(self._pipes[some])}
        waiting, answers = set(places), {}
        while waiting:
            for pipe in wait(list(waiting)):
                assert isinstance(pipe, Connection)
                waiting.remove(pipe)
                try:
                    answers[places[pipe]] = pipe.recv()
                except (EOFError, OSError):
                    process = self._processes[places[pipe]]
                    process.join(2.0)
                    ended = f"its process ended, exit code {process.exitcode}"
                    answers[places[pipe]] = GameError(0, ended, "")
                heartbeat.tick()
        for place, answer in sorted(answers.items()):
            if isinstance(answer, GameError):
                raise GameError(answer.game + self._parts[place].start, answer.what, answer.place)
            if isinstance(answer, InputError):
                raise answer
        return [answers[place] for place in sorted(answers)]


def _join(masks: Sequence[Bools | None]) -> Bools | None:
    known = [each for each in masks if each is not None]
    return np.concatenate(known) if len(known) == len(masks) else None


def _serve(pipe: Connection, parent: int, make: Callable[[], Any], count: int) -> None:
    """Serve the games of one process, to the end of its pipe."""
    lifetime.die_with_parent(parent)
    games: OwnGames | None = None
    try:
        with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
            try:
                games = OwnGames(make, count)
                pipe.send((games.spaces, games.render_mode))
                while True:
                    name, words = pipe.recv()
                    pipe.send(getattr(games, name)(*words))
            except GameError as error:
                pipe.send(error)
            except InputError as error:
                pipe.send(GameError(0, str(error), ""))
    finally:
        if games is not None:
            games.close()


class VectorGames:
    """A vector of Gymnasium's, with autoreset disabled."""

    def __init__(self, make: Callable[..., Any], count: int) -> None:
        """Make a vector of ``count`` games by ``make``. Raises ``GameError``."""
        self._made, self._count = place_of(make), count
        with watching(0, self._made), lifetime.bind_children():
            self._envs: VectorEnv[Any, Any, Any] = make(num_envs=count)
        try:
            with watching(0, self._made), self._reading():
                mode = getattr(self._envs, "metadata", {}).get("autoreset_mode")
                if mode != AutoresetMode.DISABLED:
                    remedy = (
                        "a vector whose metadata have autoreset_mode AutoresetMode.DISABLED: the "
                        "loop resets"
                    )
                    raise ValueError(f"autoreset_mode is {mode}; make {remedy}")
                names = ("single_observation_space", "single_action_space")
                self.spaces = Spaces(*(getattr(self._envs, name, None) for name in names))
        except BaseException:
            self.close()
            raise
        self.render_mode = getattr(self._envs, "render_mode", None)
        self._masks: Bools | None = None
        self._masked: bool | None = None

    def reset(self, seeds: Sequence[int | None]) -> tuple[NDArray[Any], Bools | None]:
        """See ``Games``."""
        begun = np.array([seed is not None for seed in seeds])
        with watching(0, self._made):
            told = self._envs.reset(seed=list(seeds), options={"reset_mask": begun.copy()})  # type: ignore[arg-type]
            with self._reading():
                shown, infos = unpack("reset", told, "observations, infos")
                self._note_masks(infos, begun, "reset", "step")
                seen = self._read(shown)
        heartbeat.tick()
        return seen, None if self._masks is None else self._masks.copy()

    def step(self, actions: NDArray[Any]) -> Moves:
        """See ``Games``."""
        blank: Any = create_empty_array(self.spaces.acts, n=self._count, fn=np.zeros)
        batch = concatenate(self.spaces.acts, self.spaces.native(actions), blank)
        with watching(0, self._made):
            told = self._envs.step(batch)
            with self._reading():
                shown, points, terminated, truncated, infos = unpack(
                    "step", told, "observations, rewards, terminations, truncations, infos"
                )
                rewards = np.asarray(points, dtype=np.float64)
                if rewards.shape != (self._count,):
                    raise ValueError(
                        f"the rewards have shape {rewards.shape}; return one for each of "
                        f"{self._count} games"
                    )
                for game in np.flatnonzero(~(np.abs(rewards) <= FARTHEST)):
                    with self._reading(game):
                        read_reward(rewards[game])
                ended = np.array([terminated, truncated], dtype=np.bool_)
                self._note_masks(infos, ~(ended[0] | ended[1]), "step", "reset")
                seen = self._read(shown)
        heartbeat.tick()
        return Moves(
            seen,
            None if self._masks is None else self._masks.copy(),
            rewards.copy(),
            ended[0],
            ended[1],
        )

    def render(self) -> Any:
        """See ``Games``."""
        shown = self._envs.render()
        return shown[0] if shown is not None else None

    def close(self) -> None:
        """See ``Games``: in good order, or else by force."""
        try:
            self._envs.close()
        except Exception:  # a worker of it may have died
            with contextlib.suppress(Exception):
                self._envs.close(terminate=True)

    def _read(self, shown: Any) -> NDArray[Any]:
        """Return the observations of all games as an array."""
        space = self.spaces.seen
        if not isinstance(space, spaces.Box):
            rows = []
            for game, each in enumerate(iterate(self._envs.observation_space, shown)):
                with self._reading(game):
                    rows.append(self.spaces.read(each))
            return np.stack(rows)
        found = np.asarray(shown)
        if found.shape != (self._count, *space.shape):
            raise ValueError(
                f"the observations have shape {found.shape}; return {(self._count, *space.shape)}"
            )
        found = found.reshape(self._count, *self.spaces.shape)
        try:
            return self.spaces.convert(found)
        except ValueError:
            for game, each in enumerate(found):
                with self._reading(game):
                    self.spaces.convert(each)
            raise

    def _note_masks(self, told: Any, asked: Bools, by: str, other: str) -> None:
        """Take up the masks of the games that were ``asked``."""
        has = MASK in told
        self._masked = has if self._masked is None else self._masked
        if not asked.any():
            return
        if has != self._masked:
            tells, not_this = (by, other) if has else (other, by)
            raise ValueError(
                f"infos of {tells} have {MASK}, those of {not_this} have none; tell it in both"
            )
        if not has:
            return
        if self._masks is None:
            self._masks = np.ones((self._count, sum(self.spaces.choices)), np.bool_)
        known = np.asarray(told.get(f"_{MASK}", asked))
        for game in np.flatnonzero(asked):
            with self._reading(game):
                self._masks[game] = self.spaces.read_mask(told[MASK][game] if known[game] else None)

    @contextlib.contextmanager
    def _reading(self, game: Any = 0) -> Iterator[None]:
        """Turn a ``ValueError`` about what the vector, or one of its games, told into a
        ``GameError``."""
        try:
            yield
        except ValueError as error:
            raise GameError(int(game), str(error), self._made) from None
