"""The interface of an environment to the loop: many episodes at once, as tensors on one device.

An episode has a global number, which names its streams. What happens in it must depend on seed,
number and actions alone: then a run is the same however episodes are dealt to ranks, and a killed
one leaves the bytes of one that was not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from stageb import draws
from stageb.errors import InputError

# Spaces of actions: how an agent's outputs become a policy, how it is drawn from, and what PPO
# reads of it.

NEVER = -1e9  # the logit of no probability; finite, since the entropy of minus infinity is none


@dataclass(frozen=True)
class Discrete:
    """One of so many actions, int64 (N,). Outputs of an agent are their logits."""

    count: int
    deviations: ClassVar[int] = 0  # outputs that follow the others

    @property
    def means(self) -> int:
        """Outputs that depend on the observation."""
        return self.count

    def draw(self, outputs: Tensor, keys: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Actions by the uniform number that each of ``keys`` has at ``step``, and their
        log-probabilities."""
        log_probs = outputs.log_softmax(-1)
        upto = log_probs.double().exp().cumsum(-1)
        # below the last sum, however it is rounded
        drawn = draws.uniforms(keys, step)[:, None] * upto[:, -1:]
        actions = (upto[:, :-1] <= drawn).sum(-1)
        return actions, log_probs.gather(1, actions[:, None])[:, 0]

    def best(self, outputs: Tensor) -> Tensor:
        """The most probable actions."""
        return outputs.argmax(-1)

    def judge(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities of ``actions``, and entropies: float32 (B,) each."""
        log_probs = outputs.log_softmax(-1)
        entropies = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(1, actions[:, None])[:, 0], entropies

    def blank(self, count: int, device: str | torch.device) -> Tensor:
        """So many actions that say nothing."""
        return torch.zeros(count, dtype=torch.int64, device=device)


@dataclass(frozen=True)
class Box:
    """So many real numbers, float32 (N, size): normal, independent of each other. Outputs of an
    agent are their means, then the logarithms of their deviations. An environment scales -1 to 1 to
    its bounds where it has any, and clips what is beyond."""

    size: int

    @property
    def means(self) -> int:
        """As for discrete actions."""
        return self.size

    @property
    def deviations(self) -> int:
        """Outputs that follow them."""
        return self.size

    def draw(self, outputs: Tensor, keys: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """As for discrete actions; every number of an action has a stream of its own."""
        means, logs = outputs.chunk(2, dim=-1)
        places = torch.arange(self.size, device=keys.device)
        drawn = draws.uniforms(draws.bits(keys[:, None], places), step).clamp(1e-12, 1 - 1e-12)
        normal = (torch.special.erfinv(2 * drawn - 1) * 2**0.5).to(torch.float32)
        actions = means + normal * logs.exp()
        return actions, self.judge(outputs, actions)[0]

    def best(self, outputs: Tensor) -> Tensor:
        """The most probable actions."""
        return outputs.chunk(2, dim=-1)[0]

    def judge(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """As for discrete actions: densities, in place of probabilities."""
        means, logs = outputs.chunk(2, dim=-1)
        apart = (actions - means) * (-logs).exp()
        log_probs = (-0.5 * apart.square() - logs - 0.5 * math.log(2 * math.pi)).sum(-1)
        return log_probs, (logs + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def blank(self, count: int, device: str | torch.device) -> Tensor:
        """So many actions that say nothing."""
        return torch.zeros((count, self.size), device=device)


@dataclass(frozen=True)
class Joint:
    """Several choices at once, each of so many, then so many real numbers: float32 (N, choices +
    size), independent of each other. Outputs of an agent are the logits of choice after choice,
    then those of a ``Box``."""

    counts: tuple[int, ...]
    size: int = 0

    @property
    def means(self) -> int:
        """As for discrete actions."""
        return sum(self.counts) + self.size

    @property
    def deviations(self) -> int:
        """Outputs that follow them."""
        return self.size

    def draw(self, outputs: Tensor, keys: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """As for discrete actions; every part of an action has a stream of its own."""
        drawn = [
            part.draw(each, draws.bits(keys, place), step)
            for place, (part, each) in enumerate(self._parts(outputs))
        ]
        actions = [each.float().view(len(keys), -1) for each, _ in drawn]
        return torch.cat(actions, 1), torch.stack([each for _, each in drawn]).sum(0)

    def best(self, outputs: Tensor) -> Tensor:
        """The most probable actions."""
        return torch.cat(
            [
                part.best(each).float().view(each.shape[0], -1)
                for part, each in self._parts(outputs)
            ],
            1,
        )

    def judge(self, outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """As for discrete actions: densities, where there are numbers."""
        picked = [
            *actions[:, : len(self.counts)].long().unbind(1),
            *[actions[:, len(self.counts) :]] * (self.size > 0),
        ]
        judged = [
            part.judge(each, one)
            for (part, each), one in zip(self._parts(outputs), picked, strict=True)
        ]
        log_probs, entropies = (torch.stack(each).sum(0) for each in zip(*judged, strict=True))
        return log_probs, entropies

    def blank(self, count: int, device: str | torch.device) -> Tensor:
        """So many actions that say nothing."""
        return torch.zeros((count, len(self.counts) + self.size), device=device)

    def _parts(self, outputs: Tensor) -> list[tuple[Discrete | Box, Tensor]]:
        *logits, rest = outputs.split([*self.counts, 2 * self.size], -1)
        choices = [(Discrete(count), each) for count, each in zip(self.counts, logits, strict=True)]
        return [*choices, *[(Box(self.size), rest)] * (self.size > 0)]


Actions = Discrete | Box | Joint


@dataclass(frozen=True)
class Units:
    """How actions of an agent become those of a game: choices count from a ``start``, numbers are
    scaled from -1 to 1 to finite bounds, and clipped to any."""

    starts: tuple[int, ...]  # of each choice
    low: tuple[float, ...]  # of each number
    high: tuple[float, ...]

    def convert(self, actions: Tensor) -> Tensor:
        """Actions as a game counts them: int64 (N,) of one choice, else float32 (N, choices +
        numbers)."""
        if actions.dim() == 1:
            return actions + self.starts[0]
        picked, numbers = actions.split([len(self.starts), len(self.low)], dim=1)
        low, high = torch.tensor(self.low), torch.tensor(self.high)
        bounded = low.isfinite() & high.isfinite()
        least, most = low.where(bounded, torch.tensor(-1.0)), high.where(bounded, torch.tensor(1.0))
        scaled = least + (numbers + 1) * (most - least) / 2
        return torch.cat(
            [picked + torch.tensor(self.starts), scaled.clamp(low, high)], dim=1
        ).float()


def mask(outputs: Tensor, allowed: Tensor | None) -> Tensor:
    """Logits without those of actions that are not ``allowed``, bool (N, actions); None: all
    are."""
    return outputs if allowed is None else outputs.masked_fill(~allowed, NEVER)


@dataclass(frozen=True, slots=True)
class Transition:
    """The outcome of a step of N episodes, before those that ended begin anew."""

    rewards: Tensor  # float32 (N,)
    terminated: Tensor  # bool (N,): it ended
    # bool (N,): it was cut off, and did not end; its last observation is still worth something
    truncated: Tensor
    # (N,) each: the episode so far, in the order of ``Environment.measures``
    measures: tuple[Tensor, ...]


class Frame(NamedTuple):
    """A picture of an episode: text for a terminal, always as many lines or none, and the function
    that draws Pillow's picture."""

    text: str
    draw: Callable[[], Any]


class Environment(ABC):
    """N episodes under way. It is made with a seed, the numbers of the episodes and a device, each
    at its start."""

    actions: Actions
    device: torch.device
    # what is recorded of episodes that end: their means, by name, with a title for a
    measures: Mapping[str, str]
    # curve (empty: none). The first is what tells how good an agent is; a share's name ends in
    # ``_rate``
    # whether games are stepped by themselves, so that a step of few takes less time than of many
    single: bool = False
    # whether no step waits for the device, so that a GPU may replay one as a CUDA graph
    recordable: bool = False

    @abstractmethod
    def observe(self) -> Tensor:
        """Return the agents' observations: (N, ...), of any type."""

    def masks(self) -> Tensor | None:
        """Which actions are allowed now: bool (N, actions); None: all are, at all times."""
        return None

    @abstractmethod
    def step(self, actions: Tensor) -> Transition:
        """Take a step in every episode. ``observe`` then shows the last of those that ended, until
        ``restart``."""

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

    def renumber(self, numbers: Sequence[int]) -> None:
        """Play other episodes in place of all, each from its start; only what Gymnasium's are
        played by does."""
        raise NotImplementedError

    def units(self) -> Units:
        """How actions of an agent become the game's, for what is exported."""
        counts = (
            self.actions.counts
            if isinstance(self.actions, Joint)
            else (1,) * isinstance(self.actions, Discrete)
        )
        size = 0 if isinstance(self.actions, Discrete) else self.actions.size
        return Units((0,) * len(counts), (-math.inf,) * size, (math.inf,) * size)

    def find_strays(self) -> str:
        """Name the values outside the bounds that the environment declares, in a few words; empty:
        none."""
        return ""

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """End what the environment holds: processes, windows."""

    def frame(self) -> Frame:
        """The first episode as it stands, for ``stageb play``. Raises ``InputError`` where it
        cannot be shown."""
        remedy = (
            "one of Gymnasium's shows itself by render_mode rgb_array, another by frame(); "
            "or try stageb evaluate"
        )
        raise InputError(f"stageb play: this environment cannot be looked at: {remedy}")

    def tell(self, means: Mapping[str, float]) -> str:
        """``measures`` in a few words."""
        parts = (
            f"{mean:.1%}" if name.endswith("_rate") else f"{mean:.2f}"
            for name, mean in means.items()
        )
        return ", ".join(f"{name} {part}" for name, part in zip(means, parts, strict=True))

    def tell_one(self, measures: Mapping[str, float]) -> str:
        """``measures`` of one episode in a few words."""
        return self.tell(measures)
