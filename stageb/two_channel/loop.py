"""The two-channel loop, as every rank runs it: make targets or roll out, learn, evaluate; rank 0
records and commits.

Fabric has launched the ranks (``world.py``). A channel A step trains on the true answers. A channel
B step first lets the model answer, keeps what can be parsed of each answer, and trains on its
corrections and on what is missing. In both cases a step is one optimiser step, on the same targets
at every world size. Every commit holds all that a run needs to resume.
"""

from __future__ import annotations

from stageb.job.world import World
from stageb.training.run import is_out_of_time, launch
from stageb.two_channel.boxes.data import DetectorData, read_inputs
from stageb.two_channel.commands.run import DetectorRun
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning.ranks import DetectorRanks
from stageb.two_channel.model.taught import TaughtBlocks


def fit(config: TwoChannelConfig, resolved_yaml: str, fresh: bool) -> int:
    """Start or resume the run that ``config`` names. Returns the exit code."""
    inputs = read_inputs(config)
    if config.model.model_name_or_path is None and (path := config.model.small.stem_weights):
        TaughtBlocks().load(path)  # a wrong file is told before anything starts
    return launch(config, lambda world: main(world, config, inputs, resolved_yaml, fresh))


def main(
    world: World, config: TwoChannelConfig, inputs: DetectorData, resolved_yaml: str, fresh: bool
) -> int:
    """The loop, on every rank."""
    world.agree("the data", inputs.digest)
    with DetectorRun(config, inputs, resolved_yaml, world.facts()) as run:
        start = world.lead(run.begin, fresh)
        if start is None:
            return 0
        ranks = DetectorRanks(config, inputs, world, start.model)
        ranks.take_up(start.checkpoint)
        world.lead(run.ready, ranks, start.done)
        if not start.ended:
            steps(world, run, ranks, start.done)
        world.lead(run.end)
    return 0


def steps(world: World, run: DetectorRun, ranks: DetectorRanks, done: int) -> None:
    """The steps that follow the first ``done``."""
    schedule = ranks.schedule
    for step in range(done, schedule.steps):
        result = ranks.learn(step, ranks.targets(step))
        ends = is_out_of_time(world, run)
        val = ranks.evaluate_val(step) if schedule.evaluates(step) or ends else None
        choice = world.lead(run.choose, step, val)
        test = ranks.evaluate_test(step, choice.best) if choice.ends else None
        world.lead(run.record, step, result, val, test)
        if schedule.commits(step) or ends:
            checkpoint = ranks.checkpoint(step + 1)
            world.lead(run.commit, step, checkpoint)
        if choice.ends:
            break
