"""What the loop asks of an environment: many episodes at once, as tensors on one device.

An episode has a global number, which names its streams. What happens in it must depend on seed, number and actions alone:
then a run is the same however episodes are dealt to ranks, and a killed one leaves the bytes of one that was not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from stageb.errors import InputError
from stageb.ppo.actions import Actions


@dataclass(frozen=True, slots=True)
class Transition:
    """What a step of N episodes brought, before those that ended begin anew."""

    rewards: Tensor  # float32 (N,)
    terminated: Tensor  # bool (N,): it ended
    truncated: Tensor  # bool (N,): it was cut off, and did not end; its last observation is still worth something
    measures: tuple[Tensor, ...]  # (N,) each: the episode so far, in the order of ``Environment.measures``


class Frame(NamedTuple):
    """What an episode looks like: text for a terminal, always as many lines or none, and what makes Pillow's picture."""

    text: str
    draw: Callable[[], Any]


class Environment(ABC):
    """N episodes under way. It is made with a seed, the numbers of the episodes and a device, each at its start."""

    actions: Actions
    device: torch.device
    measures: Mapping[str, str]  # what is recorded of episodes that end: their means, by name, with a title for a
    # curve (empty: none). The first is what tells how good an agent is; a share's name ends in ``_rate``
    begins_anew: bool = False  # whether ``state`` has all episodes begin anew, as what goes on in them cannot be saved
    recordable: bool = False  # whether no step waits for the device, so that a GPU may replay one as a CUDA graph

    @abstractmethod
    def observe(self) -> Tensor:
        """What an agent sees: (N, ...), of any type."""

    def masks(self) -> Tensor | None:
        """Which actions are allowed now: bool (N, actions); None: all are, at all times."""
        return None

    @abstractmethod
    def step(self, actions: Tensor) -> Transition:
        """Take a step in every episode. ``observe`` then shows the last of those that ended, until ``restart``."""

    @abstractmethod
    def restart(self, done: Tensor) -> None:
        """Begin a new episode where ``done``, bool (N,). Follows every step."""

    def settle(self) -> None:  # noqa: B027 - most need nothing
        """Called between rollouts, for what must be put right now and then."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """All that the episodes' future depends on, on the CPU: (N, ...) each."""

    @abstractmethod
    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from the result of ``state``."""

    def frame(self) -> Frame:
        """The first episode as it stands, for ``stageb play``. Raises ``InputError`` where it cannot be shown."""
        remedy = "one of Gymnasium's shows itself by render_mode rgb_array, another by frame(); or try stageb evaluate"
        raise InputError(f"stageb play: this environment cannot be looked at: {remedy}")

    def tell(self, means: Mapping[str, float]) -> str:
        """``measures`` in a few words."""
        parts = (f"{mean:.1%}" if name.endswith("_rate") else f"{mean:.2f}" for name, mean in means.items())
        return ", ".join(f"{name} {part}" for name, part in zip(means, parts, strict=True))

    def tell_one(self, measures: Mapping[str, float]) -> str:
        """``measures`` of one episode in a few words."""
        return self.tell(measures)
