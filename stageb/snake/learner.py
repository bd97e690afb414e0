"""Learning from a rollout: passes over it in equal minibatches, on every rank alike.

A minibatch takes equally many steps of every game, chosen for each game by a stream that its global number names. So every
rank has as many minibatches, and the union of what ranks learn from at a step of the optimiser is the same at every world
size. Where one rank has a game more than another its means count for so much more (``Schedule.weight``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.job import heartbeat
from stageb.job.world import World
from stageb.snake.schedule import Schedule
from stageb.snake.step import Step
from stageb.snake.types import Batch, Rollout
from stageb.training import ppo
from stageb.training.nonfinite import TOLD, LeftOut


class Learner:
    """What a rank does with its rollouts."""

    def __init__(self, world: World, schedule: Schedule, step: Step, numbers: Sequence[int]) -> None:
        """``numbers`` are those of this rank's games."""
        self.world, self.schedule, self.step = world, schedule, step
        self.config = schedule.config.ppo
        self._numbers = torch.tensor(numbers, dtype=torch.int64, device=world.device)
        self._left_out = LeftOut("fabric.precision 32-true, or a smaller ppo.learning_rate")

    def learn(self, rollout: Rollout, update: int) -> ppo.Figures:
        """One update. Raises ``NonFiniteError``, on all ranks alike."""
        with self.world.at(f"advantages of update {update}"):
            advantages = ppo.gae(rollout, self.config.gamma, self.config.gae_lambda)
            total = ppo.sums(rollout, advantages)
        mean, deviation, explained = ppo.moments(self.world.sum(total))
        returns, advantages = advantages + rollout.values, ppo.normalised(advantages, mean, deviation)
        self.step.go_by(self.schedule.learning_rate(update), self.schedule.entropy_weight(update))
        seen: list[Tensor] = []
        epochs = 0
        for epoch in range(self.config.epochs):
            steps = self._pass(self._minibatches(rollout, advantages, returns, (update, epoch)), update)
            seen += steps
            epochs += 1
            if self._parted_enough(steps):
                break
        return self._figures(torch.stack(seen), explained, epochs, update)

    def _pass(self, batches: Iterator[Batch], update: int) -> list[Tensor]:
        """A step of the optimiser for each of ``batches``."""
        steps = []
        with self.world.together(f"gradients of update {update}"):  # DDP meets in forward too, when it lays out gradients
            for batch in batches:
                steps.append(self.step.take(batch))
                heartbeat.tick()
        return steps

    def _figures(self, steps: Tensor, explained: Tensor, epochs: int, update: int) -> ppo.Figures:
        """What steps (S, 6) came to; asked once an update, since the answer must be waited for."""
        means = self._mean(ppo.means(steps))
        with self.world.together(f"figures of update {update}"):
            *read, variance = torch.cat([means, steps[:, -1].double(), explained[None]]).tolist()
        finite = [math.isfinite(length) for length in read[len(means) :]]  # of the gradients of steps
        for each in finite:
            self._left_out.count(each, f"update {update}: {TOLD}")
        return ppo.Figures.of(read[: len(means)], variance, finite.count(False), epochs)

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
        return float(self._mean(ppo.means(torch.stack([*seen])))[ppo.APPROX_KL]) > self.config.target_kl

    def _mean(self, mine: Tensor) -> Tensor:
        """The mean over all games, of this rank's means."""
        return self.world.sum(mine * self.schedule.weight(self.world.rank)) / self.world.world_size
