"""How a run is cut up: which environments an update plays, in which blocks, and what each update goes by."""

from __future__ import annotations

from dataclasses import dataclass

from stageb.growth.config import GrowthConfig
from stageb.training.schedules import is_due, share_done


@dataclass(frozen=True)
class GrowthSchedule:
    """The same on every rank, and at every world size."""

    config: GrowthConfig

    @property
    def updates(self) -> int:
        """Updates of the run."""
        return self.config.growth.updates

    def blocks(self, update: int) -> list[range]:
        """The environments of an update, a range of numbers for each block. No two updates share one."""
        first, count = update * self.config.growth.environments, self.config.growth.environments
        return cut_blocks(range(first, first + count), self.config.growth.block)

    def done(self, update: int) -> float:
        """How much of the run lies before an update, from 0 at the first to 1 at the last: what annealing goes by."""
        return share_done(update, self.updates)

    def shares(self, world_size: int) -> list[int]:
        """How many environments of an update each rank trains: block i is rank ``i % world_size``'s."""
        return [sum(map(len, self.blocks(0)[rank::world_size])) for rank in range(world_size)]

    def commits(self, update: int) -> bool:
        """Whether a commit follows an update."""
        return is_due(update, self.config.growth.commit_every, self.updates)

    def evaluates(self, update: int) -> bool:
        """Whether an evaluation follows an update."""
        return is_due(update, self.config.evaluation.every, self.updates)


def cut_blocks(numbers: range, block: int) -> list[range]:
    """``numbers`` in blocks, of which the last alone may be short. By the numbers alone, never by the ranks."""
    return [numbers[place : place + block] for place in range(0, len(numbers), block)]
