"""Learning by code: the whole guidance at once, from all train tickets.

Where code judges (``runner.judge: both``), verdicts are free, so no ticket is set apart: every one
teaches and tests in turn (``learning/gate/prequential.py``), and the guidance that is kept is
learnt from all of them (``learning/rule_sets.py``).

A model that reads instruct texts and judges all tickets is given such rules too, once, before it
reflects, if it does: with demonstrations, and weighed beside the verdicts of these rules as code
(``stacking.py``). They must beat the present guidance with demonstrations and a calibration by the
same tickets; if they do not, and no tests follow, that is what stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from stageb.guidance.judging.questions import Dialogue, JudgeTickets
from stageb.guidance.learning.attempts import NO_ROOM
from stageb.guidance.learning.gate.decide import STRONG, Decision, decide_by
from stageb.guidance.learning.gate.judgements import Verdicts, ask_once
from stageb.guidance.learning.gate.sequential import next_level
from stageb.guidance.learning.proof import KEPT, Proof
from stageb.guidance.learning.proposer import Bundle, GateResult, Lesson
from stageb.guidance.learning.state import LearningStopped, MissionState, NoRoom
from stageb.guidance.learning.teacher import Learnt, Teacher
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules.prompts import Case
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.words.types import Guidance, Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSetLesson(Lesson):
    """A guidance that all train tickets taught."""

    teacher: Teacher
    learnt: Learnt | None = None


@dataclass(frozen=True, slots=True)
class RuleLearner:
    """Proposes one edit by code, from all train tickets. See ``Proposer``."""

    tools: Tools

    def draw(self, mission: MissionState) -> Dialogue[tuple[MissionState, tuple[Bundle, ...]]]:
        """Return all train tickets that may teach, as one bundle. For a model that is yet to be
        prepared, only code judges them."""
        tools, present, verdicts = self.tools, mission.guidance, Verdicts()
        # Failures first: where they are few, masks of them are short.
        positions = sorted(
            chain(tools.splits.race_set, *tools.pool.groups), key=lambda i: tools.tickets[i].label
        )
        if tools.config.needs_preparing:
            rights = tools.judge_by_code(present, positions)
        else:
            judging = tools.make_judge(present).p_correct([(present, positions)])
            (p_correct,), verdicts = yield from ask_once(judging, tools.known_verdicts(mission))
            rights = [p > 0.5 for p in p_correct]
            mission = replace(
                mission,
                p_correct={tools.tickets[i].key: p for i, p in verdicts.of(present).items()},
            )
        cases = tuple(
            Case(tools.tickets[i], right, None) for i, right in zip(positions, rights, strict=True)
        )
        bundle = Bundle(mission.bundles, 0, cases).after(verdicts)
        return replace(mission, bundles=mission.bundles + 1), (bundle,)

    def propose(
        self, bundles: Sequence[Bundle], guidance: Guidance
    ) -> Dialogue[list[RuleSetLesson]]:
        """Learn from the bundles, in other sizes, too; no proposal where they teach nothing, or
        learning is stopped before."""
        yield from ()
        return [_fit(bundle, guidance, self.tools) for bundle in bundles]

    def prove(
        self, mission: MissionState, bundle: Bundle, lesson: RuleSetLesson
    ) -> Dialogue[GateResult]:
        """Have the gate decide on the proposal; where none may stay, perhaps prepare the present
        guidance anew."""
        result, verdicts = yield from ask_once(
            self._prove(mission, lesson), self.tools.known_verdicts(mission)
        )
        return replace(result, verdicts=verdicts)

    def _prove(self, mission: MissionState, lesson: RuleSetLesson) -> Dialogue[GateResult]:
        tools, left, learnt, nothing = self.tools, mission.left, lesson.learnt, Decision((), 0.0)
        is_all = tools.config.reflection.scope == "all"
        if learnt and tools.choose:
            gate = tools.make_gate(mission.guidance, (), None)
            return GateResult(
                (yield from decide_by(tools.choose, [learnt.edit], gate, sum(left.edits))), left
            )
        # Tickets that calibrate the present guidance are no longer fit to test further edits of it.
        prepares = (
            tools.config.needs_preparing
            and is_all
            and not (lesson.teacher.bundle.why_not or lesson.is_stopped)
        )
        if not (learnt or prepares):
            return GateResult(nothing, left, is_stopped=lesson.is_stopped)
        # of the budget; the rest is for tests of what a model proposes
        share = 1.0 if is_all else STRONG
        proof = Proof(lesson.teacher, learnt, tools.make_judge(mission.guidance))
        test, preparers, is_stopped = yield from proof.prove(next_level(sum(left.edits), share))
        if preparers and is_stopped:  # nobody knows yet how far to trust the rules beside the model
            return GateResult(nothing, left, is_stopped=True)
        tried = []
        if learnt:
            tried = [(yield from proof.conclude(learnt, test, preparers))]
            if not test.is_accepted:
                left = replace(
                    left, edits=tuple(each - next_level(each, share) for each in left.edits)
                )
        winner = next((trial.edit for trial in tried if trial.outcome in KEPT), None)
        prepared = None
        if preparers and prepares and winner is None:
            prepared, _ = yield from preparers.present.prepare(
                mission.guidance, [*lesson.teacher.places]
            )
        return GateResult(
            Decision(tuple(tried), sum(left.edits), winner),
            left,
            prepared=prepared,
            is_stopped=is_stopped,
        )


def answer_by_code(question: JudgeTickets, tools: Tools) -> list[list[Judgement]]:
    """Answer by code in the model's place, for nothing."""
    judged = [tools.judge_by_code(guidance, positions) for guidance, positions in question.asked]
    return [[Judgement(float(right), 0, by_rules=True) for right in rights] for rights in judged]


def _fit(bundle: Bundle, guidance: Guidance, tools: Tools) -> RuleSetLesson:
    groups = [*whole_groups(tools.splits.race_set, tools.tickets), *tools.pool.groups]
    teacher = Teacher.of(guidance, bundle, groups, tools)
    try:
        learnt = None if bundle.why_not else teacher.learn(groups, with_others=True)
    except LearningStopped:
        return RuleSetLesson(teacher=teacher, is_stopped=True)
    except NoRoom:
        return RuleSetLesson(teacher=teacher, why_not=NO_ROOM)
    if learnt is None:
        return RuleSetLesson(teacher=teacher)
    return RuleSetLesson(
        proposals=learnt.edit.proposals,
        sizes=teacher.list_sizes(learnt),
        teacher=teacher,
        learnt=learnt,
    )
