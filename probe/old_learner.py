"""Learning from a rollout: passes over it in equal minibatches, on every rank alike.

A minibatch takes equally many steps of every game, chosen for each game by a stream that its global number names. So every
rank has as many minibatches of one size by construction, and the union of what ranks learn from at a step of the optimiser
is the same at every world size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.errors import StagebError
from stageb.snake import ppo
from stageb.snake.schedule import Schedule
from stageb.snake.types import Batch, Losses, Rollout
from stageb.world import World

BROKEN_IN_A_ROW = 3  # steps of the optimiser that come to no finite gradient, after which a run ends


class NonFiniteError(StagebError):
    """Losses that are no numbers any more."""


@dataclass(frozen=True)
class Figures:
    """What an update came to, over all ranks: means over its minibatches."""

    policy_loss: float
    value_loss: float
    entropy: float
    approx_kl: float
    clip_frac: float
    explained_variance: float
    grad_norm: float
    skipped: int  # steps of the optimiser left out, since their gradients were not finite
    epochs: int  # passes made, fewer than ``ppo.epochs`` where ``ppo.target_kl`` was reached


class Learner:
    """The agent as it is wrapped for training, and its optimiser."""

    def __init__(self, world: World, schedule: Schedule, model: Any, optimizer: Any, numbers: Sequence[int]) -> None:
        """``model`` and ``optimizer`` come from ``fabric.setup``; ``numbers`` are those of this rank's games."""
        self.world, self.schedule, self.model, self.optimizer = world, schedule, model, optimizer
        self.config = schedule.config.ppo
        self._numbers = torch.tensor(numbers, dtype=torch.int64, device=world.device)
        self._broken = 0  # steps in a row

    def learn(self, rollout: Rollout, update: int) -> Figures:
        """One update. Raises ``NonFiniteError``, on all ranks alike."""
        with self.world.at(f"advantages of update {update}"):
            advantages = ppo.gae(rollout, self.config.gamma, self.config.gae_lambda)
            total = ppo.sums(rollout, advantages)
        mean, deviation, explained = ppo.moments(self._over_ranks(total))
        returns, advantages = advantages + rollout.values, ppo.normalised(advantages, mean, deviation)
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.learning_rate(update)
        seen: list[Tensor] = []
        skipped = epochs = 0
        for epoch in range(self.config.epochs):
            batches = self._minibatches(rollout, advantages, returns, (update, epoch))
            steps = [self._step(batch, update) for batch in batches]
            skipped += self._left_out(steps, update)
            seen += steps
            epochs += 1
            if self._parted_enough(steps):
                break
        finite = torch.stack(seen).nan_to_num(0.0, 0.0, 0.0).double()
        means = (self._over_ranks(finite.mean(0)) / self.world.world_size).tolist()
        names = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_frac", "grad_norm")
        figures = dict(zip(names, means, strict=True))
        return Figures(**figures, explained_variance=float(explained), skipped=skipped, epochs=epochs)

    def warm_up(self, batch: Batch) -> None:
        """Reduce gradients once to no effect. DDP lays them out anew after its first reduction, which would round otherwise
        where a run begins than where it goes on, and so leave other bytes."""
        if self.world.world_size > 1:
            for _ in range(2):
                with self.world.together("warming up"):
                    outputs = torch.stack(self.model(batch.grids, batch.actions))
                    self.world.fabric.backward(outputs.sum() * 0.0)
                self.optimizer.zero_grad()

    def _step(self, batch: Batch, update: int) -> Tensor:
        """One step of the optimiser; its losses on this rank, and the length of the gradient that all ranks share.

        Nothing in it waits for the device, which is told to leave weights as they are where a gradient is not finite. A loss
        that is not finite on one rank leaves no finite gradient on any.
        """
        with self.world.together(f"gradients of update {update}"):  # DDP meets in forward too, when it lays out gradients
            losses = ppo.ppo_loss(
                self.model(batch.grids, batch.actions), batch, self.config, self.schedule.entropy_weight(update)
            )
            self.world.fabric.backward(losses.total)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.optimizer.optimizer.found_inf = (~norm.isfinite()).float()  # what torch.amp.GradScaler tells fused optimisers
        self.optimizer.step()
        self.optimizer.zero_grad()
        names = [each.name for each in fields(Losses)][1:]
        return torch.stack([*(getattr(losses, name).detach() for name in names), norm])

    def _left_out(self, steps: Sequence[Tensor], update: int) -> int:
        """How many steps of a pass were left out; asked once a pass, since the answer must be waited for."""
        with self.world.together(f"steps of update {update}"):
            finite = torch.stack([each[-1] for each in steps]).isfinite().tolist()
        for fine in finite:
            self._broken = 0 if fine else self._broken + 1
            if self._broken == BROKEN_IN_A_ROW:
                raise NonFiniteError(
                    f"update {update}: the gradients of {BROKEN_IN_A_ROW} steps in a row are not finite; the last commit is "
                    "intact. Try fabric.precision 32-true, or a smaller ppo.learning_rate"
                )
        return finite.count(False)

    def _minibatches(self, rollout: Rollout, advantages: Tensor, returns: Tensor, names: tuple[int, int]) -> Iterator[Batch]:
        """The minibatches of one pass, which ``names`` name: the update and the epoch."""
        steps, games = rollout.actions.shape
        places = self._order(steps, names) * games + torch.arange(games, device=rollout.actions.device)
        columns = [rollout.grids, rollout.actions, rollout.log_probs, advantages, returns]
        flat = [column.flatten(0, 1) for column in columns]
        for some in places.chunk(self.schedule.minibatches):
            yield Batch(*(column[some.flatten()] for column in flat))

    def _order(self, steps: int, names: tuple[int, int]) -> Tensor:
        """The order in which a pass takes the steps of every game: int64 (steps, games)."""
        key = draws.signed(seeds.stream(self.schedule.config.seed, "snake", "minibatches", *names))
        keys = draws.bits(torch.full_like(self._numbers, key), self._numbers)
        return draws.bits(keys[None], torch.arange(steps, device=keys.device)[:, None]).argsort(0)

    def _parted_enough(self, seen: Sequence[Tensor]) -> bool:
        """Whether the new policy is far enough from the old one, over all ranks, to make no further pass."""
        if self.config.target_kl is None:
            return False
        mean = torch.stack([each[3] for each in seen]).mean().double()
        return float(self._over_ranks(mean)) / self.world.world_size > self.config.target_kl

    def _over_ranks(self, figures: Tensor) -> Tensor:
        """The sum over ranks."""
        if self.world.world_size == 1:
            return figures
        with self.world.together("figures of the update"):
            return torch.as_tensor(self.world.fabric.all_reduce(figures, reduce_op="sum"))
