"""How a run is cut up: which environments an update plays, in which blocks, and what each update goes by."""

from __future__ import annotations

from dataclasses import dataclass

from stageb.growth.config import GrowthConfig


@dataclass(frozen=True)
class Schedule:
    """The same on every rank, and at every world size."""

    config: GrowthConfig

    @property
    def updates(self) -> int:
        """Of the run."""
        return self.config.growth.updates

    def blocks(self, update: int) -> list[range]:
        """The environments of an update, a range of numbers for each block. No two updates share one."""
        first, count = update * self.config.growth.environments, self.config.growth.environments
        return cut(range(first, first + count), self.config.growth.block)

    def held_out(self) -> list[range]:
        """The environments of an evaluation; their streams have names of their own, so none is ever learnt from."""
        return cut(range(self.config.evaluation.environments), self.config.growth.block)

    def learning_rate(self, update: int) -> float:
        """At an update, from 0."""
        return self._between(update, self.config.ppo.learning_rate, self.config.ppo.learning_rate_end)

    def entropy_weight(self, update: int) -> float:
        """At an update, from 0."""
        return self._between(update, self.config.ppo.entropy_weight, self.config.ppo.entropy_weight_end)

    def commits(self, update: int) -> bool:
        """Whether a commit follows an update."""
        return (update + 1) % self.config.growth.commit_every == 0 or update + 1 == self.updates

    def evaluates(self, update: int) -> bool:
        """Whether an evaluation follows an update."""
        every = self.config.evaluation.every
        return update + 1 == self.updates or (every > 0 and (update + 1) % every == 0)

    def _between(self, update: int, first: float, last: float) -> float:
        return first + (last - first) * update / max(1, self.updates - 1)


def cut(numbers: range, block: int) -> list[range]:
    """``numbers`` in blocks, of which the last alone may be short. By the numbers alone, never by the ranks."""
    return [numbers[place : place + block] for place in range(0, len(numbers), block)]


def assignment(blocks: list[range], world_size: int) -> list[int]:
    """How many environments of an update each rank trains: block i is rank ``i % world_size``'s."""
    return [sum(len(block) for block in blocks[rank::world_size]) for rank in range(world_size)]
