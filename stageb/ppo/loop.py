"""The PPO loop, as every rank runs it: play, learn, measure; rank 0 records and commits.

Fabric has launched the ranks (``world.py``). Each plays episodes of its own; gradients are averaged
over ranks at every step of the optimiser, so all hold the same agent at all times. Any commit holds
what a run goes on from: weights, optimiser, episodes, and the number of updates, which names every
random stream.
"""

from __future__ import annotations

from contextlib import closing

from stageb.job.world import World
from stageb.ppo.check import play_some
from stageb.ppo.config import PpoLoopConfig
from stageb.ppo.make import make_agent, make_environment
from stageb.ppo.ranks import Ranks, count_games
from stageb.ppo.run import PpoRun, UpdateResult
from stageb.training.run import is_out_of_time, launch


def fit(config: PpoLoopConfig, resolved_yaml: str, fresh: bool) -> int:
    """Start or resume the run that ``config`` names. Returns the exit code."""
    return launch(config, lambda world: main(world, config, resolved_yaml, fresh))


def main(world: World, config: PpoLoopConfig, resolved_yaml: str, fresh: bool) -> int:
    """The loop, on every rank."""
    with closing(make_environment(config, config.seed, [0], "cpu")) as sample:
        # what cannot be is refused before anything is written
        play_some(config, sample, make_agent(config, sample), 1)
        games = count_games(config, sample, world)
    with PpoRun(config, resolved_yaml, world.facts(), sample) as run:
        start = world.lead(run.begin, fresh, games, world.world_size)
        if start is None:
            return 0
        with closing(Ranks(config, start.schedule, world)) as ranks:
            ranks.take_up(start.checkpoint)
            ranks.compare(start.done - 1)
            world.lead(run.tell_ranks)
            updates(world, run, ranks, start.done)
        world.lead(run.end)
    return 0


def updates(world: World, run: PpoRun, ranks: Ranks, done: int) -> None:
    """The updates that are not done yet."""
    schedule = ranks.schedule
    for update in range(done, schedule.updates):
        rollout = ranks.roll_out(update)
        figures = ranks.learn(rollout, update)
        divergence = ranks.compare(update) if schedule.compares(update) else None
        ends = is_out_of_time(world, run)
        evaluation = ranks.evaluate(update) if schedule.evaluates(update) or ends else None
        if schedule.logs(update) or evaluation:
            result = UpdateResult(figures, ranks.gather_totals(), divergence, evaluation)
            world.lead(run.record, update, result, ranks.agent.state_dict())
        if schedule.commits(update) or ends:
            checkpoint = ranks.checkpoint(update)
            world.lead(run.commit, update, checkpoint)
        if ends:
            break
