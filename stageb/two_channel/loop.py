"""The two-channel loop, as every rank runs it: ask or roll out, teach, measure; rank 0 records and commits.

Fabric has launched the ranks (``world.py``). A step of channel A teaches the truth of its images; one of channel B has the
model answer them first, keeps of each answer what can be read, and teaches what was wrong and what is missing; one of
channel C has it answer each several times, and teaches what made some answers better. Either way a step is one step of the
optimiser, on the same targets at every world size. Any commit holds what a run goes on from.
"""

from __future__ import annotations

from stageb.job.world import World
from stageb.training.run import launch
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.inputs import Inputs, read
from stageb.two_channel.ranks import Ranks
from stageb.two_channel.run import Run


def fit(config: TwoChannelConfig, resolved_yaml: str, fresh: bool) -> int:
    """Run, or go on with, the run that ``config`` names. Returns the exit code."""
    inputs = read(config)
    return launch(config, lambda world: main(world, config, inputs, resolved_yaml, fresh))


def main(world: World, config: TwoChannelConfig, inputs: Inputs, resolved_yaml: str, fresh: bool) -> int:
    """The loop, on every rank."""
    world.agree("the data", inputs.digest)
    with Run(config, inputs, resolved_yaml, world.facts()) as run:
        start = world.lead(run.begin, fresh)
        if start is None:
            return 0
        ranks = Ranks(config, inputs, world, start.model)
        ranks.take_up(start.checkpoint)
        world.lead(run.ready, ranks, start.done)
        if not start.ended:
            steps(world, run, ranks, start.done)
        world.lead(run.end)
    return 0


def steps(world: World, run: Run, ranks: Ranks, done: int) -> None:
    """The steps behind those that are done."""
    schedule = ranks.schedule
    for step in range(done, schedule.steps):
        result = ranks.learn(step, ranks.targets(step))
        val = ranks.evaluate_val(step) if schedule.evaluates(step) else None
        choice = world.lead(run.choose, step, val)
        test = ranks.evaluate_test(step, choice.best) if choice.ends else None
        world.lead(run.record, step, result, val, test)
        if schedule.commits(step):
            checkpoint = ranks.checkpoint(step + 1)
            world.lead(run.commit, step, checkpoint)
        if choice.ends:
            break
