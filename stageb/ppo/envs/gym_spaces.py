"""Spaces of Gymnasium's, as the loop plays in them: what a game shows becomes arrays, an agent's
actions become the game's.

Observations other than a Box are flattened by Gymnasium, actions by their leaves. What does not fit
is a ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

# in what environments tell beside observations: as Gymnasium's own Taxi has it
MASK = "action_mask"
BYTE = 255
FARTHEST = float(np.finfo(np.float32).max)  # of rewards and observations from 0
Bools = NDArray[np.bool_]


class Spaces:
    """Observation and action spaces of games, and their conversion to arrays and to actions of the
    loop's."""

    def __init__(self, seen: Any, acts: Any) -> None:
        """Raises ``ValueError`` for a space that the loop cannot use."""
        if not (isinstance(seen, Space) and isinstance(acts, Space)):
            raise ValueError(
                "it has no observation_space and action_space; define both, of gymnasium.spaces"
            )
        self.seen, self.acts = seen, acts
        box = seen if isinstance(seen, spaces.Box) else None
        if not seen.is_np_flattenable:
            raise ValueError(
                f"observations in {seen} have no fixed size; give a Box, or a space that "
                f"Gymnasium can flatten"
            )
        is_bytes = box is not None and box.dtype == np.uint8 and bool((box.high == BYTE).all())
        self.dtype: Any = np.uint8 if is_bytes else np.float32
        self.shape: tuple[int, ...] = (box.shape or (1,)) if box else (spaces.flatdim(seen),)
        flat: Any = spaces.flatten_space(seen)
        is_shade = (flat.low == 0) & (flat.high == BYTE)
        # scaled here, unless bytes, which an agent scales
        divisors = np.where(is_shade, BYTE, 1).astype(np.float32)
        self.divisors = divisors.reshape(self.shape)
        self._leaves = list(_leaves(acts))
        self.choices = tuple(int(count) for leaf in self._leaves for count in _count_choices(leaf))
        self.numbers = sum(
            int(np.prod(leaf.shape)) for leaf in self._leaves if isinstance(leaf, spaces.Box)
        )
        self._ends = np.cumsum(self.choices)[:-1]

    def read(self, shown: Any) -> NDArray[Any]:
        """An observation as an agent sees it. Raises ``ValueError``."""
        try:
            if isinstance(self.seen, spaces.Box):
                found = np.asarray(shown)
                if found.shape != self.seen.shape:
                    raise ValueError(
                        f"its shape is {found.shape}, and observation_space says {self.seen.shape}"
                    )
                found = found.reshape(self.shape)
            else:
                found = np.asarray(spaces.flatten(self.seen, shown))
            found = found if found.dtype.kind in "biuf" else found.astype(np.float64)
        except (
            TypeError,
            ValueError,
            KeyError,
            IndexError,
            AttributeError,
            AssertionError,
        ) as error:
            raise ValueError(
                f"the observation does not fit {shorten(self.seen)}: {error}"
            ) from None
        return self.convert(found)

    def convert(self, found: NDArray[Any]) -> NDArray[Any]:
        """Flat numbers (..., as ``shape``) as an agent sees them. Raises ``ValueError``."""
        if self.dtype == np.uint8:
            with np.errstate(invalid="ignore"):  # nan, which is none
                odd = found[found != found.astype(np.uint8)]
            remedy = "whole numbers from 0 to 255, as observation_space says, or correct that"
        else:
            odd = found[~(np.abs(found) <= FARTHEST)]
            remedy = "finite numbers of float32"
        if odd.size:
            raise ValueError(f"the observation holds {odd.flat[0]:g}; return {remedy}")
        if self.dtype == np.uint8:
            return found.astype(np.uint8)
        scaled: NDArray[Any] = (found / self.divisors).astype(np.float32)
        return scaled

    def read_mask(self, told: Any) -> Bools:
        """Which choices are allowed: (choices,). Raises ``ValueError``."""
        wanted = f"give 0 or 1 for each of {sum(self.choices)} choices"
        if self.numbers or not self.choices:
            raise ValueError(
                f"{MASK} is for actions that are choices, and {shorten(self.acts)} is a Box"
            )
        try:
            found = (
                np.concatenate([np.ravel(each) for each in told])
                if isinstance(told, tuple | list)
                else np.ravel(told)
            )
            mask: Bools = found.astype(np.float64) == 1
        except (TypeError, ValueError):
            raise ValueError(f"{MASK} is {shorten(told)}; {wanted}") from None
        if mask.shape != (sum(self.choices),):
            raise ValueError(f"{MASK} has {len(mask)} numbers; {wanted}")
        if not (mask | (found == 0)).all():
            raise ValueError(f"{MASK} is {shorten(told)}; {wanted}")
        if not all(part.any() for part in np.split(mask, self._ends)):
            raise ValueError(f"{MASK} allows no action; allow one, or end the episode")
        return mask

    def native(self, actions: NDArray[Any]) -> list[Any]:
        """The agent's actions as games take them. Those of a finite Box are scaled to it from -1 to
        1."""
        if isinstance(self.acts, spaces.Discrete):
            return list(actions + self.acts.start)
        picked, drawn = np.split(actions, [len(self.choices)], axis=1)
        return [
            _make_action(self.acts, iter(row.astype(np.int64)), iter(rest))
            for row, rest in zip(picked, drawn, strict=True)
        ]

    def idle(self, masks: Bools | None, count: int) -> NDArray[Any]:
        """Actions of so many games that nobody asks for: the first that are allowed, and zeros."""
        allowed = np.ones((count, sum(self.choices)), np.bool_) if masks is None else masks
        picked = (
            [part.argmax(1) for part in np.split(allowed, self._ends, axis=1)]
            if self.choices
            else []
        )
        if isinstance(self.acts, spaces.Discrete):
            return np.asarray(picked[0])
        return np.stack([*picked, *[np.zeros(count)] * self.numbers], axis=1).astype(np.float32)

    def list_units(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """From which number each choice counts, and the lower and upper bounds of the numbers."""
        chosen = [leaf for leaf in self._leaves if not isinstance(leaf, spaces.Box)]
        starts = [
            np.broadcast_to(getattr(leaf, "start", 0), leaf.shape or ()).ravel() for leaf in chosen
        ]
        boxes = [
            (leaf.low.ravel(), leaf.high.ravel())
            for leaf in self._leaves
            if isinstance(leaf, spaces.Box)
        ]
        low, high = (np.concatenate([np.zeros(0), *(box[end] for box in boxes)]) for end in (0, 1))
        return np.concatenate([np.zeros(0, np.int64), *starts]), low, high


def _leaves(space: Space[Any]) -> Iterator[Space[Any]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _leaves(part)
    elif isinstance(
        space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box
    ):
        yield space
    else:
        known = "Discrete, MultiDiscrete, MultiBinary, Box, or a Dict or Tuple of these"
        raise ValueError(f"actions in {shorten(space)} cannot be chosen; make them {known}")


def _count_choices(leaf: Space[Any]) -> Sequence[int]:
    if isinstance(leaf, spaces.Discrete):
        return [int(leaf.n)]
    if isinstance(leaf, spaces.MultiDiscrete):
        return [int(each) for each in leaf.nvec.ravel()]
    return [2] * int(np.prod(leaf.shape)) if isinstance(leaf, spaces.MultiBinary) else []


def _make_action(space: Space[Any], picked: Iterator[Any], drawn: Iterator[Any]) -> Any:
    """An action in ``space``, of the choices and numbers that come next."""
    if isinstance(space, spaces.Dict):
        return {name: _make_action(part, picked, drawn) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_make_action(part, picked, drawn) for part in space.spaces)
    if isinstance(space, spaces.Discrete):
        return next(picked) + space.start
    assert space.shape is not None, "all other leaves are arrays"
    source, count = drawn if isinstance(space, spaces.Box) else picked, int(np.prod(space.shape))
    values = np.array([next(source) for _ in range(count)]).reshape(space.shape)
    if isinstance(space, spaces.Box):
        return scale(values, space)
    return (values + getattr(space, "start", 0)).astype(space.dtype)


def scale(values: NDArray[Any], box: spaces.Box) -> NDArray[Any]:
    """Numbers of an agent in a ``box``: scaled from -1 to 1 where its bounds are finite, and within
    it in any case."""
    finite = np.isfinite(box.low) & np.isfinite(box.high)
    low, high = (
        np.where(finite, bound, sign).astype(np.float64)
        for bound, sign in ((box.low, -1.0), (box.high, 1.0))
    )
    scaled = np.clip(low + (values.astype(np.float64) + 1) * (high - low) / 2, box.low, box.high)
    found: NDArray[Any] = (
        scaled.round() if np.issubdtype(box.dtype, np.integer) else scaled
    ).astype(box.dtype)
    return found.clip(box.low, box.high)


def read_reward(reward: Any) -> float:
    """Raises ``ValueError`` for what is no finite number."""
    if np.ndim(reward) != 0 or isinstance(reward, str | bytes):
        raise ValueError(f"the reward is {shorten(reward)}; return one number")
    try:
        found = float(reward)
    except (TypeError, ValueError):
        raise ValueError(f"the reward is {shorten(reward)}; return one number") from None
    if not abs(found) <= FARTHEST:
        raise ValueError(f"the reward is {found}; return a finite number of float32")
    return found


def shorten(value: Any) -> str:
    """A value as a message tells it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
