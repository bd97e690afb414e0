"""Playing: T steps of this rank's games with the agent as it stands.

The action of a game at a step is drawn by a uniform number of a stream that the game's global number names, so games are the
same however they are dealt to ranks. Nothing in a step waits for the device: on a GPU it is recorded once and replayed as a
CUDA graph, which takes the place of some hundred launches. What must be known of games that were cut off is asked once for
the whole rollout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.snake.agent import Agent
from stageb.snake.game import Game, GameTotals, SnakeRollout
from stageb.training import step

Autocast = Callable[[], AbstractContextManager[Any]]
AT_ONCE = 65_536  # final observations that the agent reads at a time
WARM_UP = 3  # steps before one is recorded


class Player:
    """This rank's games, and the agent that plays them."""

    def __init__(self, agent: Agent, game: Game, steps: int, numbers: Sequence[int], seed: int, autocast: Autocast) -> None:
        """``steps`` is T; ``numbers`` are the games' own; ``autocast`` is the precision in which the agent acts."""
        self.agent, self.game, self.length, self._autocast = agent, game, steps, autocast
        device = game.device
        key = draws.signed(seeds.stream(seed, "snake", "actions"))
        self._keys = draws.bits(torch.full((len(numbers),), key), torch.tensor(numbers, dtype=torch.int64)).to(device)

        def empty(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((steps, len(numbers), *shape), dtype=dtype, device=device)

        self.buffers = {
            "grids": empty(game.dtype, game.cells),
            "finals": empty(game.dtype, game.cells),  # what each step led to, before games that ended began anew
            "actions": empty(torch.int64),
            "log_probs": empty(torch.float32),
            "values": empty(torch.float32),
            "rewards": empty(torch.float32),
            "terminated": empty(torch.bool),
            "truncated": empty(torch.bool),
        }
        self._tally = torch.zeros(5, dtype=torch.int64, device=device)  # the fields of GameTotals, in their order
        self._at = torch.zeros(1, dtype=torch.int64, device=device)  # the row of the buffers that is next
        self._step = torch.zeros(1, dtype=torch.int64, device=device)  # steps since the run began
        self._replay: Callable[[], None] | None = None  # a step that is recorded
        self._decide = agent.decide

    def compile_agent(self) -> None:
        """Have torch compile how the agent acts; before the first rollout."""
        self._decide = torch.compile(self.agent.decide, dynamic=False)

    @torch.no_grad()
    def play(self, first_step: int) -> tuple[SnakeRollout, GameTotals]:
        """The rollout that begins ``first_step`` steps after the run did, and what games ended in it.

        The rollout lies in buffers that the next one is written to.
        """
        self._begin(first_step)
        if self.game.device.type == "cuda" and self._replay is None:
            self._record(first_step)
        take = self._replay or self._one_step
        for _ in range(self.length):
            take()
        names = ("grids", "actions", "log_probs", "values", "rewards", "terminated", "truncated")
        rollout = SnakeRollout(next_values=self._next_values(), **{name: self.buffers[name] for name in names})
        return rollout, GameTotals(*self._tally.tolist())

    def _begin(self, first_step: int) -> None:
        self.game.settle()
        self._at.zero_()
        self._step.fill_(first_step)
        self._tally.zero_()

    def _one_step(self) -> None:
        """Look, decide, act, and put all of it into the next row of the buffers."""
        grids = self.game.grids()
        with self._autocast():
            logits, values = self._decide(grids)
        log_probs = logits.log_softmax(-1)
        upto = log_probs.double().exp().cumsum(-1)
        drawn = draws.uniforms(self._keys, self._step)[:, None] * upto[:, -1:]  # below the last sum, however it is rounded
        actions = (upto[:, :-1] <= drawn).sum(-1)
        outcome = self.game.move(actions)
        done = outcome.terminated | outcome.truncated
        row = {
            "grids": grids,
            "finals": self.game.grids(),
            "actions": actions,
            "log_probs": log_probs.gather(1, actions[:, None])[:, 0],
            "values": values,
            "rewards": outcome.rewards,
            "terminated": outcome.terminated,
            "truncated": outcome.truncated,
        }
        for name, value in row.items():
            self.buffers[name].index_copy_(0, self._at, value[None])
        ended = [done, self.game.score * done, outcome.won, outcome.truncated, self.game.steps * done]
        self._tally += torch.stack([each.sum() for each in ended])
        self.game.restart(done, outcome.ate)
        self._at += 1
        self._step += 1

    def _next_values(self) -> Tensor:
        """The values of what steps led to; of final observations only those that are asked for."""
        values, finals, cut = self.buffers["values"], self.buffers["finals"], self.buffers["truncated"]
        with self._autocast():
            _, last = self.agent.decide(self.game.grids())
        following = torch.cat([values[1:], last[None]])
        places = cut.flatten().nonzero()[:, 0]
        for some in torch.split(places, AT_ONCE) if len(places) else ():
            with self._autocast():
                following.view(-1)[some] = self.agent.decide(finals.flatten(0, 1)[some])[1]
        return following

    def _record(self, first_step: int) -> None:
        """Make a step a CUDA graph. The steps taken on the way are undone."""
        kept = self.game.state()
        self._replay = step.recorded(self._one_step, self._warm_up)
        self.game.load(kept)
        self._begin(first_step)

    def _warm_up(self) -> None:
        for _ in range(WARM_UP):
            self._one_step()
            self._at.zero_()
