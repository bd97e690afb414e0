"""Returns the state of a run after each of its steps, as functions of the state before, and decides
what is due next. Nothing here writes a file, prints or reads a clock: ``run.py`` does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.selection import latest_of_the_best
from stageb.guidance.learning.proposer import GateResult
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.learning.state import STOP, MissionState, State, Tally
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.judge import find_touched
from stageb.guidance.rules.prompts import Case
from stageb.guidance.tickets.splits import note_tickets, sign_rules, split_seed
from stageb.guidance.words.types import (
    TEACHING_FOLDS,
    UNCALIBRATED,
    Choice,
    Guidance,
    Record,
    Round,
)

UNCHANGED = "unchanged"


def why_ended(state: State, name: str, config: LoopConfig) -> str:
    """Return the key of the limit that ended a mission's learning, a budget or an early stop, or
    ``STOP``; empty if it learns."""
    if state.ended == STOP:
        return STOP
    return state.over.get(name) or why_done(state.missions[name], config)


def why_done(mission: MissionState, config: LoopConfig) -> str:
    """Return the key of the limit by which a mission learns no more, whatever is left of its
    budget; empty if it learns."""
    most = config.early_stop
    if config.reflection.scope == "all" and mission.bundles:
        return "reflection.scope"
    if most.patience is not None and mission.idle_epochs >= most.patience:
        return "early_stop.patience"
    return (
        "early_stop.reflections"
        if most.reflections is not None and mission.idle_bundles >= most.reflections
        else ""
    )


def is_unprepared(mission: MissionState, config: LoopConfig) -> bool:
    """Whether the guidance that a mission starts with still lacks the demonstrations and the
    calibration that it needs."""
    guidance = mission.guidance
    begun = (
        mission.bundles
        or mission.pending
        or guidance.demonstrations
        or guidance.calibration != UNCALIBRATED
    )
    return config.needs_preparing and not begun


def is_due(state: State, name: str, size: int, config: LoopConfig) -> bool:
    """Whether a mission that still learns has a bundle to reflect on: ``size`` records, or a
    follow-up to an accepted edit. Learning that costs nothing is due whatever was spent."""
    mission = state.missions[name]
    if is_unpaid(state, name, config):
        return True
    if config.reflection.scope == "all":
        return not why_ended(state, name, config)
    return (mission.again or len(mission.pending) >= size) and not why_ended(state, name, config)


def is_unpaid(state: State, name: str, config: LoopConfig) -> bool:
    """Whether a mission has spent its share of a budget before it learnt anything, though code
    could for nothing."""
    by_code = config.reflection.scope == "all" or config.needs_preparing
    return (
        name in state.over
        and state.ended != STOP
        and not state.missions[name].bundles
        and by_code
        and config.has_gate
    )


def why_skip(batch: Round, state: State, config: LoopConfig) -> str:
    """Say why a round need not be rolled out; empty where it must."""
    mission = state.missions[batch.mission]
    if batch.kind == "distill":
        return "enough" if mission.distilled >= config.distill.size else ""
    if batch.learns:
        ended = why_ended(state, batch.mission, config)
        return f"learning ended: {ended}" if ended else ""
    step, _ = mission.judged.get(batch.split, (None, None))
    # Under the same guidance the streams are the same: nothing would come out differently.
    return UNCHANGED if step == mission.guidance.step else ""


def after_round(mission: MissionState, batch: Round, records: Sequence[Record]) -> MissionState:
    """Return the mission with the records of a round counted; if the round learns, its records wait
    to be reflected on."""
    tally = Tally.of(mission.guidance.labels) if batch.number == 0 else mission.tally
    for record in records:
        tally = tally.plus(record.ticket, record.answers, record.selection)
    pending = mission.pending + tuple(records) if batch.learns else mission.pending
    mission = replace(mission, tally=tally, pending=pending)
    if not batch.last:
        return mission
    choice = Choice(mission.guidance, tally.n, tally.missed, batch.scale)
    choices = (*mission.choices, choice) if batch.split == "val" else mission.choices
    return replace(
        mission,
        judged={**mission.judged, batch.split: (mission.guidance.step, tally)},
        choices=choices,
    )


def after_learning(mission: MissionState, learnt: GateResult, tools: Tools) -> MissionState:
    """Return the mission after a bundle, with its new guidance, if there is one, and what was
    spent. Under new guidance, wrong tickets may be right and failed edits may pass, so what is
    known about them is reset. An accepted edit is followed by another bundle at once if there is a
    gate: its test has just judged most of the tickets that this takes."""
    winner, before = learnt.decision.winner, mission.guidance
    spent = before.spent.plus(mission.left.less(learnt.left))
    shown = TEACHING_FOLDS * tools.config.reflection.evidence_tickets
    most = max(2 * tools.pool.size, shown)  # groups
    # Keep only judgements that may be asked for again: without a limit they would only grow.
    asked_again = {
        *tools.splits.race_set,
        *(i for group in tools.pool.groups[:most] for i in group),
    }
    seen = _keep_untouched(mission, winner.guidance, tools) if winner else mission.seen
    asked_again.update(tools.splits.by_key[key] for key, case in seen.items() if case is None)
    guidance = winner.guidance if winner else before
    judged = learnt.verdicts.of(guidance)
    p_correct = {tools.tickets[i].key: p for i, p in judged.items() if i in asked_again}
    mission = replace(mission, left=learnt.left, p_correct=p_correct, seen=seen)
    if winner:
        guidance = sign_rules(guidance, split_seed(tools.config))
        again = tools.config.has_gate
        mission = replace(mission, failed=(), idle_bundles=0, changed=True, again=again)
    else:
        mission = replace(
            mission, failed=(*mission.failed, *learnt.failed), idle_bundles=mission.idle_bundles + 1
        )
        if learnt.prepared:
            guidance = replace(learnt.prepared, step=before.step + 1)
    if guidance is not before:
        guidance = note_tickets(guidance, tools.tickets, tools.splits)
    return replace(mission, guidance=replace(guidance, spent=spent))


def _keep_untouched(mission: MissionState, after: Guidance, tools: Tools) -> dict[str, Case | None]:
    """Return what is known about the tickets seen once the guidance is ``after``: as it was where
    the edit cannot touch a ticket, else to be asked. Nothing where bundles come one by one, and
    there is little to keep."""
    if tools.config.reflection.scope != "round":
        return {}
    is_touched = find_touched(mission.guidance, after, tools.vocabulary, tools.words)
    return {
        key: case if case and not is_touched(reading(case.ticket)) else None
        for key, case in mission.seen.items()
    }


def after_distilling(
    mission: MissionState, records: Sequence[Record], config: LoopConfig
) -> MissionState:
    """Return the mission with the right answers of a round counted as training data, at most as
    many as are wanted."""
    right = sum(record.selection.label_match for record in records)
    return replace(mission, distilled=min(config.distill.size, mission.distilled + right))


def after_epoch(mission: MissionState) -> MissionState:
    """Return the mission at the end of an epoch, which was idle where no edit was accepted."""
    idle = 0 if mission.changed else mission.idle_epochs + 1
    return replace(mission, changed=False, idle_epochs=idle, pending=(), again=False)


def after_choice(mission: MissionState, config: LoopConfig) -> MissionState:
    """Return the mission with its final guidance, chosen by val alone, at the prices of errors."""
    chosen = (
        latest_of_the_best(mission.choices, config.price.by_label).guidance
        if mission.choices
        else mission.guidance
    )
    if chosen.step == mission.guidance.step:
        return mission
    # nobody gets back what was spent
    return replace(mission, guidance=replace(chosen, spent=mission.guidance.spent))


def find_over_budget(
    state: State, seconds: Mapping[str, float], config: LoopConfig
) -> dict[str, str]:
    """Map each mission that has reached its share of a budget, and would learn on, to the key of
    the first such budget. ``seconds`` are what each mission has taken."""
    budget, missions = config.budget, state.missions
    done = {name for name, mission in missions.items() if why_done(mission, config)}
    rollouts = {name: each.spent.rollouts + each.spent.judged for name, each in missions.items()}
    used: Sequence[tuple[str, float | None, Mapping[str, float]]] = (
        ("budget.rollouts", budget.rollouts, rollouts),
        (
            "budget.tokens",
            budget.tokens,
            {name: each.spent.tokens for name, each in missions.items()},
        ),
        ("budget.seconds", budget.seconds, {name: seconds.get(name, 0.0) for name in missions}),
    )
    shares = [
        (key, find_share(limit, of, done), of) for key, limit, of in used if limit is not None
    ]
    reached = {
        name: next((key for key, share, of in shares if of[name] >= share), "") for name in missions
    }
    return {
        name: key
        for name, key in reached.items()
        if key and (name not in done or missions[name].unpaid)
    }


def find_share(limit: float, used: Mapping[str, float], over: Collection[str]) -> float:
    """Return what each mission may spend of a budget: equal shares, but those that learn no more
    (``over``) leave to the others what they have not used. A mission that has spent more than its
    share takes nothing from the others."""
    count, share = len(used), limit / max(1, len(used))
    for each in sorted(used[name] for name in over):
        if each < share and count > 1:
            limit, count = limit - each, count - 1
            share = limit / count
    return share


def after_stop(state: State) -> State:
    """Return the state after learning was told to stop."""
    return replace(state, ended=STOP)


def after_spending(state: State, over: Mapping[str, str]) -> State:
    """Return the state in which these missions have reached their shares; shares that others left
    to them may let some learn again."""
    return replace(state, over=over, ended=state.ended or next(iter(over.values()), ""))


def limit_passed(before: State, after: State, schedule: GuidanceSchedule) -> str:
    """Return the key of the limit without which ``after`` would not follow ``before``: a budget
    that has ended learning, or the epochs, where the final guidance is chosen first; empty where
    there is none."""
    if before.done < schedule.choice(schedule.missions[0]) <= after.done:
        return "runner.epochs"
    return before.ended


def has_learning_left(state: State, schedule: GuidanceSchedule) -> bool:
    """Whether any learning is still to come; if not, a budget has nothing to end."""
    last = schedule.epochs[-1] if schedule.epochs else 0
    return bool(last) and state.done < schedule.close(last, schedule.missions[-1])
