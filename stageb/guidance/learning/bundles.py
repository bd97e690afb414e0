"""Learning from bundles: a model reflects on what rollouts got wrong, and a race and a test decide
on what it proposes.

One bundle follows another, since each edit changes what later answers read. With
``reflection.scope`` round, there is a bundle for each fold instead: all are reflected on under one
guidance, and their proposals are tested in turn under what was accepted by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from stageb.guidance.judging.questions import Dialogue, sample_together
from stageb.guidance.learning.attempts import NO_ROOM
from stageb.guidance.learning.gate.decide import Decision, Edit, decide, decide_by
from stageb.guidance.learning.gate.judgements import ask_once, digest
from stageb.guidance.learning.preparing import Preparer
from stageb.guidance.learning.proposer import Bundle, GateResult, Lesson
from stageb.guidance.learning.reflect import case_of, merge_equal, reflect
from stageb.guidance.learning.state import MissionState
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules.edits import apply, named
from stageb.guidance.rules.judge import check_proposal
from stageb.guidance.rules.prompts import Case
from stageb.guidance.tickets.splits import bundle_size, bundles_at_once, oversampling
from stageb.guidance.words.types import TEACHING_FOLDS, Guidance, Proposal
from stageb.seeds import shuffled, stream

REMEMBERED = 1024  # rolled-out tickets, at most, whose outcome a mission keeps


@dataclass(frozen=True, slots=True)
class Reflection:
    """Has the model propose edits, from its errors. See ``Proposer``."""

    tools: Tools

    def draw(self, mission: MissionState) -> Dialogue[tuple[MissionState, tuple[Bundle, ...]]]:
        """Return the mission without its oldest records, and the bundle of the next fold; with
        ``reflection.scope`` round, without all of its records, and a bundle for each fold.

        A fold's tickets are those that were rolled out under the present guidance, or under an
        earlier one; those that an edit has touched since then are judged anew. Where there are
        fewer than ``reflection.evidence_tickets``, and there is a gate, the first of the other
        tickets join them, judged now where the guidance has not judged them yet. Which they are
        does not depend on where an earlier test stopped: that would tell about tickets that this
        bundle's edits are tested on. An accepted edit is followed by another bundle without another
        rollout: most of what that needs to know has just been judged by its test.
        """
        tools, number = self.tools, mission.bundles
        config, tickets, pool = tools.config, tools.tickets, tools.pool
        mission = _take_records(mission, tools)
        numbers = range(number, number + bundles_at_once(config))
        mission = replace(mission, again=False, bundles=numbers.stop)
        keys = [
            stream(config.seed, "reflection", mission.guidance.mission, each) for each in numbers
        ]
        if not config.has_gate:
            return mission, (Bundle(number, keys[0], tuple(filter(None, mission.seen.values()))),)
        wanted = config.reflection.evidence_tickets if config.reflection.evidence else 0
        wanted *= oversampling(config) if tools.splits.inclusion_prob else 1
        rolled_out = {tools.splits.by_key[key]: case for key, case in mission.seen.items()}
        folds, asked = [], [i for i, case in rolled_out.items() if case is None]
        for each in numbers:
            there = set(pool.of_fold(each, rolled_out))
            further = list(
                islice((i for i in pool.fold(each) if i not in there), max(0, wanted - len(there)))
            )
            folds.append(pool.of_fold(each, there.union(further)))
            asked += further
        judging = tools.make_judge(mission.guidance).p_correct([(mission.guidance, asked)])
        _, verdicts = yield from ask_once(judging, tools.known_verdicts(mission))
        p_correct = verdicts.of(mission.guidance)
        weights = tools.weights

        def case_at(position: int) -> Case:
            return rolled_out.get(position) or Case(
                tickets[position], p_correct[position] > 0.5, None
            )

        def weighed(position: int) -> Case:
            return replace(case_at(position), weight=weights.get(tickets[position].label, 1.0))

        first, *others = (
            Bundle(each, key, tuple(map(weighed, fold)))
            for each, key, fold in zip(numbers, keys, folds, strict=True)
        )
        seen = {tickets[i].key: case_at(i) for i in rolled_out}
        mission = replace(
            mission, seen=seen, p_correct={tickets[i].key: p for i, p in p_correct.items()}
        )
        return mission, (first.after(verdicts), *others)  # asked for all of them at once

    def propose(self, bundles: Sequence[Bundle], guidance: Guidance) -> Dialogue[list[Lesson]]:
        """Return what the model proposes for each bundle, all sampled at once, without operations
        that name what no ticket has, or that the limits leave no room for."""
        tools, config, words = self.tools, self.tools.config.reflection, self.tools.words
        found = yield from sample_together(
            [
                reflect(each.judged, guidance, tools.count_tokens, config, words, each.key)
                for each in bundles
            ]
        )
        vocabulary = tools.know_lists(guidance.rules)

        def check(proposal: Proposal) -> Proposal:
            proposal = check_proposal(proposal, vocabulary, words)
            if not proposal.operations or tools.fits(apply(guidance, proposal.operations)):
                return proposal
            return proposal.refuse(NO_ROOM)

        return [replace(each, proposals=tuple(map(check, each.proposals))) for each in found]

    def prove(self, mission: MissionState, bundle: Bundle, lesson: Lesson) -> Dialogue[GateResult]:
        """Let race and test accept an edit, of those that the proposals come to; without a gate,
        take the first that has room."""
        tools, present = self.tools, mission.guidance
        # Anew for each bundle, so that no edit owes its place to the same few tickets for good.
        race_on = shuffled(tools.splits.race_set, stream(bundle.key, "race"))
        gate = tools.make_gate(present, race_on, bundle.number)
        draft = _Draft(mission, bundle, Preparer(tools, gate.judge))
        edits = draft.list_edits(lesson.proposals)
        if not tools.config.has_gate:
            return GateResult(Decision((), 0.0, next(iter(edits), None)), mission.left)
        edited, verdicts = [edit.guidance for edit in edits], tools.known_verdicts(mission)
        calibrated, verdicts = yield from draft.preparer.calibrate(edited, race_on, verdicts)
        edits = [
            replace(edit, guidance=guidance)
            for edit, guidance in zip(edits, calibrated, strict=True)
        ]
        fold, parts = bundle.number % TEACHING_FOLDS, mission.left.edits
        if tools.choose:
            deciding = decide_by(tools.choose, edits, gate, parts[fold])
        else:
            deciding = decide(edits, gate, draft.join, parts[fold])
        decision, verdicts = yield from ask_once(deciding, verdicts)
        left = replace(mission.left, edits=(*parts[:fold], decision.left, *parts[fold + 1 :]))
        failed = tuple(
            (digest(replace(tried.edit.guidance, calibration=present.calibration)), fold)
            for tried in decision.tried
            if tried.test or tried.outcome == "turns no evidence"
        )
        return GateResult(decision, left, verdicts, failed)


# Inside -------------------------------------------------------------------------------------------


def _take_records(mission: MissionState, tools: Tools) -> MissionState:
    """Take the records that are due from the mission; their tickets become the last of those that
    it has seen."""
    is_whole = tools.config.reflection.scope == "round"
    due = 0 if mission.again else bundle_size(tools.splits, tools.config)
    size = len(mission.pending) if is_whole else due
    settles = is_whole and tools.config.has_gate  # asks anew where few answers agree
    told = {
        record.ticket.key: None if settles and record.selection.low_agreement else case_of(record)
        for record in mission.pending[:size]
        if record.guidance_step == mission.guidance.step and not record.answers.set_aside
    }
    seen = {**{key: case for key, case in mission.seen.items() if key not in told}, **told}
    most = max(REMEMBERED, len(told))
    seen = dict(islice(seen.items(), max(0, len(seen) - most), None))
    return replace(mission, pending=mission.pending[size:], seen=seen)


@dataclass(frozen=True, slots=True)
class _Draft:
    """Makes edits of the present guidance from what a bundle's tickets teach."""

    mission: MissionState
    bundle: Bundle
    preparer: Preparer

    def list_edits(self, proposals: Sequence[Proposal]) -> list[Edit]:
        """List the distinct edits that are proposed, save those that have no room or are barred."""
        tools = self.preparer.tools
        train, edits = tools.splits.by_key, []
        for proposal, times in merge_equal(proposals):
            edited = self._edit((proposal,), self.mission.guidance)
            if tools.fits(edited):
                evidence = dict.fromkeys(
                    train[key] for operation in proposal.operations for key in operation.evidence
                )
                edits.append(Edit((proposal,), times, edited, tuple(evidence)))
        return [edit for edit in edits if not self._is_barred(edit)]

    def join(self, one: Edit, other: Edit) -> Edit | None:
        """Join two edits into one that does what both do; None where they name the same rule, there
        is no room for both, or the joined edit is barred."""
        proposals = (*one.proposals, *other.proposals)
        touched = [
            key
            for proposal in proposals
            for operation in proposal.operations
            for key in named(operation)
        ]
        if len(set(touched)) < len(touched):
            return None
        edited = self._edit(proposals, one.guidance)
        evidence = tuple(dict.fromkeys((*one.evidence, *other.evidence)))
        together = Edit(proposals, min(one.times, other.times), edited, evidence)
        return (
            together if self.preparer.tools.fits(edited) and not self._is_barred(together) else None
        )

    def _edit(self, proposals: Sequence[Proposal], calibrated: Guidance) -> Guidance:
        """Edit the present guidance, with the calibration of ``calibrated``; where a gate tests
        what demonstrations do, choose them anew."""
        operations = [operation for proposal in proposals for operation in proposal.operations]
        edited = apply(self.mission.guidance, operations, self.bundle.name)
        edited = replace(edited, calibration=calibrated.calibration)
        return (
            self.preparer.demonstrate(edited, self.bundle.judged)
            if self.preparer.tools.config.has_gate
            else edited
        )

    def _is_barred(self, edit: Edit) -> bool:
        """Whether this edit, learnt from the same fold, failed before. A failure of another fold's
        edit does not count: it was tested on tickets that this fold's tests use, and these must not
        influence which edits are tried."""
        return (digest(edit.guidance), self.bundle.number % TEACHING_FOLDS) in self.mission.failed
