"""Learning from a bundle: reflect, try what is proposed, accept at most one edit; and let go of rules that earn nothing.

One bundle after another, since each edit changes what later answers read; the answers of one bundle, and judging tickets for
the gate, are spread over all ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from stageb.engines.protocol import Prompt
from stageb.guidance.config import GateConfig, LoopConfig
from stageb.guidance.crew import Crew
from stageb.guidance.files import artifacts
from stageb.guidance.gate.decide import Decision, Edit, Gate, decide
from stageb.guidance.gate.judge import Judge, digest
from stageb.guidance.gate.pool import Pool, whole_groups
from stageb.guidance.gate.pruning import earned, prune, traded
from stageb.guidance.inputs import Inputs
from stageb.guidance.progress import Progress
from stageb.guidance.prompts import rule_lines
from stageb.guidance.reflection.edits import apply, named
from stageb.guidance.reflection.reflect import distinct, eligible, is_right, judged_again, reflect
from stageb.guidance.state import MissionState, State
from stageb.guidance.types import Guidance, Proposal
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
        drawn = mission.bundle if mission.again else tuple(dict.fromkeys(record.ticket.key for record in bundle))
        reflection_id, why_not = f"R{mission.bundles + 1}", eligible(cases)
        key = stream(config.seed, "reflection", name, mission.bundles)
        pending = mission.pending if mission.again else mission.pending[size:]
        mission = replace(mission, pending=pending, again=(), bundle=(), bundles=mission.bundles + 1)
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
        judge = self._judge(mission, config.gate)
        # Anew for each bundle, so that no edit owes its place to the same few tickets for good.
        race_on = shuffled(self.inputs.raced[name], stream(key, "race"))
        gate = Gate(judge, race_on, config.gate.race_chunk, self._pools[name], self._look)
        shown = [self._places[name][key] for key in drawn]
        edits = [
            each
            for each in self._edits(mission.guidance, answered.proposals, shown, reflection_id, gate)
            if digest(each.guidance) not in mission.failed
        ]
        self.progress.says(f"{name}: trying {len(edits)} edits")
        decision = decide(edits, gate, partial(self._joined, mission, reflection_id), mission.left)
        if decision.winner:
            asked = [self._places[name][record.ticket.key] for record in cases if not record.answers.set_aside]
            judge.merits([(decision.winner.guidance, asked)])
        state = self._settled(state, name, row, decision, judge)
        if decision.winner is None:
            return state
        again = tuple(judged_again(cases, state.missions[name].merits, set(drawn)))
        if eligible(again):
            return state
        return state.with_mission(name, replace(state.missions[name], again=again, bundle=drawn))

    def prune(self, state: State, name: str) -> State:
        """Seek a rule that can go, where the guidance has changed since none could."""
        mission, config = state.missions[name], self.config
        rules = len(mission.guidance.rules) - 1
        if config.gate == "none" or rules < FEWEST_TO_PRUNE or mission.pruned_step == mission.guidance.step:
            return state
        step_id = f"P{mission.guidance.step}"
        judge = self._judge(mission, config.gate)
        race_on = self.inputs.raced[name][:CREDITED_ON]
        gate = Gate(judge, race_on, config.gate.race_chunk, self._pools[name], self._look)
        self.progress.says(f"{name}: what does each of {rules} rules earn?")
        removal = prune(mission.guidance, step_id, gate, mission.allowance)
        row = {
            "mission": name,
            "reflection_id": step_id,
            "credits": removal.credits,
            "margin_before": round(mission.allowance.margin, 6),
            "margin_after": round(removal.left.margin, 6),
            "proposals": [artifacts.proposal_row(proposal) for each in removal.tried for proposal in each.edit.proposals],
        }
        changed = mission.changed  # a rule that goes is no accepted edit: it does not keep a mission learning
        state = self._settled(state, name, row, Decision(removal.tried, mission.left, removal.winner), judge)
        searched = mission.pruned_step if removal.winner else mission.guidance.step
        mission = replace(state.missions[name], allowance=removal.left, pruned_step=searched, changed=changed)
        return state.with_mission(name, mission)

    def _edits(
        self,
        guidance: Guidance,
        proposals: Sequence[Proposal],
        drawn: Sequence[int],
        reflection_id: str,
        gate: Gate,
    ) -> list[Edit]:
        """The different edits that are proposed, each with room made for it where it needs some. ``drawn`` holds the
        positions of the bundle's tickets."""
        train = self._places[guidance.mission]
        edits = []
        for proposal, times in distinct(proposals):
            operations: tuple[Any, ...] | None = proposal.operations
            if not self._fits(apply(guidance, proposal.operations)):
                operations = traded(
                    guidance, proposal.operations, self._fits, earned(guidance, gate.judge, gate.race_on[:CREDITED_ON])
                )
            if operations is None:
                continue
            evidence = dict.fromkeys(train[key] for operation in proposal.operations for key in operation.evidence)
            edited, gone = apply(guidance, operations, reflection_id), operations[len(proposal.operations) :]
            keys = tuple(operation.key for operation in gone)
            shown = dict.fromkeys([*drawn, *(train[key] for key in proposal.cases)])
            edits.append(Edit((proposal,), times, edited, tuple(evidence), keys, tuple(shown)))
        return edits

    def _joined(self, mission: MissionState, reflection_id: str, one: Edit, other: Edit) -> Edit | None:
        """The edit that does what both do; None where they name one rule, there is no room for both, or it failed before."""
        operations = [op for edit in (one, other) for proposal in edit.proposals for op in proposal.operations]
        touched = [key for operation in operations for key in named(operation)]
        if len(set(touched)) < len(touched):
            return None
        edited = apply(mission.guidance, operations, reflection_id)
        evidence = tuple(dict.fromkeys((*one.evidence, *other.evidence)))
        shown = tuple(dict.fromkeys((*one.shown, *other.shown)))
        together = Edit((*one.proposals, *other.proposals), min(one.times, other.times), edited, evidence, shown=shown)
        return together if self._fits(edited) and digest(edited) not in mission.failed else None

    def _fits(self, guidance: Guidance) -> bool:
        """Whether a guidance keeps to the limits; its length is counted without what surrounds every prompt."""
        config, engine = self.config.reflection, self.crew.reflection_engine()
        full, empty = engine.count_tokens([Prompt(rule_lines(guidance), ""), Prompt("", "")])
        return len(guidance.rules) <= config.max_rules and full - empty <= config.max_guidance_tokens

    def _untested(self, state: State, name: str, row: dict[str, Any], proposals: Sequence[Proposal]) -> State:
        """The first edit that is proposed and keeps to the limits, applied as it is."""
        mission = state.missions[name]
        edits = (
            Edit((proposal,), times, apply(mission.guidance, proposal.operations, row["reflection_id"]))
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
        judge: Judge | None,
    ) -> State:
        """The state after a decision, which is written down and shown."""
        mission = state.missions[name]
        before, winner = mission.guidance, decision.winner
        after = winner.guidance if winner else before
        row |= {
            "gate": artifacts.gate_row(decision, judge.judged, mission.left) if judge else None,
            "applied": winner is not None,
            "applied_proposals": [proposal.index for proposal in winner.proposals] if winner else [],
            "guidance_step_before": before.step,
            "guidance_step_after": after.step,
        }
        artifacts.write_reflection(self.journal, name, row)
        if winner:
            artifacts.write_guidance(self.journal, after, self.config.guidance.retention)
        self.progress.learnt(name, row, before, after)
        merits = {self.inputs.tickets[i].key: merit for i, merit in judge.known(after).items()} if judge else {}
        failed = (digest(each.edit.guidance) for each in decision.tried if each.test)
        mission = replace(mission, guidance=after, left=decision.left, merits=merits, failed=(*mission.failed, *failed))
        if winner:  # what was wrong may be right now, and what failed may do
            mission = replace(mission, changed=True, unsolved=(), failed=())
        spent = state.spent.plus(judged=judge.judged, tokens=judge.tokens) if judge else state.spent
        return replace(state.with_mission(name, mission), spent=spent)

    @cached_property
    def _places(self) -> dict[str, dict[str, int]]:
        """For each mission, where the tickets of train stand, by ticket_key."""
        return {name: {self.inputs.tickets[i].key: i for i in parts["train"]} for name, parts in self.inputs.parts.items()}

    @cached_property
    def _pools(self) -> dict[str, Pool]:
        """For each mission, the train tickets that edits may be tested on; in one order from bundle to bundle, so that the
        present guidance need not judge new ones each time."""
        gate, pools = self.config.gate, {}
        assert gate != "none"
        for name, parts in self.inputs.parts.items():
            raced = set(self.inputs.raced[name])
            order = shuffled(parts["train"], stream(self.config.seed, "gate", name))
            groups = whole_groups((i for i in order if i not in raced), self.inputs.tickets)
            pools[name] = Pool(groups, self.inputs.tickets, gate.pool_size)
        return pools

    def _judge(self, mission: MissionState, gate: GateConfig) -> Judge:
        places = self._places[mission.guidance.mission]
        known = {places[key]: merit for key, merit in mission.merits.items() if key in places}
        return Judge(self.crew.judge, self.inputs.tickets, gate, mission.guidance, known)

    @property
    def _look(self) -> int:
        return max(LOOK, self.crew.round_size // 2)
