"""The growth loop, as every rank runs it: play episodes, learn, measure; and what it would read,
printed.

Fabric has launched the ranks (``world.py``). An update plays ``growth.environments`` episodes in
blocks, which are cut by the update alone and shared over ranks, all under one snapshot of the
controller. No gradient of the controller crosses ranks: rank 0 learns from what was gathered and
hands the next snapshot out. So every world size leaves the same bytes. A commit holds the learner
and the number of updates, which names every random stream.
"""

from __future__ import annotations

from stageb.growth.config import GrowthConfig
from stageb.growth.environment import Setting
from stageb.growth.ranks import GrowthRanks
from stageb.growth.run import GrowthRun, GrowthStart
from stageb.job.world import World
from stageb.training.run import is_out_of_time, launch


def check(config: GrowthConfig) -> int:
    """Read the task and lay out its hosts, as every rank of a fit does first. Raises
    ``ConfigError`` and ``InputError``."""
    task = Setting.of(config, "cpu").task
    fit, validation, test = (f"{len(part):,}" for part in task.sets)
    counts = f"{fit} training, {validation} validation and {test} test examples"
    print(f"The keys are valid, and so is the data of task {task.name}: {counts}.")
    print("The loggers and the devices were not checked.")
    return 0


def fit(config: GrowthConfig, resolved_yaml: str, fresh: bool) -> int:
    """Start or resume the run that ``config`` names. Returns the exit code."""
    return launch(config, lambda world: main(world, config, resolved_yaml, fresh))


def main(world: World, config: GrowthConfig, resolved_yaml: str, fresh: bool) -> int:
    """The loop, on every rank."""
    # reads the task, and refuses what cannot be, before anything is written
    ranks = GrowthRanks(config, world)
    with GrowthRun(config, resolved_yaml, world.facts()) as run:
        start = world.lead(run.begin, fresh, ranks.places())
        if start is None:
            return 0
        updates(world, run, ranks, start)
        world.lead(run.end)
    return 0


def updates(world: World, run: GrowthRun, ranks: GrowthRanks, start: GrowthStart) -> None:
    """The updates that are not done yet."""
    schedule, snapshot = ranks.schedule, start.snapshot
    for update in range(start.done, schedule.updates):
        result = ranks.play(update, snapshot)
        snapshot = world.lead(run.learn, update, result)
        ends = is_out_of_time(world, run)
        evaluation = (
            ranks.evaluate(update, snapshot) if schedule.evaluates(update) or ends else None
        )
        world.lead(run.record, update, result, evaluation)
        if schedule.commits(update) or ends:
            world.lead(run.commit, update)
        if ends:
            break
