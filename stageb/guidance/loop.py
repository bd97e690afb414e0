"""The training-free loop: broadcast the guidance, roll out, gather, select; reflect, gate, apply, commit.

Every rank runs ``main``. What rank 0 decides alone it does in ``lead``; ``learn`` and ``prune`` are its steps too, and what
they ask the model every rank answers a part of (``consult``). Each step is a function of where the run stands
(``progression.py``, ``learning.py``) and ends with a commit (``run.py``); a run goes on from any commit by walking the same
loop, which passes over what was done before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stageb.engines.outline import rank_bytes
from stageb.guidance import learning, progression, selection
from stageb.guidance.config import LoopConfig
from stageb.guidance.files.images import check_images
from stageb.guidance.inputs import Inputs
from stageb.guidance.questions import Dialogue
from stageb.guidance.ranks import Ranks
from stageb.guidance.run import Run
from stageb.guidance.schedule import Round
from stageb.guidance.types import Answers, Guidance, Record
from stageb.job import world as worlds
from stageb.job.devices import spread_over_cores
from stageb.job.world import World

BUNDLES = 2  # that a round holds at most where the number of ranks follows the cores: an edit is seen by the next round


def run(config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs) -> int:
    """Launch the ranks, and run ``main`` on each. Returns the exit code."""
    runner, bundle = config.runner, config.reflection.batch_size
    most = max(1, BUNDLES * bundle // runner.per_rank_rollout_batch_size)
    fabric = spread_over_cores(config.fabric, most, rank_bytes(config.model))
    return worlds.run(fabric, lambda world: main(world, config, resolved_yaml, fresh, inputs))


def main(world: World, config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs) -> int:
    """The loop, on every rank."""
    world.agree("the digest of the ticket files", inputs.digest)
    inputs = replace(inputs, digest=inputs.digest + check_images(world, inputs.tickets))
    ranks = Ranks(config, inputs.tickets, world)
    with Run(config, resolved_yaml, inputs, ranks) as run:
        if not world.lead(run.show_if_finished, fresh):
            ranks.load()
            world.lead(run.begin, fresh)
            epochs(world, run, ranks)
            world.lead(run.finish)
    return 0


def epochs(world: World, run: Run, ranks: Ranks) -> None:
    """Judge, learn for some epochs, choose, judge again."""
    for batch in run.schedule.before():
        roll_out(world, run, ranks, batch)
    for epoch in run.schedule.epochs:
        for mission in run.schedule.missions:
            for batch in run.schedule.train(epoch, mission):
                world.consult(ranks.answer, learn, run, mission, run.schedule.bundle_size(mission))
                roll_out(world, run, ranks, batch)
            world.consult(ranks.answer, close, run, epoch, mission)
            for batch in run.schedule.val(epoch, mission):
                roll_out(world, run, ranks, batch)
    for mission in run.schedule.missions:
        world.lead(choose, run, mission)
        for batch in run.schedule.after(mission):
            roll_out(world, run, ranks, batch)


def roll_out(world: World, run: Run, ranks: Ranks, batch: Round) -> None:
    """One round: every rank answers its share of the tickets under rank 0's guidance; rank 0 selects and commits."""
    guidance = world.lead(guidance_for, run, batch)
    if guidance:
        answers = ranks.roll_out(batch, guidance, run.within)
        world.lead(select, run, batch, answers)


def guidance_for(run: Run, batch: Round) -> Guidance | None:
    """The guidance to roll a round out under; None where it was done before, or need not be."""
    if batch.place <= run.state.done:
        return None
    if why := progression.why_skip(batch, run.state, run.config):
        run.skip(batch, why)
        return None
    return run.state.missions[batch.mission].guidance


def select(run: Run, batch: Round, answers: Sequence[Answers]) -> None:
    """Select a verdict for each ticket of a round, and record it."""
    run.look_at_first(answers)
    mission, agreement = run.state.missions[batch.mission], run.config.manual_review.min_verdict_agreement
    records = [
        Record(
            ticket=ticket,
            epoch=batch.epoch,
            round=batch.number,
            guidance_step=mission.guidance.step,
            answers=given,
            selection=selection.select(ticket, given, agreement, run.inputs.rule),
        )
        for ticket, given in zip((run.inputs.tickets[i] for i in batch.tickets), answers, strict=True)
    ]
    if batch.kind == "distill":
        run.record_distilled(batch, records, progression.after_distilling(mission, records, run.config))
    else:
        run.record_round(batch, records, progression.after_round(mission, batch, records))


def learn(run: Run, name: str, size: int) -> Dialogue[None]:
    """Reflect on a mission's bundles of ``size`` tickets, one after the other; apply and commit what the gate accepts."""
    while progression.is_due(run.state, name, size, run.config):
        before, tools = run.state.missions[name], run.tools(name)
        run.progress.show_activity(f"{name}: what is judged wrong?")
        mission, bundle = yield from learning.draw_bundle(before, tools)
        run.progress.show_activity(f"{name}: {bundle.why_not or f'reflecting on {len(bundle.judged)} tickets'}")
        reflection = yield from learning.reflect_on(bundle, mission.guidance, tools)
        run.progress.show_activity(f"{name}: trying what {len(reflection.proposals)} answers propose")
        learnt = yield from learning.gate_edits(mission, bundle, reflection.proposals, tools)
        run.record_reflection(bundle, reflection, learnt, learning.apply_result(mission, learnt, tools))


def prune(run: Run, name: str) -> Dialogue[None]:
    """Seek a rule of a mission that earns nothing, and let it go."""
    before, tools = run.state.missions[name], run.tools(name)
    run.progress.show_activity(f"{name}: what does each of {len(before.guidance.rules) - 1} rules earn?")
    removal, learnt = yield from learning.seek_removal(before, tools)
    run.record_removal(removal, learnt, learning.apply_removal(before, removal, learnt, tools))


def close(run: Run, epoch: int, name: str) -> Dialogue[None]:
    """The end of a mission's epoch: learn from what is left, seek a rule that earns nothing, count idle epochs."""
    if run.schedule.close(epoch, name) > run.state.done:
        yield from learn(run, name, 1)
        if progression.may_prune(run.state, name, run.config):
            yield from prune(run, name)
        run.record_epoch(epoch, progression.after_epoch(run.state.missions[name]))


def choose(run: Run, name: str) -> None:
    """The final guidance of a mission; an audit has none to choose."""
    if run.schedule.choice(name) > run.state.done and not run.config.jump_reflection:
        run.record_choice(progression.after_choice(run.state.missions[name], run.config))
