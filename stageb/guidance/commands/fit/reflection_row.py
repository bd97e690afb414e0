"""The row of ``reflection.jsonl`` that a bundle leaves; ``learning/reflection_file.py`` reads
it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.gate.decide import Decision, Trial
from stageb.guidance.learning.gate.sequential import Test
from stageb.guidance.learning.proposer import Bundle, GateResult, Lesson
from stageb.guidance.learning.reflection_file import (
    EditEntry,
    EvidenceEntry,
    GateEntry,
    ProposalEntry,
    RaceEntry,
)
from stageb.guidance.learning.state import TOLD_TO_STOP, MissionState, State
from stageb.guidance.rules.prompts import WORDS, ReflectionInput, clue_text
from stageb.guidance.words.types import Budget

Row = dict[str, Any]


def make_row(
    config: LoopConfig,
    state: State,
    bundle: Bundle,
    lesson: Lesson,
    learnt: GateResult,
    after: MissionState,
) -> Row:
    """Return the whole row of what a bundle taught a mission, which that took from ``state`` to
    ``after``."""
    name = after.guidance.mission
    outcome = _make_outcome_row(state.missions[name], after, learnt, config.has_gate)
    return _make_bundle_row(name, bundle, lesson) | {"epoch": state.done[0]} | outcome


def _make_bundle_row(mission: str, bundle: Bundle, lesson: Lesson) -> Row:
    """Return the row of a reflection's bundle and proposals, before the gate decides on them."""
    return {
        "mission": mission,
        "reflection_id": bundle.name,
        "tickets": len(bundle.judged),
        "wrong": sum(not case.right for case in bundle.judged),
        "judged": bundle.asked,
        "eligible": not bundle.why_not,
        "why_not": bundle.why_not
        or lesson.why_not
        or (TOLD_TO_STOP if lesson.is_stopped and not lesson.proposals else ""),
        "evidence": [
            describe_evidence(shown)
            for shown in {(shown.rule, shown.evidence): shown for shown in lesson.shown}.values()
        ],
        "proposals": [
            asdict(ProposalEntry(each.index, each.operations, each.refusals, each.text))
            for each in lesson.proposals
        ],
        **({"sizes": [asdict(size) for size in lesson.sizes]} if lesson.sizes else {}),
    }


def describe_evidence(shown: ReflectionInput) -> dict[str, Any]:
    """Return the counts for one kind of error."""
    evidence = shown.evidence
    return {
        "rule": shown.rule,
        "wrong": evidence.wrong,
        "right": evidence.right,
        "clues": [
            [clue.wrong, clue.right, clue_text(clue.conditions, WORDS["en"])]
            for clue in evidence.clues
        ],
    }


def _make_outcome_row(
    before: MissionState, after: MissionState, learnt: GateResult, gated: bool
) -> Row:
    """Return the row of the outcome of the edits that were tried."""
    winner = learnt.decision.winner
    return {
        "gate": asdict(
            make_gate_entry(learnt.decision, learnt.verdicts.judged, before.left, after.left)
        )
        if gated
        else None,
        "applied": winner is not None,
        "applied_proposals": [proposal.index for proposal in winner.proposals] if winner else [],
        "guidance_step_before": before.guidance.step,
        "guidance_step_after": after.guidance.step,
    }


def make_gate_entry(decision: Decision, judged: int, before: Budget, after: Budget) -> GateEntry:
    """The gate's figures; ``before`` and ``after`` are the mission's whole budget."""
    edits = tuple(map(_make_edit_entry, decision.tried))
    return GateEntry(judged, round(before.chance, 9), round(after.chance, 9), edits)


def _make_edit_entry(tried: Trial) -> EditEntry:
    edit, score = tried.edit, tried.score
    return EditEntry(
        proposals=tuple(proposal.index for proposal in edit.proposals),
        proposed_times=edit.times,
        outcome=tried.outcome,
        evidence=EvidenceEntry(len(edit.evidence), tried.turned),
        race=RaceEntry(score.seen, round(score.won, 6), round(score.lost, 6)),
        test=_describe_test(tried, tried.test) if tried.test else None,
        estimate=tried.estimate,
    )


def _describe_test(tried: Trial, test: Test) -> dict[str, Any]:
    return {
        "level": test.level,
        "tickets": test.tickets,
        "groups": test.seen,
        "mean_gain": round(test.mean, 6),
        **{name: round(figure, 6) for name, figure in test.figures.items()},
        **({"calibration_errors": tried.calibration_errors} if tried.calibration_errors else {}),
        **(
            {"judges": dict(tried.judges), "judge": tried.edit.guidance.judge}
            if tried.judges
            else {}
        ),
    }
