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
from stageb.job.world import World
from stageb.snake.schedule import Schedule
from stageb.snake.types import Rollout
from stageb.training import ppo
from stageb.training.nonfinite import REASON, SkippedSteps
from stageb.training.ppo import Batch
from stageb.training.step import Step


class Learner:
    """What a rank does with its rollouts."""

    def __init__(self, world: World, schedule: Schedule, step: Step, numbers: Sequence[int]) -> None:
        """``numbers`` are those of this rank's games."""
        self.world, self.schedule, self.step = world, schedule, step
        self.config = schedule.config.ppo
        self._numbers = torch.tensor(numbers, dtype=torch.int64, device=world.device)
        self._skipped_steps = SkippedSteps("fabric.precision 32-true, or a smaller ppo.learning_rate")

    def learn(self, rollout: Rollout, update: int) -> ppo.Figures:
        """One update. Raises ``NonFiniteError``, on all ranks alike."""
        with self.world.at(f"advantages of update {update}"):
            advantages = ppo.gae(rollout, self.config.gamma, self.config.gae_lambda)
            total = ppo.sum_moments(rollout, advantages)
        mean, deviation, explained = ppo.compute_moments(self.world.sum(total))
        returns, advantages = advantages + rollout.values, ppo.normalise(advantages, mean, deviation)
        self.step.set_hyperparameters(self.schedule.learning_rate(update), self.schedule.entropy_weight(update))
        whole = make_batch(rollout, advantages, returns)

        def take(epoch: int) -> Tensor:
            batches = self._minibatches(whole, len(advantages), (update, epoch))
            with self.world.together(f"gradients of update {update}"):  # DDP meets in forward too, as it lays them out
                return self.step.take_all(batches)

        steps, epochs = ppo.take_passes(self.config, take, self._mean)
        return self._figures(steps, explained, epochs, update)

    def _figures(self, steps: Tensor, explained: Tensor, epochs: int, update: int) -> ppo.Figures:
        """What steps (S, 6) came to; asked once an update, since the answer must be waited for."""
        means = self._mean(ppo.average_steps(steps))
        with self.world.together(f"figures of update {update}"):
            *read, variance = torch.cat([means, steps[:, -1].double(), explained[None]]).tolist()
        finite = [math.isfinite(length) for length in read[len(means) :]]  # of the gradients of steps
        for each in finite:
            self._skipped_steps.count(each, f"update {update}: {REASON}")
        return ppo.Figures.of(read[: len(means)], variance, finite.count(False), epochs)

    def _minibatches(self, whole: Batch, steps: int, names: tuple[int, int]) -> Iterator[Batch]:
        """The minibatches of one pass over so many ``steps`` of every game; ``names`` are the update's and the pass's."""
        games = len(self._numbers)
        places = self._order(steps, names) * games + torch.arange(games, device=self._numbers.device)
        for some in places.chunk(self.schedule.minibatches):
            yield whole.rows(some.flatten())

    def _order(self, steps: int, names: tuple[int, int]) -> Tensor:
        """The order in which a pass takes the steps of every game: int64 (steps, games)."""
        key = draws.signed(seeds.stream(self.schedule.config.seed, "snake", "minibatches", *names))
        keys = draws.bits(torch.full_like(self._numbers, key), self._numbers)
        return draws.bits(keys[None], torch.arange(steps, device=keys.device)[:, None]).argsort(0)

    def _mean(self, mine: Tensor) -> Tensor:
        """The mean over all games, of this rank's means."""
        return self.world.sum(mine * self.schedule.weight(self.world.rank)) / self.world.world_size


def make_batch(rollout: Rollout, advantages: Tensor, returns: Tensor) -> Batch:
    """All steps of a rollout; ``advantages`` and ``returns`` are float32 (T, N)."""
    columns = (rollout.grids, rollout.actions, rollout.log_probs, advantages, returns)
    grids, actions, log_probs, advantages, returns = (column.flatten(0, 1) for column in columns)
    return Batch((grids, actions), log_probs, advantages, returns)
