"""The training-free loop: broadcast the guidance, roll out, gather, select; reflect, gate, apply, commit.

Every rank runs ``main``. Rank 0 alone decides (``World.lead``): ``learn``, ``prune`` and ``end_epoch`` run there, and all
ranks together answer the questions that these yield (``World.consult``). Each step is a function of where the run stands
(``transitions.py``, ``learning.py``) and ends with a commit (``run.py``). A resumed run walks the same loop and skips what
was committed. docs/architecture.md follows one round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stageb.engines.outline import rank_bytes
from stageb.guidance import at_once, learning, selection, transitions
from stageb.guidance.config import LoopConfig
from stageb.guidance.files.images import check_images
from stageb.guidance.inputs import Inputs
from stageb.guidance.questions import Dialogue
from stageb.guidance.ranks import Ranks
from stageb.guidance.reasons import add_reasons
from stageb.guidance.reflection.rebase import rebase
from stageb.guidance.run import Run
from stageb.guidance.schedule import Round
from stageb.guidance.types import Answers, Guidance, Record
from stageb.job import world as worlds
from stageb.job.devices import spread_over_cores
from stageb.job.world import World

BUNDLES = 2  # bundles per round, at most, when choosing the number of ranks: edits take effect only in the next round


def run(config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs) -> int:
    """Launch the ranks, and run ``main`` on each. Returns the exit code."""
    runner, bundle = config.runner, config.reflection.batch_size
    most_ranks = max(1, BUNDLES * bundle // runner.per_rank_rollout_batch_size)
    fabric = spread_over_cores(config.fabric, most_ranks, rank_bytes(config.model))
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
    """Judge val and test (an audit: all splits, and nothing more), learn for some epochs, choose by val, judge test again.

    Before each round, ``learn`` reflects on the records of earlier ones; ``end_epoch`` takes the rest.
    """
    for round_ in run.schedule.before():
        roll_out(world, run, ranks, round_)
    for epoch in run.schedule.epochs:
        for mission in run.schedule.missions:
            if epoch == run.schedule.epochs[0]:
                world.consult(ranks.answer, prepare, run, mission)
            for round_ in run.schedule.train(epoch, mission):
                world.consult(ranks.answer, learn, run, mission, run.schedule.bundle_size(mission))
                roll_out(world, run, ranks, round_)
            world.consult(ranks.answer, end_epoch, run, epoch, mission)
            for round_ in run.schedule.val(epoch, mission):
                roll_out(world, run, ranks, round_)
    for mission in run.schedule.missions:
        world.lead(choose, run, mission)
        for round_ in run.schedule.after(mission):
            roll_out(world, run, ranks, round_)


def roll_out(world: World, run: Run, ranks: Ranks, round_: Round) -> None:
    """One round: every rank answers its share of the tickets under rank 0's guidance; rank 0 selects and commits."""
    guidance = world.lead(guidance_for, run, round_)
    if guidance:
        answers = ranks.roll_out(round_, guidance, run.show_answered)
        world.consult(ranks.answer, select, run, round_, answers)


def guidance_for(run: Run, round_: Round) -> Guidance | None:
    """The guidance to roll a round out under; None where the round is done already, or is not needed."""
    if round_.place <= run.state.done:
        return None
    if why := transitions.why_skip(round_, run.state, run.config):
        run.skip(round_, why)
        return None
    return run.state.missions[round_.mission].guidance


def select(run: Run, round_: Round, answers: Sequence[Answers]) -> Dialogue[None]:
    """Select a verdict for each ticket of a round, ask for the reasons that are wanted and not written yet, and record."""
    run.check_first_answers(answers)
    mission, agreement = run.state.missions[round_.mission], run.config.manual_review.min_verdict_agreement
    records = [
        Record(
            ticket=ticket,
            epoch=round_.epoch,
            round=round_.number,
            guidance_step=mission.guidance.step,
            answers=given,
            selection=selection.select(ticket, given, agreement, run.inputs.selection_rule),
        )
        for ticket, given in zip((run.inputs.tickets[i] for i in round_.tickets), answers, strict=True)
    ]
    records = yield from add_reasons(round_, records, mission.guidance)
    if round_.kind == "distill":
        run.record_distilled(round_, records, transitions.after_distilling(mission, records, run.config))
    else:
        run.record_round(round_, records, transitions.after_round(mission, round_, records))


def prepare(run: Run, name: str) -> Dialogue[None]:
    """Before a mission learns, give the guidance that it starts with demonstrations, and calibrate it; then learn by code
    what can be learnt at once. Once, and only for models that need that."""
    before = run.state.missions[name]
    if transitions.is_unprepared(before, run.config) and not transitions.why_ended(run.state, name, run.config):
        run.progress.show_activity(f"{name}: choosing demonstrations, calibrating verdicts")
        mission, judge = yield from learning.prepare(before, run.tools(name))
        if mission.guidance.step != before.guidance.step:
            run.record_preparation(mission, judge)
        if run.config.has_gate:
            yield from learn_whole(run, name)
        else:
            run.commit()


def learn(run: Run, name: str, size: int) -> Dialogue[None]:
    """Reflect on a mission's records, ``size`` or more of them; apply and commit what the gate accepts.

    If several bundles are drawn at once, all proposals are made under one snapshot of the guidance, and each is tested under
    what was accepted by then."""
    while transitions.is_due(run.state, name, size, run.config):
        if run.config.reflection.scope == "all":
            yield from learn_whole(run, name)
            continue
        before, tools = run.state.missions[name], run.tools(name)
        run.progress.show_activity(f"{name}: what is judged wrong?")
        mission, bundles = yield from learning.draw_bundles(before, tools)
        teaching = sum(len(bundle.judged) for bundle in bundles if not bundle.why_not)
        run.progress.show_activity(f"{name}: {f'reflecting on {teaching} tickets' if teaching else bundles[0].why_not}")
        snapshot = mission.guidance
        reflections = yield from learning.reflect_on(bundles, snapshot, tools)
        for bundle, reflection in zip(bundles, reflections, strict=True):
            proposals = rebase(reflection.proposals, snapshot, mission.guidance)
            run.progress.show_activity(f"{name}: trying what {len(proposals)} answers propose")
            learnt = yield from learning.gate_edits(mission, bundle, proposals, tools)
            mission = learning.apply_result(mission, learnt, tools)
            run.record_reflection(bundle, replace(reflection, proposals=proposals), learnt, mission)
        run.commit()


def learn_whole(run: Run, name: str) -> Dialogue[None]:
    """Learn a mission's whole guidance at once, from all of its train tickets; apply and commit what may stay."""
    before, tools = run.state.missions[name], run.tools(name)
    run.progress.show_activity(f"{name}: learning from {len(tools.splits.train)} tickets")
    bundle, reflection, learnt = yield from at_once.learn_at_once(before, tools)
    mission = learning.apply_result(replace(before, bundles=before.bundles + 1), learnt, tools)
    run.record_reflection(bundle, reflection, learnt, mission)
    run.commit()


def prune(run: Run, name: str) -> Dialogue[None]:
    """Search for a rule of a mission that earns nothing, and remove it."""
    before, tools = run.state.missions[name], run.tools(name)
    run.progress.show_activity(f"{name}: what does each of {len(before.guidance.rules) - 1} rules earn?")
    removal, learnt = yield from learning.seek_removal(before, tools)
    run.record_removal(removal, learnt, learning.apply_removal(before, removal, learnt, tools))


def end_epoch(run: Run, epoch: int, name: str) -> Dialogue[None]:
    """End a mission's epoch: learn from the remaining records, search for an idle rule, count idle epochs."""
    if run.schedule.close(epoch, name) > run.state.done:
        yield from learn(run, name, 1)
        if transitions.may_prune(run.state, name, run.config):
            yield from prune(run, name)
        run.record_epoch(epoch, transitions.after_epoch(run.state.missions[name]))


def choose(run: Run, name: str) -> None:
    """Choose the final guidance of a mission; an audit (``jump_reflection``) has none to choose."""
    if run.schedule.choice(name) > run.state.done and not run.config.jump_reflection:
        run.record_choice(transitions.after_choice(run.state.missions[name], run.config))
