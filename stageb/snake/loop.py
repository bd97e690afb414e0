"""The Snake loop, as every rank runs it: play, learn, measure; rank 0 records and commits.

Fabric has launched the ranks (``world.py``). Each plays games of its own; gradients are averaged over ranks at every step of
the optimiser, so all hold the same agent at all times. Any commit holds what a run goes on from: weights, optimiser, games,
and the number of updates, which names every random stream.
"""

from __future__ import annotations

from stageb.job import world as worlds
from stageb.job.world import World
from stageb.runs import log_level, loggers
from stageb.snake.config import SnakeConfig
from stageb.snake.ranks import Ranks, games_of
from stageb.snake.run import Run
from stageb.snake.schedule import Schedule


def fit(config: SnakeConfig, resolved_yaml: str, fresh: bool) -> int:
    """Run, or go on with, the run that ``config`` names. Returns the exit code."""
    log_level.at(config.log_level)
    loggers.check(config.loggers)
    return worlds.run(config.fabric, lambda world: main(world, config, resolved_yaml, fresh))


def main(world: World, config: SnakeConfig, resolved_yaml: str, fresh: bool) -> int:
    """The loop, on every rank."""
    with Run(config, resolved_yaml, world.facts()) as run:
        if world.lead(run.finished, fresh):
            return 0
        committed = world.lead(run.games, fresh)
        schedule = Schedule.of(config, world.world_size, committed or games_of(config, world))
        begun, checkpoint = world.lead(run.begin, fresh, schedule)
        ranks = Ranks(config, schedule, world)
        ranks.take_up(checkpoint)
        updates(world, run, ranks, begun)
        world.lead(run.end)
    return 0


def updates(world: World, run: Run, ranks: Ranks, begun: int) -> None:
    """The updates from ``begun`` on."""
    schedule = ranks.schedule
    for update in range(begun, schedule.updates):
        rollout = ranks.roll_out(update)
        figures = ranks.learn(rollout, update)
        apart = ranks.compare(update) if schedule.compares(update) else None
        tested = ranks.evaluate(update) if schedule.evaluates(update) else None
        if schedule.logs(update) or tested:
            ended = ranks.ended()
            world.lead(run.record, update, figures, ended, apart, tested)
        if schedule.commits(update):
            checkpoint = ranks.checkpoint(update)
            world.lead(run.commit, update, checkpoint)
