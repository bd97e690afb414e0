"""Playing: T steps of this rank's episodes with the agent as it stands.

The action of an episode at a step is drawn by a uniform number of a stream that its global number
names, so episodes are the same however they are dealt to ranks. Nothing in a step waits for the
device: on a GPU it is recorded once and replayed as a CUDA graph, which takes the place of some
hundred launches. What must be known of those that were cut off is asked once for the whole rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stageb import draws
from stageb.job import heartbeat
from stageb.ppo.agents import ActorCritic
from stageb.ppo.environment import Environment, mask
from stageb.training.ppo import Trajectory
from stageb.training.step import WARM_UP, Recorder

Autocast = Callable[[], AbstractContextManager[Any]]
AT_ONCE = 65_536  # final observations that the agent reads at a time


@dataclass(frozen=True, slots=True)
class Rollout(Trajectory):
    """T steps of N episodes, on the rank's device."""

    observations: Tensor  # (T, N, ...): what the agent saw
    masks: Tensor | None  # bool (T, N, actions): which it might choose from
    actions: Tensor  # (T, N) or (T, N, size)
    log_probs: Tensor  # float32 (T, N): of these actions when they were taken
    # float32 (T, N, memory): what the agent remembered before each step, if it does
    memories: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over episodes that ended."""

    games: int
    sums: tuple[float, ...]  # of each of ``Environment.measures``

    def add(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(
            self.games + other.games, tuple(map(sum, zip(self.sums, other.sums, strict=True)))
        )

    @classmethod
    def of(cls, row: Sequence[float]) -> Totals:
        """From the number of episodes and the sums."""
        return cls(int(row[0]), tuple(row[1:]))


class Player:
    """This rank's episodes, and the agent that acts in them."""

    def __init__(
        self,
        agent: ActorCritic,
        environment: Environment,
        steps: int,
        numbers: Sequence[int],
        key: int,
        autocast: Autocast,
    ) -> None:
        """``steps`` is T; ``numbers`` are the episodes' own, ``key`` that of the streams of their
        actions, ``autocast`` the precision in which the agent acts."""
        self.agent, self.environment, self.length, self._autocast = (
            agent,
            environment,
            steps,
            autocast,
        )
        device, count = environment.device, len(numbers)
        self._keys = draws.bits(
            torch.full((count,), draws.signed(key)), torch.tensor(numbers, dtype=torch.int64)
        ).to(device)

        def empty(like: Tensor) -> Tensor:
            return torch.zeros((steps, *like.shape), dtype=like.dtype, device=device)

        seen, masks = environment.observe(), environment.masks()
        number, yes = (
            torch.zeros(count, device=device),
            torch.zeros(count, dtype=torch.bool, device=device),
        )
        self.buffers = {
            "observations": empty(seen),
            "finals": empty(seen),  # what each step led to, before episodes that ended began anew
            "actions": empty(environment.actions.blank(count, device)),
            **{name: empty(number) for name in ("log_probs", "values", "rewards")},
            **{name: empty(yes) for name in ("terminated", "truncated")},
            **({} if masks is None else {"masks": empty(masks)}),
        }
        self.memory = torch.zeros((count, agent.memory), device=device)
        if agent.memory:
            self.buffers["memories"] = empty(self.memory)
        # as ``Totals.of``
        self._tally = torch.zeros(1 + len(environment.measures), dtype=torch.float64, device=device)
        # the row of the buffers that is next
        self._at = torch.zeros(1, dtype=torch.int64, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)  # steps since the run began
        self._records = device.type == "cuda" and environment.recordable
        self._replay: Callable[[], None] | None = None  # a step that is recorded
        self._advance, self._take_step = agent.advance, self._play_step

    def compile(self) -> None:
        """Have torch compile a step, or where none can be recorded how the agent acts; before the
        first rollout."""
        if self._records:  # some two hundred kernels become thirty
            self._take_step = torch.compile(self._play_step, dynamic=False)
        else:
            self._advance = torch.compile(self.agent.advance, dynamic=False)

    @torch.no_grad()
    def play(self, first_step: int) -> tuple[Rollout, Totals]:
        """The rollout that begins ``first_step`` steps after the run did, and what episodes ended
        in it.

        The rollout lies in buffers that the next one is written to.
        """
        self._begin(first_step)
        if self._records and self._replay is None:
            self._record(first_step)
        take = self._replay or self._take_step
        for _ in range(self.length):
            take()
            heartbeat.tick()
        kept = {
            name: each for name, each in self.buffers.items() if name not in ("finals", "masks")
        }
        rollout = Rollout(
            masks=self.buffers.get("masks"), next_values=self._read_next_values(), **kept
        )
        return rollout, Totals.of(self._tally.tolist())

    def _begin(self, first_step: int) -> None:
        self.environment.settle()
        self._at.zero_()
        self._step.fill_(first_step)
        self._tally.zero_()

    def _play_step(self) -> None:
        """Look, decide, act, and put all of it into the next row of the buffers."""
        seen, masks = self.environment.observe(), self.environment.masks()
        with self._autocast():
            outputs, values, memory = self._advance(seen, self.memory)
        actions, log_probs = self.agent.actions.draw(mask(outputs, masks), self._keys, self._step)
        # before the step, which may write into what was shown
        self._keep(
            observations=seen,
            actions=actions,
            log_probs=log_probs,
            values=values,
            **({} if masks is None else {"masks": masks}),
            **({"memories": self.memory} if self.agent.memory else {}),
        )
        outcome = self.environment.step(actions)
        done = outcome.terminated | outcome.truncated
        self._keep(
            finals=self.environment.observe(),
            rewards=outcome.rewards,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
        )
        self._tally += torch.stack(
            [done.double(), *(each * done.double() for each in outcome.measures)]
        ).sum(1)
        self.environment.restart(done)
        if self.agent.memory:
            self.memory.copy_(memory.masked_fill(done[:, None], 0.0))
        self._at += 1
        self._step += 1

    def _keep(self, **row: Tensor) -> None:
        for name, value in row.items():
            self.buffers[name].index_copy_(0, self._at, value[None])

    def _read_next_values(self) -> Tensor:
        """The values of what steps led to; of final observations only those that are asked for."""
        values, cut = self.buffers["values"], self.buffers["truncated"]
        with self._autocast():
            _, last, _ = self.agent.advance(self.environment.observe(), self.memory)
        following = torch.cat([values[1:], last[None]])
        places = cut.flatten().nonzero()[:, 0]
        for some in torch.split(places, AT_ONCE) if len(places) else ():
            with self._autocast():
                following.view(-1)[some] = self._read_final_values(some)
        return following

    def _read_final_values(self, places: Tensor) -> Tensor:
        """The values of what the steps at some ``places`` of the buffers led to."""
        seen, finals = (
            self.buffers[name].flatten(0, 1)[places] for name in ("observations", "finals")
        )
        memory = self.memory
        if self.agent.memory:
            memory = self.agent.advance(seen, self.buffers["memories"].flatten(0, 1)[places])[2]
        return self.agent.advance(finals, memory)[1]

    def _record(self, first_step: int) -> None:
        """Make a step a CUDA graph. The steps taken on the way are undone."""
        kept, memory = self.environment.state(), self.memory.clone()
        self._replay = Recorder().record(self._take_step, self._warm_up)
        self.environment.load(kept)
        self.memory.copy_(memory)
        self._begin(first_step)

    def _warm_up(self) -> None:
        for _ in range(WARM_UP):
            self._take_step()
            self._at.zero_()
