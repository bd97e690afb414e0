"""The training-free loop: broadcast the guidance, roll out, gather, select; reflect, gate, apply,
commit.

Every rank runs ``main``. Rank 0 alone decides: ``select``, ``learn`` and ``end_epoch`` run there,
and all ranks together answer the questions that these yield (``World.consult``). Each step takes
the state of the run, which rank 0 holds, and returns the one after it (``transitions.py``),
committed (``run.py``). A resumed run walks the same loop and skips what was committed.
docs/architecture.md follows one round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from stageb.engines.outline import rank_bytes
from stageb.guidance.commands.fit.inputs import Inputs
from stageb.guidance.commands.fit.run import FitRun
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging import selection
from stageb.guidance.judging.questions import Dialogue, add_reasons, answer_all
from stageb.guidance.judging.ranks import GuidanceRanks
from stageb.guidance.learning import preparing, transitions
from stageb.guidance.learning.at_once import RuleLearner, answer_by_code
from stageb.guidance.learning.bundles import Reflection
from stageb.guidance.learning.proposer import L, Proposer
from stageb.guidance.learning.state import STOP, State
from stageb.guidance.tickets.images import check_images
from stageb.guidance.words.types import Answers, Guidance, Record, Round
from stageb.job import world as worlds
from stageb.job.devices import spread_over_cores
from stageb.job.world import World

# bundles per round, at most, when choosing the number of ranks: edits take effect only in the next
# round
BUNDLES = 2


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
    ranks = GuidanceRanks(config, inputs.tickets, world)
    with FitRun(config, resolved_yaml, inputs, ranks) as run:
        if not world.lead(run.show_if_finished, fresh):
            ranks.load()
            state = epochs(world, run, ranks, world.alone(run.begin, fresh))
            world.lead(run.finish, state)
    return 0


def epochs(world: World, run: FitRun, ranks: GuidanceRanks, state: State) -> State:
    """Judge val and test, learn for some epochs, choose by val, judge test again.

    Before each round, ``learn_before`` reflects on the records of earlier ones; ``end_epoch`` takes
    the rest. ``state`` is rank 0's; elsewhere it is nothing, and only handed on.
    """
    schedule = run.schedule
    for round_ in schedule.before():
        state = roll_out(world, run, ranks, state, round_)
    for epoch in schedule.epochs:
        for mission in schedule.missions if epoch == schedule.epochs[0] else ():
            state = world.consult(ranks.answer, prepare, run, state, mission)
        for round_ in schedule.train(epoch):
            state = world.consult(ranks.answer, learn_before, run, state, round_)
            state = roll_out(world, run, ranks, state, round_)
        for mission in schedule.missions:
            state = world.consult(ranks.answer, end_epoch, run, state, epoch, mission)
        for round_ in schedule.val(epoch):
            state = roll_out(world, run, ranks, state, round_)
    for mission in schedule.missions:
        state = world.alone(choose, run, state, mission)
    for round_ in schedule.after():
        state = roll_out(world, run, ranks, state, round_)
    return state


def roll_out(world: World, run: FitRun, ranks: GuidanceRanks, state: State, round_: Round) -> State:
    """One round: every rank answers its share of the tickets under rank 0's guidance; rank 0
    selects and commits."""
    guidance = world.lead(guidance_for, state, round_, run.config)
    if guidance is None:
        return world.alone(skip, run, state, round_)
    answers = ranks.roll_out(round_, guidance, run.show_answered)
    return world.consult(ranks.answer, select, run, state, round_, answers)


def guidance_for(state: State, round_: Round, config: LoopConfig) -> Guidance | None:
    """The guidance to roll a round out under; None where the round is done already, or is not
    needed."""
    if round_.place <= state.done or transitions.why_skip(round_, state, config):
        return None
    return state.missions[round_.mission].guidance


def skip(run: FitRun, state: State, round_: Round) -> State:
    """Go past a round that needs no rollout."""
    return (
        state
        if round_.place <= state.done
        else run.skip(state, round_, transitions.why_skip(round_, state, run.config))
    )


def select(run: FitRun, state: State, round_: Round, answers: Sequence[Answers]) -> Dialogue[State]:
    """Select a verdict for each ticket of a round, ask for the reasons that are wanted and not
    written yet, and record."""
    state = run.check_first_answers(state, answers)
    mission, agreement = (
        state.missions[round_.mission],
        run.config.manual_review.min_verdict_agreement,
    )
    records = [
        Record(
            ticket=ticket,
            epoch=round_.epoch,
            round=round_.number,
            guidance_step=mission.guidance.step,
            answers=given,
            selection=selection.select(ticket, given, agreement, run.inputs.selection_rule),
        )
        for ticket, given in zip(
            (run.inputs.tickets[i] for i in round_.tickets), answers, strict=True
        )
    ]
    records = yield from add_reasons(round_, records, mission.guidance)
    if round_.kind == "distill":
        return run.record_distilled(
            state, round_, records, transitions.after_distilling(mission, records, run.config)
        )
    return run.record_round(
        state, round_, records, transitions.after_round(mission, round_, records)
    )


def prepare(run: FitRun, state: State, name: str) -> Dialogue[State]:
    """Before a mission learns, give the guidance that it starts with demonstrations, and calibrate
    it; then learn by code what can be learnt at once. Once, and only for models that need that."""
    before = state.missions[name]
    if not transitions.is_unprepared(before, run.config) or transitions.why_ended(
        state, name, run.config
    ):
        return state
    run.progress.show_activity(f"{name}: choosing demonstrations, calibrating verdicts")
    mission, verdicts = yield from preparing.prepare(before, run.tools(name))
    if mission.guidance.step != before.guidance.step:
        state = run.record_preparation(state, mission, verdicts)
    return run.commit(
        (yield from learn_whole(run, state, name)) if run.config.has_gate else state, name
    )


def learn_before(run: FitRun, state: State, round_: Round) -> Dialogue[State]:
    """Learn from what a mission's bundles hold before its next round. A resumed run does so where
    it would have: another mission may have its turn in between."""
    if round_.place <= state.done:
        return state
    return (yield from learn(run, state, round_.mission, run.schedule.bundle_size(round_.mission)))


def learn(run: FitRun, state: State, name: str, size: int) -> Dialogue[State]:
    """Reflect on a mission's records, ``size`` or more of them; apply and commit what the gate
    accepts.

    If several bundles are drawn at once, all proposals are made under one snapshot of the guidance,
    and each is tested under what was accepted by then."""
    while transitions.is_due(state, name, size, run.config):
        is_whole = run.config.reflection.scope == "all" or name in state.over
        learning = (
            learn_whole(run, state, name)
            if is_whole
            else learn_from(run, state, name, Reflection(run.tools(name)))
        )
        state = run.commit((yield from learning), name)
    return state


def learn_whole(run: FitRun, state: State, name: str) -> Dialogue[State]:
    """Learn a mission's whole guidance at once by code, from all of its train tickets. Where it has
    spent its share of a budget, no model is asked."""
    tools, is_unpaid = run.tools(name), name in state.over
    run.progress.say(f"{name}: learning rules from {len(tools.splits.train):,} tickets by code")
    state = state.with_mission(replace(state.missions[name], unpaid=is_unpaid))
    if not is_unpaid:
        return (yield from learn_from(run, state, name, RuleLearner(tools)))
    config = replace(tools.config, runner=replace(tools.config.runner, judge="both"))
    tools = replace(tools, config=config)
    return answer_all(
        learn_from(run, state, name, RuleLearner(tools)), partial(answer_by_code, tools=tools)
    )


def learn_from(run: FitRun, state: State, name: str, proposer: Proposer[L]) -> Dialogue[State]:
    """Learn from a mission's next bundles what a proposer makes of them, and apply what the gate
    accepts."""
    run.progress.show_activity(f"{name}: what is judged wrong?")
    mission, bundles = yield from proposer.draw(state.missions[name])
    teaching = sum(len(bundle.judged) for bundle in bundles if not bundle.why_not)
    run.progress.show_activity(
        f"{name}: {f'learning from {teaching} tickets' if teaching else bundles[0].why_not}"
    )
    snapshot, is_stopped = mission.guidance, False
    for bundle, lesson in zip(
        bundles, (yield from proposer.propose(bundles, snapshot)), strict=True
    ):
        lesson = lesson.rebase(snapshot, mission.guidance)
        run.progress.show_activity(f"{name}: testing what was proposed")
        learnt = yield from proposer.prove(mission, bundle, lesson)
        mission = transitions.after_learning(mission, learnt, run.tools(name))
        state = run.record_reflection(state, bundle, lesson, learnt, mission)
        is_stopped |= learnt.is_stopped
    if is_stopped:  # told to learn on, the run goes back and learns this anew
        state = run.commit(transitions.after_stop(state), name, keep=STOP)
    return state


def end_epoch(run: FitRun, state: State, epoch: int, name: str) -> Dialogue[State]:
    """End a mission's epoch: learn from the remaining records, count idle epochs."""
    if run.schedule.close(epoch, name) <= state.done:
        return state
    state = yield from learn(run, state, name, 1)
    return run.record_epoch(state, epoch, transitions.after_epoch(state.missions[name]))


def choose(run: FitRun, state: State, name: str) -> State:
    """Choose the final guidance of a mission."""
    if run.schedule.choice(name) <= state.done:
        return state
    return run.record_choice(state, transitions.after_choice(state.missions[name], run.config))
