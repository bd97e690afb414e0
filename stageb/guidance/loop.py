"""The training-free loop, as every rank runs it: hand out the guidance, roll out, gather; on rank 0 select, reflect, gate,
choose, commit.

Fabric has launched the ranks (``world.py``). What rank 0 decides it does in ``lead``, where the other ranks answer what it
asks (judging tickets, sampling reflections) until it is done; what each step does stands in ``run.py``. A run goes on from
any commit by walking the same loop: ``hand_out``, ``close`` and ``choose`` pass over what was done before.
"""

from __future__ import annotations

from dataclasses import replace

from stageb.guidance.config import LoopConfig
from stageb.guidance.files.images import looked_into
from stageb.guidance.inputs import Inputs, read_inputs
from stageb.guidance.ranks import Ranks
from stageb.guidance.run import Run
from stageb.guidance.schedule import Round
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.runs import log_level, loggers


def fit(config: LoopConfig, resolved_yaml: str, fresh: bool) -> int:
    """Run, or go on with, the run that ``config`` names. Returns the exit code.

    Raises ``InputError`` before anything is started where the input cannot be used.
    """
    log_level.at(config.log_level)
    loggers.check(config.loggers)
    inputs = read_inputs(config)
    return worlds.run(config.fabric, lambda world: main(world, config, resolved_yaml, fresh, inputs))


def main(world: World, config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs) -> int:
    """The loop, on every rank."""
    world.agree("the digest of the ticket files", inputs.digest)
    inputs = replace(inputs, digest=inputs.digest + looked_into(world, inputs.tickets))
    ranks = Ranks(config, inputs.tickets, world)
    with Run(config, resolved_yaml, inputs, ranks) as run:
        if not world.lead(run.finished, fresh):
            ranks.load()
            world.lead(run.begin, fresh)
            epochs(world, run, ranks)
            world.lead(run.end)
    return 0


def epochs(world: World, run: Run, ranks: Ranks) -> None:
    """Judge, learn for some epochs, choose, judge again."""

    def roll_out(batch: Round) -> None:
        guidance = world.lead(run.hand_out, batch)
        if guidance:
            answers = ranks.roll_out(batch, guidance, run.within)
            world.lead(run.take_in, batch, answers)

    for batch in run.schedule.before():
        roll_out(batch)
    for epoch in run.schedule.epochs:
        for mission in run.schedule.missions:
            for batch in run.schedule.train(epoch, mission):
                world.lead(run.reflect, mission)
                roll_out(batch)
            world.lead(run.close, epoch, mission)
            for batch in run.schedule.val(epoch, mission):
                roll_out(batch)
    for mission in run.schedule.missions:
        world.lead(run.choose, mission)
        for batch in run.schedule.after(mission):
            roll_out(batch)
