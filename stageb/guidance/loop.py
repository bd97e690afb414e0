"""The training-free loop: roll out, select, reflect, gate, prune, commit, until the plan is done.

Rank 0 runs ``lead``; every rank answers what it hands out (``crew.py``). Each turn of the loop does one thing, the due
reflection or the plan's next step, as a function of the state, and ends in a commit; so a run goes on from any commit as if
nothing had happened.
"""

from __future__ import annotations

import time
from dataclasses import replace

from stageb.guidance import report
from stageb.guidance.config import LoopConfig
from stageb.guidance.crew import Crew
from stageb.guidance.files import artifacts
from stageb.guidance.gate.pruning import NO_REMOVALS, Allowance
from stageb.guidance.inputs import Inputs, open_journal, read_inputs
from stageb.guidance.learning import Learner
from stageb.guidance.plan import Step, make_plan
from stageb.guidance.progress import Progress
from stageb.guidance.selection import latest_of_the_best, select
from stageb.guidance.state import Choice, MissionState, State, Tally, from_plain, to_plain
from stageb.guidance.types import Record
from stageb.journal import Journal
from stageb.runtime import Runtime, run


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
        plan = make_plan(inputs.parts, inputs.raced, config, crew.round_size)
        state = begin(journal, config, inputs)
        with Progress(config, plan, state, resumed=journal.number > 0) as progress:
            progress.starts(inputs, crew.judges_by)
            loop = Loop(config, inputs, crew, journal, progress)
            while state.cursor < len(plan):
                started = time.monotonic()
                name = loop.due(state)
                state = loop.learner.reflect(state, name) if name else loop.take(state, plan[state.cursor])
                if any(step.learns for step in plan[state.cursor :]):
                    state = loop.ended(state)
                journal.commit(to_plain(state))
                journal.note("timings.jsonl", [{"commit": journal.number, "seconds": round(time.monotonic() - started, 3)}])
        report.show(journal, config, state)
    return 0


def begin(journal: Journal, config: LoopConfig, inputs: Inputs) -> State:
    """The committed state, or a first one; files that a crash may have left ahead of it are made to agree."""
    if journal.state is None:
        share = config.gate.alpha / len(inputs.guidance) if config.gate != "none" else 0.0
        allowance = Allowance(config.gate.removal_margin, share) if config.gate != "none" else NO_REMOVALS
        state = State(0, {name: MissionState(guidance, share, allowance) for name, guidance in inputs.guidance.items()})
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
        self.learner = Learner(config, inputs, crew, journal, progress)
        self._began = time.monotonic() - sum(row["seconds"] for row in journal.notes("timings.jsonl"))

    # What is next

    def due(self, state: State) -> str:
        """The mission that has gathered a full bundle, or has more to learn from its last one; empty where none has."""
        size = self.config.reflection.batch_size
        names = (name for name, mission in state.missions.items() if mission.again or len(mission.pending) >= size)
        return next((name for name in names if self.learns(state, name)), "")

    def learns(self, state: State, name: str) -> bool:
        """Whether a mission goes on learning: no budget has ended that, and it has not been idle for too long."""
        patience = self.config.early_stop.patience
        return not state.ended and (patience is None or state.missions[name].idle_epochs < patience)

    def ended(self, state: State) -> State:
        """The state, marked where it has reached the end of a budget."""
        budget, spent = self.config.budget, state.spent
        limits = {
            "budget.rollouts": (spent.rollouts + spent.judged, budget.rollouts),
            "budget.tokens": (spent.tokens, budget.tokens),
            "budget.seconds": (time.monotonic() - self._began, budget.seconds),
        }
        over = (name for name, (used, limit) in limits.items() if limit is not None and used >= limit)
        return state if state.ended else replace(state, ended=next(over, ""))

    def take(self, state: State, step: Step) -> State:
        """The plan's next step, where it is still of use."""
        after = replace(state, cursor=state.cursor + 1)
        mission = state.missions[step.mission]
        if step.learns and not self.learns(state, step.mission):
            self.progress.passes(step, f"learning ended: {state.ended or 'early_stop.patience'}")
            return after.with_mission(step.mission, replace(mission, pending=(), again=()))
        if step.kind == "close":
            return self.close(after, step)
        if step.kind == "choose":
            return after.with_mission(step.mission, self.choose(mission, step))
        return self.distill(after, step) if step.kind == "distill" else self.round(after, step)

    # The kinds of step

    def round(self, state: State, step: Step) -> State:
        """Roll out one round, select, record."""
        mission = state.missions[step.mission]
        known = mission.judged.get(step.split)
        if not step.learns and known and known[0] == mission.guidance.step and step.epoch > 0:
            if step.last:  # same guidance, same streams: nothing would come out differently
                artifacts.write_metrics(self.journal, step, mission.guidance.step, known[1])
            self.progress.passes(step, "unchanged")
            return state
        records, state = self.roll_out(state, step)
        artifacts.write_round(self.journal, step, records, audit=self.config.jump_reflection)
        tally = Tally() if step.number == 0 else mission.tally
        for record in records:
            tally = tally.plus(record.ticket, record.answers, record.selection)
        mission = replace(mission, tally=tally, pending=mission.pending + tuple(records) if step.learns else mission.pending)
        if step.last:
            artifacts.write_metrics(self.journal, step, mission.guidance.step, tally)
            mission = replace(mission, judged={**mission.judged, step.split: (mission.guidance.step, tally)})
            if step.split == "val":
                mission = replace(mission, choices=(*mission.choices, Choice(mission.guidance, tally.right, tally.n)))
        self.progress.round(step, tally, mission.guidance.step)
        return state.with_mission(step.mission, mission)

    def roll_out(self, state: State, step: Step, temperature: float | None = None) -> tuple[list[Record], State]:
        """Answers and selections of a step's tickets, and what they cost. Streams are named by the epoch only where the step
        learns."""
        guidance, epoch = state.missions[step.mission].guidance, step.epoch if step.learns else 0
        names = [self.config.seed, "distill" if step.kind == "distill" else "rollout", epoch]
        answers = self.crew.rollout(step.tickets, guidance, names, self.progress.within, temperature)
        agreement = self.config.manual_review.min_verdict_agreement
        tickets = [self.inputs.tickets[i] for i in step.tickets]
        records = [
            Record(ticket, step.epoch, step.number, guidance.step, given, select(ticket, given, agreement))
            for ticket, given in zip(tickets, answers, strict=True)
        ]
        candidates = [candidate for given in answers for candidate in given.candidates]
        tokens = sum(given.prompt_tokens for given in answers if given.candidates) + sum(each.tokens for each in candidates)
        return records, replace(state, spent=state.spent.plus(rollouts=len(candidates), tokens=tokens))

    def close(self, state: State, step: Step) -> State:
        """The end of a mission's epoch: reflect on what is left, seek rules that earn nothing, count idle epochs."""
        if state.missions[step.mission].pending:
            state = self.learner.reflect(state, step.mission)
        state = self.learner.prune(state, step.mission)
        mission = state.missions[step.mission]
        idle = 0 if mission.changed else mission.idle_epochs + 1
        return state.with_mission(step.mission, replace(mission, changed=False, idle_epochs=idle))

    def choose(self, mission: MissionState, step: Step) -> MissionState:
        """The final guidance, by val alone."""
        if not mission.choices:
            return mission
        chosen = latest_of_the_best(mission.choices)
        artifacts.write_choice(self.journal, step.mission, mission.choices, chosen)
        if chosen.guidance.step != mission.guidance.step:
            self.progress.tells(f"{step.mission}: back to guidance step {chosen.guidance.step}, which does better on val")
            artifacts.write_guidance(self.journal, chosen.guidance, self.config.guidance.retention)
        return replace(mission, guidance=chosen.guidance)

    def distill(self, state: State, step: Step) -> State:
        """Right answers of one round as training data, up to ``distill.size`` of a mission."""
        wanted = self.config.distill.size - state.missions[step.mission].distilled
        if wanted <= 0:
            self.progress.passes(step, "enough")
            return state
        records, state = self.roll_out(state, step, self.config.distill.temperature)
        mission = state.missions[step.mission]
        right = [record for record in records if record.selection.label_match][:wanted]
        artifacts.write_distilled(self.journal, mission.guidance, right, self.config.prompt.language)
        self.progress.passes(step, f"{mission.distilled + len(right)} right answers")
        return state.with_mission(step.mission, replace(mission, distilled=mission.distilled + len(right)))
