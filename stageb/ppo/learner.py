"""Learning from a rollout: passes over it in equal minibatches, on every rank alike.

A minibatch takes equally many steps of every episode, chosen for each by a stream that its global
number names; of an agent with a memory, steps in their order. So every rank has as many
minibatches, and the union of what ranks learn from at a step of the optimiser is the same at every
world size. Where one rank has an episode more than another its means count for so much more
(``Schedule.weight``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.job.world import World
from stageb.ppo.agents import ActorCritic, read_numbers
from stageb.ppo.rollout import Rollout
from stageb.ppo.schedule import Schedule
from stageb.training import ppo
from stageb.training.ppo import Batch, RunningNorm
from stageb.training.step import REASON, SkippedSteps, Step

REMEDY = (
    "fabric.precision 32-true, a smaller ppo.learning_rate, or an environment whose "
    "numbers are all finite"
)


class Learner:
    """A rank's learner from its rollouts."""

    def __init__(
        self,
        world: World,
        schedule: Schedule,
        agent: ActorCritic,
        step: Step,
        numbers: Sequence[int],
    ) -> None:
        """``step`` is of ``agent``; ``numbers`` are those of this rank's games."""
        self.world, self.schedule, self.agent, self.step = world, schedule, agent, step
        self.config = schedule.config.ppo
        self._numbers = torch.tensor(numbers, dtype=torch.int64, device=world.device)
        self._skipped_steps = SkippedSteps(REMEDY)

    def learn(self, rollout: Rollout, update: int) -> ppo.Figures:
        """One update of the agent, the same on all ranks. Raises ``NonFiniteError``, on all ranks
        alike."""
        with self.world.at(f"advantages of update {update}"):
            advantages, returns, explained = ppo.estimate_advantages(
                rollout, self.config, self.world.sum
            )
        self.step.set_hyperparameters(
            self.schedule.learning_rate(update), self.schedule.entropy_weight(update)
        )
        whole = make_batch(rollout, advantages, returns, self.schedule.minibatches)

        def take(epoch: int) -> Tensor:
            batches = self._minibatches(whole, len(whole) // len(self._numbers), (update, epoch))
            # DDP meets in forward too, as it lays them out
            with self.world.together(f"gradients of update {update}"):
                return self.step.take_all(batches)

        steps, epochs = ppo.take_passes(self.config, take, self._average)
        figures = self._figures(steps, explained, epochs, update)
        for module in self.agent.modules():
            if isinstance(module, RunningNorm):
                with self.world.together(f"moments of update {update}"):
                    module.take(read_numbers(rollout.observations.flatten(0, 1)), self.world.sum)
        return figures

    def _figures(self, steps: Tensor, explained: Tensor, epochs: int, update: int) -> ppo.Figures:
        """Average the figures of steps (S, 6) over ranks; called once an update, since the GPU's
        answer must be waited for."""
        means = self._average(ppo.average_steps(steps))
        with self.world.together(f"figures of update {update}"):
            *read, variance = torch.cat([means, steps[:, -1].double(), explained[None]]).tolist()
        # of the gradients of steps
        finite = [math.isfinite(length) for length in read[len(means) :]]
        for each in finite:
            self._skipped_steps.count(each, f"update {update}: {REASON}")
        return ppo.Figures.of(read[: len(means)], variance, finite.count(False), epochs)

    def _minibatches(self, whole: Batch, steps: int, names: tuple[int, int]) -> Iterator[Batch]:
        """The minibatches of one pass over so many ``steps`` of every game; ``names`` are the
        update's and the pass's."""
        games = len(self._numbers)
        places = self._order(steps, names) * games + torch.arange(
            games, device=self._numbers.device
        )
        for some in places.chunk(self.schedule.minibatches):
            yield whole.rows(some.flatten())

    def _order(self, steps: int, names: tuple[int, int]) -> Tensor:
        """The order in which a pass takes the steps of every game: int64 (steps, games)."""
        config = self.schedule.config
        key = draws.signed(seeds.stream(config.seed, config.env.title, "minibatches", *names))
        keys = draws.bits(torch.full_like(self._numbers, key), self._numbers)
        return draws.bits(keys[None], torch.arange(steps, device=keys.device)[:, None]).argsort(0)

    def _average(self, mine: Tensor) -> Tensor:
        """Means over the games of all ranks, from those over this rank's games."""
        return self.world.sum(mine * self.schedule.weight(self.world.rank)) / self.world.world_size


def make_batch(rollout: Rollout, advantages: Tensor, returns: Tensor, sequences: int = 1) -> Batch:
    """All steps of a rollout; ``advantages`` and ``returns`` are float32 (T, N). Its rows are the
    steps, or where the agent has a memory the ``sequences`` into so many of which every game is
    cut."""
    if rollout.memories is not None:
        return _make_sequences(rollout, rollout.memories, advantages, returns, sequences)
    inputs = (
        rollout.observations,
        rollout.actions,
        *(() if rollout.masks is None else (rollout.masks,)),
    )
    log_probs, advantages, returns = (
        each.flatten(0, 1) for each in (rollout.log_probs, advantages, returns)
    )
    return Batch(tuple(each.flatten(0, 1) for each in inputs), log_probs, advantages, returns)


def _make_sequences(
    rollout: Rollout, memories: Tensor, advantages: Tensor, returns: Tensor, count: int
) -> Batch:
    def cut(steps: Tensor) -> Tensor:
        rows: Tensor = steps.unflatten(0, (count, -1)).transpose(1, 2).flatten(0, 1)
        return rows

    starts, ended = (
        memories[:: len(memories) // count].flatten(0, 1),
        rollout.terminated | rollout.truncated,
    )
    seen, masks = (
        (rollout.observations, rollout.actions),
        () if rollout.masks is None else (rollout.masks,),
    )
    inputs = (*map(cut, seen), starts, cut(ended), *map(cut, masks))
    return Batch(inputs, cut(rollout.log_probs), cut(advantages), cut(returns))
