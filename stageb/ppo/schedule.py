"""How a run is cut up: how many games a rank plays, how many updates there are, and what each of
them goes by."""

from __future__ import annotations

from dataclasses import dataclass

from stageb.config import require
from stageb.ppo.config import PpoLoopConfig, PpoRunnerConfig
from stageb.training import schedules
from stageb.training.schedules import is_due

# of ``auto``: more are hardly faster, and learn less from as many steps
MOST_GAMES = {"cpu": 256, "cuda": 16_384}
# of ``auto``, where each is stepped by itself: their steps are dear, and to be made much of
SINGLE_GAMES = 16
# of a rollout, and steps of one, where ``runner.global_batch`` is null
MINIBATCHES, MOST_BATCH = 8, 16_384
# of memory, for one that a step shows, in a rollout and while it is learnt from, roughly
BYTES_PER_NUMBER = 64


@dataclass(frozen=True)
class Schedule:
    """The same on every rank."""

    world_size: int
    all_games: int  # of all ranks
    rollout_steps: int
    minibatches: int  # of a pass over a rollout; each takes as many steps of every game
    updates: int  # of the run
    config: PpoLoopConfig

    @classmethod
    def of(cls, config: PpoLoopConfig, world_size: int, all_games: int) -> Schedule:
        """Raises ``ConfigError`` where a rank has no game, or rollouts cannot be cut into equal
        minibatches."""
        runner = config.runner
        require(
            world_size <= all_games,
            "fabric.devices",
            world_size,
            f"at most {all_games}, a rank for every game",
        )
        steps = all_games * runner.rollout_steps
        divisors = [
            number
            for number in range(1, runner.rollout_steps + 1)
            if runner.rollout_steps % number == 0
        ]
        if (batch := runner.global_batch) is None:
            minibatches = next(
                (each for each in divisors if each >= max(MINIBATCHES, steps / MOST_BATCH)),
                divisors[-1],
            )
        else:
            minibatches = steps // batch
            fits = min((steps // each for each in divisors), key=lambda size: abs(size - batch))
            made = f"a rollout is {all_games} games x {runner.rollout_steps} steps = {steps}"
            remedy = (
                f"{made}: give that divided by a divisor of runner.rollout_steps, such as {fits}"
            )
            require(
                minibatches in divisors and steps % batch == 0, "runner.global_batch", batch, remedy
            )
        updates = runner.total_steps // steps
        least = f"at least {steps}, the steps of one update"
        require(updates >= 1, "runner.total_steps", runner.total_steps, least)
        return cls(world_size, all_games, runner.rollout_steps, minibatches, updates, config)

    @property
    def games(self) -> int:
        """Of a rank, at most: shares differ by one where ranks do not divide games."""
        return -(-self.all_games // self.world_size)

    def share(self, rank: int) -> range:
        """The numbers of a rank's games."""
        return range(
            self.all_games * rank // self.world_size, self.all_games * (rank + 1) // self.world_size
        )

    def weight(self, rank: int) -> float:
        """Return the weight of a rank's means in the mean over ranks that gives the mean over all
        games."""
        return len(self.share(rank)) * self.world_size / self.all_games

    @property
    def steps(self) -> int:
        """Of all games, between two updates."""
        return self.all_games * self.rollout_steps

    def batch(self, rank: int) -> int:
        """Steps of a rank's games that one step of the optimiser learns from."""
        return len(self.share(rank)) * self.rollout_steps // self.minibatches

    def learning_rate(self, update: int) -> float:
        """At an update, from 0."""
        # above 0 at the last, where it ends at 0
        return schedules.learning_rate(self.config.ppo, update / self.updates)

    def entropy_weight(self, update: int) -> float:
        """At an update, from 0."""
        return schedules.entropy_weight(self.config.ppo, update / self.updates)

    def commits(self, update: int) -> bool:
        """Whether a commit follows an update."""
        return is_due(update, self.config.runner.commit_every, self.updates)

    def logs(self, update: int) -> bool:
        """Whether a row is written after an update; always where a commit follows, so that no sum
        outlives one."""
        return is_due(update, self.config.runner.log_every, self.updates) or self.commits(update)

    def evaluates(self, update: int) -> bool:
        """Whether an evaluation follows an update."""
        return is_due(update, self.config.evaluation.every, self.updates)

    def compares(self, update: int) -> bool:
        """Whether replicas are compared after an update."""
        return is_due(update, self.config.runner.divergence_every, self.updates)


def fit_games(
    memory: int, runner: PpoRunnerConfig, kind: str, numbers: int, single: bool = False
) -> int:
    """How many games all ranks play at a time, of which a step shows so many ``numbers``: a power
    of two, the same whatever the world size.

    As many as one rank alone could, with ``memory`` bytes on a device of a ``kind``, or as one
    minibatch needs; few where each is stepped by itself, ``single``; at most
    ``runner.global_batch``, which takes a step of every game at least.
    """
    steps, batch, most = (
        runner.rollout_steps,
        runner.global_batch,
        SINGLE_GAMES if single else MOST_GAMES[kind],
    )
    each = steps * numbers * BYTES_PER_NUMBER
    wanted = most if batch is None else min(max(most, batch // steps), batch)
    return 1 << (max(1, min(wanted, memory // each)).bit_length() - 1)
