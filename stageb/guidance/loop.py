"""The training-free loop: roll out, select, reflect, gate, commit, until the plan is done.

Rank 0 runs ``lead``; every rank answers what it hands out (``crew.py``). Each turn of the loop does one thing, the due
reflection or the plan's next step, as a function of the state, and ends in a commit; so a run goes on from any commit as if
nothing had happened.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stageb.guidance import artifacts, report
from stageb.guidance.config import LoopConfig
from stageb.guidance.crew import Crew
from stageb.guidance.edits import apply
from stageb.guidance.gate import Race, race
from stageb.guidance.inputs import Inputs, open_journal, read_inputs
from stageb.guidance.plan import Step, gate_pool, make_plan
from stageb.guidance.progress import Progress
from stageb.guidance.reflection import distinct, eligible, reflect
from stageb.guidance.selection import select
from stageb.guidance.state import MissionState, State, Tally, from_plain, to_plain
from stageb.guidance.types import Guidance, Proposal, Record
from stageb.journal import Journal
from stageb.runtime import Runtime, run
from stageb.seeds import stream

GATE_CHUNK = 64  # pool tickets that the contenders of a race see between two cuts


def fit(config: LoopConfig, resolved_yaml: str, fresh: bool) -> int:
    """Run, or go on with, the run that ``config`` names. Returns the exit code.

    Raises ``InputError`` before anything is started where the input cannot be used.
    """
    inputs = read_inputs(config)
    crew = Crew(config, inputs.tickets)
    return run(config.fabric, crew.handlers, lambda runtime: lead(config, resolved_yaml, fresh, inputs, crew, runtime))


def lead(config: LoopConfig, resolved_yaml: str, fresh: bool, inputs: Inputs, crew: Crew, runtime: Runtime) -> int:
    """The loop, on rank 0."""
    crew.lead(runtime)
    with open_journal(config, resolved_yaml, fresh, inputs, crew) as journal:
        plan = make_plan(inputs.parts, config, crew.round_size)
        state = begin(journal, config, inputs)
        with Progress(config, plan, state, resumed=journal.number > 0) as progress:
            progress.starts(inputs)
            loop = Loop(config, inputs, crew, journal, progress)
            while state.cursor < len(plan):
                started = time.monotonic()
                name = loop.due(state)
                state = loop.reflect(state, name) if name else loop.take(state, plan[state.cursor])
                journal.commit(to_plain(state))
                journal.note("timings.jsonl", [{"commit": journal.number, "seconds": round(time.monotonic() - started, 3)}])
        report.show(journal, config, {name: mission.guidance for name, mission in state.missions.items()})
    return 0


def begin(journal: Journal, config: LoopConfig, inputs: Inputs) -> State:
    """The committed state, or a first one; files that a crash may have left ahead of it are made to agree."""
    if journal.state is None:
        state = State(0, {name: MissionState(guidance) for name, guidance in inputs.guidance.items()})
    else:
        state = from_plain(journal.state, {(ticket.mission, ticket.key): ticket for ticket in inputs.tickets})
    for mission in state.missions.values():
        artifacts.write_guidance(journal, mission.guidance, config.guidance.retention)
    return state


class Loop:
    """The turns of the loop: each takes a state and returns the next."""

    def __init__(self, config: LoopConfig, inputs: Inputs, crew: Crew, journal: Journal, progress: Progress) -> None:
        self.config = config
        self.inputs = inputs
        self.crew = crew
        self.journal = journal
        self.progress = progress

    def due(self, state: State) -> str:
        """The mission that has gathered a full bundle; empty where none has."""
        size = self.config.reflection.batch_size
        return next((name for name, mission in state.missions.items() if len(mission.pending) >= size), "")

    def take(self, state: State, step: Step) -> State:
        """The plan's next step: a round, or what an epoch leaves for reflection."""
        mission = state.missions[step.mission]
        if step.kind == "close":
            after = self.reflect(state, step.mission) if mission.pending else state
        else:
            after = state.with_mission(step.mission, self.round(mission, step))
        return replace(after, cursor=state.cursor + 1)

    def round(self, mission: MissionState, step: Step) -> MissionState:
        """Roll out one round, select, record."""
        known = mission.judged.get(step.split)
        if step.epoch > 0 and not step.learns and known and known[0] == mission.guidance.step:
            if step.last:  # same guidance, same streams: nothing would come out differently
                artifacts.write_metrics(self.journal, step, mission.guidance.step, known[1])
            self.progress.reused(step)
            return mission
        records = self.roll_out(step, mission.guidance)
        artifacts.write_round(self.journal, step, records)
        tally = Tally() if step.number == 0 else mission.tally
        for record in records:
            tally = tally.plus(record.ticket, record.answers, record.selection)
        mission = replace(mission, tally=tally)
        if step.learns:
            mission = replace(mission, pending=mission.pending + tuple(records))
        if step.last:
            artifacts.write_metrics(self.journal, step, mission.guidance.step, tally)
            mission = replace(mission, judged={**mission.judged, step.split: (mission.guidance.step, tally)})
        self.progress.round(step, tally, mission.guidance.step)
        return mission

    def roll_out(self, step: Step, guidance: Guidance) -> list[Record]:
        """Answers and selections of a step's tickets. Streams are named by the epoch only where the step learns."""
        epoch = step.epoch if step.learns else 0
        answers = self.crew.rollout(step.tickets, guidance, [self.config.seed, "rollout", epoch], self.progress.within)
        agreement = self.config.manual_review.min_verdict_agreement
        tickets = [self.inputs.tickets[i] for i in step.tickets]
        return [
            Record(ticket, step.epoch, step.number, guidance.step, given, select(ticket, given, agreement))
            for ticket, given in zip(tickets, answers, strict=True)
        ]

    def reflect(self, state: State, name: str) -> State:
        """Reflect on a mission's oldest bundle, gate what is proposed, apply what is accepted."""
        mission, config = state.missions[name], self.config
        size = config.reflection.batch_size
        bundle, left = mission.pending[:size], mission.pending[size:]
        reflection_id = f"R{mission.bundles + 1}"
        why_not = eligible(bundle)
        key = stream(config.seed, "reflection", name, mission.bundles)
        self.progress.says(f"{name}: {why_not or f'reflecting on {len(bundle)} records'}")
        engine = self.crew.reflection_engine()
        proposals = reflect(bundle, mission.guidance, engine, config.reflection, config.prompt.language, key)
        mission = replace(mission, pending=left, bundles=mission.bundles + 1)
        before = mission.guidance
        mission, gate_row, applied = self.gate(mission, distinct(proposals), reflection_id)
        row = {
            "mission": name,
            "reflection_id": reflection_id,
            "records": len(bundle),
            "eligible": not why_not,
            "why_not": why_not,
            "proposals": [artifacts.proposal_row(proposal) for proposal in proposals],
            "gate": gate_row,
            "applied": applied is not None,
            "applied_proposal": applied.index if applied else None,
            "guidance_step_before": before.step,
            "guidance_step_after": mission.guidance.step,
        }
        artifacts.write_reflection(self.journal, name, row, proposals)
        if applied:
            artifacts.write_guidance(self.journal, mission.guidance, config.guidance.retention)
        self.progress.reflected(name, reflection_id, why_not, gate_row, before, mission.guidance)
        return state.with_mission(name, mission)

    def gate(
        self, mission: MissionState, contenders: Sequence[tuple[Proposal, int]], reflection_id: str
    ) -> tuple[MissionState, dict[str, Any] | None, Proposal | None]:
        """The mission after the edit that is accepted, the gate's figures, and the accepted proposal, if there is one."""
        edited = [apply(mission.guidance, proposal.operations, reflection_id) for proposal, _ in contenders]
        if not edited:
            return mission, None, None
        if self.config.gate == "none":
            return replace(mission, guidance=edited[0], pool=None), None, contenders[0][0]
        pool = gate_pool(self.inputs.parts[mission.guidance.mission]["train"], self.config, mission.guidance.mission)
        known = mission.pool or tuple(self.crew.judge([(mission.guidance, pool)])[0])
        outcome = race(
            known,
            len(edited),
            lambda asked: self.crew.judge([(edited[one], [pool[i] for i in positions]) for one, positions in asked]),
            self.config.gate.alpha,
            GATE_CHUNK,
        )
        row = gate_figures(outcome, contenders, len(pool), known.count(True))
        if outcome.winner is None:
            return replace(mission, pool=known), row, None
        winner = outcome.winner
        return replace(mission, guidance=edited[winner], pool=outcome.right_after), row, contenders[winner][0]


def gate_figures(outcome: Race, contenders: Sequence[tuple[Proposal, int]], pool: int, right: int) -> dict[str, Any]:
    """What reflection.jsonl says of a race."""
    return {
        "pool": pool,
        "right_before": right,
        "verdicts": outcome.judged,
        "contenders": [
            {
                "proposal": proposal.index,
                "proposed_times": count,
                "seen": t.wrong_seen + t.right_seen,
                "won": t.wins,
                "lost": t.losses,
            }
            for (proposal, count), t in zip(contenders, outcome.tallies, strict=True)
        ],
    }
