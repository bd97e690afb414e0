"""The Snake loop, as every rank runs it: play, learn, measure; rank 0 records and commits.

Fabric has launched the ranks (``world.py``). Each plays games of its own; gradients are averaged over ranks at every step of
the optimiser, so all hold the same agent at all times. Any commit holds what a run goes on from: weights, optimiser, games,
and the number of updates, which names every random stream.
"""

from __future__ import annotations

from stageb.job.world import World
from stageb.snake.config import SnakeConfig
from stageb.snake.ranks import SnakeRanks, count_games
from stageb.snake.run import SnakeRun, UpdateResult
from stageb.training.run import launch


def fit(config: SnakeConfig, resolved_yaml: str, fresh: bool) -> int:
    """Start or resume the run that ``config`` names. Returns the exit code."""
    return launch(config, lambda world: main(world, config, resolved_yaml, fresh))


def main(world: World, config: SnakeConfig, resolved_yaml: str, fresh: bool) -> int:
    """The loop, on every rank."""
    games = count_games(config, world)
    with SnakeRun(config, resolved_yaml, world.facts()) as run:
        start = world.lead(run.begin, fresh, games, world.world_size)
        if start is None:
            return 0
        ranks = SnakeRanks(config, start.schedule, world)
        ranks.take_up(start.checkpoint)
        updates(world, run, ranks, start.done)
        world.lead(run.end)
    return 0


def updates(world: World, run: SnakeRun, ranks: SnakeRanks, done: int) -> None:
    """The updates that are not done yet."""
    schedule = ranks.schedule
    for update in range(done, schedule.updates):
        rollout = ranks.roll_out(update)
        figures = ranks.learn(rollout, update)
        divergence = ranks.compare(update) if schedule.compares(update) else None
        evaluation = ranks.evaluate(update) if schedule.evaluates(update) else None
        if schedule.logs(update) or evaluation:
            result = UpdateResult(figures, ranks.gather_totals(), divergence, evaluation)
            world.lead(run.record, update, result)
        if schedule.commits(update):
            checkpoint = ranks.checkpoint(update)
            world.lead(run.commit, update, checkpoint)
