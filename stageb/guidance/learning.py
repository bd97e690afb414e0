"""Learning from a bundle: reflect, try what is proposed, accept at most one edit; and let go of rules that earn nothing.

One bundle after another, since each edit changes what later answers read; the answers of one bundle, and judging tickets for
the gate, are spread over all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from stageb.engines.protocol import Prompt
from stageb.guidance.config import GateConfig, LoopConfig
from stageb.guidance.crew import Crew
from stageb.guidance.files import artifacts
from stageb.guidance.gate.decide import Contender, Decision, Jury, decide, prune, unseen
from stageb.guidance.gate.pruning import earned, lighter, traded
from stageb.guidance.inputs import Inputs
from stageb.guidance.progress import Progress
from stageb.guidance.prompts import rule_lines
from stageb.guidance.reflection.edits import apply, named
from stageb.guidance.reflection.reflect import distinct, eligible, is_right, judged_again, reflect
from stageb.guidance.state import MissionState, State
from stageb.guidance.types import Guidance, Proposal, Record
from stageb.journal import Journal
from stageb.seeds import shuffled, stream

LOOK = 32  # tickets, at the least, between two looks of a test; half a round where that is more, so that no rank is idle
FEWEST_TO_PRUNE = 2  # rules beside the headline
CREDITED_ON = 96  # tickets that say what each rule earns


class Learner:
    """Changes guidance: each method takes a state and returns the next."""

    def __init__(self, config: LoopConfig, inputs: Inputs, crew: Crew, journal: Journal, progress: Progress) -> None:
        self.config = config
        self.inputs = inputs
        self.crew = crew
        self.journal = journal
        self.progress = progress

    def reflect(self, state: State, name: str) -> State:
        """Reflect on a mission's oldest bundle, gate what is proposed, apply what is accepted.

        A bundle that has taught something is reflected on again, judged by the edited guidance in place of another rollout.
        """
        mission, config = state.missions[name], self.config
        size = config.reflection.batch_size
        bundle = mission.again or mission.pending[:size]
        cases = list({record.ticket.key: record for record in (*mission.unsolved, *bundle)}.values())
        reflection_id, why_not = f"R{mission.bundles + 1}", eligible(cases)
        key = stream(config.seed, "reflection", name, mission.bundles)
        pending = mission.pending if mission.again else mission.pending[size:]
        mission = replace(mission, pending=pending, again=(), bundles=mission.bundles + 1)
        self.progress.says(f"{name}: {why_not or f'reflecting on {len(bundle)} records'}")
        engine = self.crew.reflection_engine()
        answered = reflect(cases, mission.guidance, engine, config.reflection, config.prompt.language, key)
        spent = state.spent.plus(reflections=len(answered.proposals), tokens=answered.tokens)
        unsolved = [record for record in cases if not is_right(record) and not record.answers.set_aside]
        mission = replace(mission, unsolved=tuple(unsolved[-size:]))
        state = replace(state.with_mission(name, mission), spent=spent)
        row = {
            "mission": name,
            "reflection_id": reflection_id,
            "records": len(bundle),
            "eligible": not why_not,
            "why_not": why_not,
            "proposals": [artifacts.proposal_row(proposal) for proposal in answered.proposals],
        }
        artifacts.write_refused(self.journal, name, reflection_id, answered.proposals)
        if config.gate == "none":
            return self._untested(state, name, row, answered.proposals)
        jury = self._jury(mission, config.gate)
        # Anew for each bundle, so that no edit owes its place to the same few tickets for good.
        race_on = shuffled(self.inputs.raced[name], stream(key, "race"))
        drawn = self._positions(name, bundle)
        contenders = [
            each
            for each in self._contenders(mission.guidance, answered.proposals, drawn, reflection_id, jury, race_on)
            if rule_lines(each.guidance) not in mission.failed
        ]
        self.progress.says(f"{name}: trying {len(contenders)} edits")

        def join(one: Contender, other: Contender) -> Contender | None:
            return self._joined(mission, one, other, reflection_id)

        others, most = self._not_raced(name), config.gate.pool_size

        def pool_of(contender: Contender) -> list[int]:
            return unseen(others, contender.shown, self.inputs.tickets)[:most]

        decision = decide(contenders, jury, join, race_on, pool_of, mission.left, self._look, config.gate.race_chunk)
        if decision.winner:
            jury.merits([(decision.winner.guidance, self._positions(name, cases))])
        state = self._settled(state, name, row, decision, jury)
        if decision.winner is None:
            return state
        again = tuple(judged_again(cases, state.missions[name].merits))
        more = again if not eligible(again) else ()
        return state.with_mission(name, replace(state.missions[name], again=more))

    def prune(self, state: State, name: str) -> State:
        """Seek a rule that can go, where the guidance has changed since none could."""
        mission, config = state.missions[name], self.config
        rules = len(mission.guidance.rules) - 1
        if config.gate == "none" or rules < FEWEST_TO_PRUNE or mission.pruned_step == mission.guidance.step:
            return state
        step_id = f"P{mission.guidance.step}"
        race_on, pool = self.inputs.raced[name][:CREDITED_ON], self._not_raced(name)[: config.gate.pool_size]
        jury = self._jury(mission, config.gate)
        contenders = lighter(mission.guidance, step_id)
        self.progress.says(f"{name}: what does each of {rules} rules earn?")
        decision = prune(contenders, jury, race_on, pool, config.gate.removal_margin, mission.left, self._look)
        row = {
            "mission": name,
            "reflection_id": step_id,
            "credits": earned(mission.guidance, jury, race_on),
            "proposals": [artifacts.proposal_row(proposal) for each in contenders for proposal in each.proposals],
        }
        state = self._settled(state, name, row, decision, jury)
        if decision.winner is None:
            mission = replace(state.missions[name], pruned_step=mission.guidance.step)
            return state.with_mission(name, mission)
        return state

    def _contenders(
        self,
        guidance: Guidance,
        proposals: Sequence[Proposal],
        drawn: Sequence[int],
        reflection_id: str,
        jury: Jury,
        race_on: Sequence[int],
    ) -> list[Contender]:
        """The different edits that are proposed, each with room made for it where it needs some. ``drawn`` holds the
        positions of the bundle's tickets."""
        train = {self.inputs.tickets[i].key: i for i in self.inputs.parts[guidance.mission]["train"]}
        contenders = []
        for proposal, times in distinct(proposals):
            operations: tuple[Any, ...] | None = proposal.operations
            if not self._fits(apply(guidance, proposal.operations)):
                operations = traded(guidance, proposal.operations, self._fits, earned(guidance, jury, race_on[:CREDITED_ON]))
            if operations is None:
                continue
            evidence = dict.fromkeys(train[key] for operation in proposal.operations for key in operation.evidence)
            edited, gone = apply(guidance, operations, reflection_id), operations[len(proposal.operations) :]
            keys = tuple(operation.key for operation in gone)
            shown = dict.fromkeys([*drawn, *(train[key] for key in proposal.cases)])
            contenders.append(Contender((proposal,), times, edited, tuple(evidence), keys, tuple(shown)))
        return contenders

    def _joined(self, mission: MissionState, one: Contender, other: Contender, reflection_id: str) -> Contender | None:
        """The edit that does what both do; None where they name one rule, there is no room for both, or it failed before."""
        operations = [op for contender in (one, other) for proposal in contender.proposals for op in proposal.operations]
        touched = [key for operation in operations for key in named(operation)]
        if len(set(touched)) < len(touched):
            return None
        edited = apply(mission.guidance, operations, reflection_id)
        evidence = tuple(dict.fromkeys((*one.evidence, *other.evidence)))
        shown = tuple(dict.fromkeys((*one.shown, *other.shown)))
        together = Contender((*one.proposals, *other.proposals), min(one.times, other.times), edited, evidence, shown=shown)
        return together if self._fits(edited) and rule_lines(edited) not in mission.failed else None

    def _fits(self, guidance: Guidance) -> bool:
        """Whether a guidance keeps to the limits; its length is counted without what surrounds every prompt."""
        config, engine = self.config.reflection, self.crew.reflection_engine()
        full, empty = engine.count_tokens([Prompt(rule_lines(guidance), ""), Prompt("", "")])
        return len(guidance.rules) <= config.max_rules and full - empty <= config.max_guidance_tokens

    def _untested(self, state: State, name: str, row: dict[str, Any], proposals: Sequence[Proposal]) -> State:
        """The first edit that is proposed and keeps to the limits, applied as it is."""
        mission = state.missions[name]
        edits = (
            Contender((proposal,), times, apply(mission.guidance, proposal.operations, row["reflection_id"]))
            for proposal, times in distinct(proposals)
        )
        fitting = (edit for edit in edits if self._fits(edit.guidance))
        return self._settled(state, name, row, Decision((), mission.left, next(fitting, None)), None)

    def _settled(
        self,
        state: State,
        name: str,
        row: dict[str, Any],
        decision: Decision,
        jury: Jury | None,
    ) -> State:
        """The state after a decision, which is written down and shown."""
        mission = state.missions[name]
        before, winner = mission.guidance, decision.winner
        after = winner.guidance if winner else before
        row |= {
            "gate": artifacts.gate_row(decision, jury.judged, mission.left) if jury else None,
            "applied": winner is not None,
            "applied_proposals": [proposal.index for proposal in winner.proposals] if winner else [],
            "guidance_step_before": before.step,
            "guidance_step_after": after.step,
        }
        artifacts.write_reflection(self.journal, name, row)
        if winner:
            artifacts.write_guidance(self.journal, after, self.config.guidance.retention)
        self.progress.learnt(name, row, before, after)
        merits = {self.inputs.tickets[i].key: merit for i, merit in jury.known(after).items()} if jury else {}
        failed = (rule_lines(trial.contender.guidance) for trial in decision.trials if trial.test)
        mission = replace(mission, guidance=after, left=decision.left, merits=merits, failed=(*mission.failed, *failed))
        if winner:  # what was wrong may be right now, and what failed may do
            mission = replace(mission, changed=True, unsolved=(), failed=())
        spent = state.spent.plus(judged=jury.judged, tokens=jury.tokens) if jury else state.spent
        return replace(state.with_mission(name, mission), spent=spent)

    def _positions(self, name: str, bundle: Sequence[Record]) -> list[int]:
        """Where the bundle's tickets stand, each once, those set aside left out."""
        train = {self.inputs.tickets[i].key: i for i in self.inputs.parts[name]["train"]}
        return list(dict.fromkeys(train[record.ticket.key] for record in bundle if not record.answers.set_aside))

    def _not_raced(self, name: str) -> list[int]:
        """The train tickets that edits may be tested on; in one order from bundle to bundle, so that the present guidance
        need not judge new ones each time."""
        train, raced = self.inputs.parts[name]["train"], set(self.inputs.raced[name])
        return [i for i in shuffled(train, stream(self.config.seed, "gate", name)) if i not in raced]

    def _jury(self, mission: MissionState, gate: GateConfig) -> Jury:
        train = self.inputs.parts[mission.guidance.mission]["train"]
        known = {i: mission.merits[key] for i in train if (key := self.inputs.tickets[i].key) in mission.merits}
        return Jury(self.crew.judge, self.inputs.tickets, gate, mission.guidance, known)

    @property
    def _look(self) -> int:
        return max(LOOK, self.crew.round_size // 2)
