"""The files of a mission's folder, row by row. Nothing here reads a clock: equal runs leave equal bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stageb.guidance.learning.gate.decide import Decision, Trial
from stageb.guidance.learning.gate.sequential import Test
from stageb.guidance.learning.proposer import Bundle, GateResult, Lesson
from stageb.guidance.learning.reflection_file import EditEntry, EvidenceEntry, GateEntry, ProposalEntry, RaceEntry
from stageb.guidance.learning.state import TOLD_TO_STOP, MissionState
from stageb.guidance.rules.guidance_file import format_file
from stageb.guidance.rules.prompts import WORDS, ReflectionInput, Words, answer_text, clue_text, name_labels, rollout_prompt
from stageb.guidance.words.types import Budget, Candidate, Choice, Guidance, Proposal, Record, Round, shallow
from stageb.store.journal import Journal, safe_name

Row = dict[str, Any]


def write_round(journal: Journal, batch: Round, records: Sequence[Record]) -> None:
    """Trajectories, selections, the manual-review queue and malformed answers of one round."""
    place = safe_name(batch.mission)
    rows = [(_describe_place(batch, record), record) for record in records]
    journal.append(
        f"{place}/trajectories.jsonl",
        (keys | _describe_candidate(candidate) for keys, record in rows for candidate in record.answers.candidates),
    )
    journal.append(f"{place}/selections.jsonl", (keys | _describe_selection(record) for keys, record in rows))
    queue = [
        keys | {"why": record.selection.manual_review, **_describe_selection(record)}
        for keys, record in rows
        if record.selection.manual_review
    ]
    malformed = [
        keys | {"source": "rollout", "candidate_index": candidate.index, "why": candidate.fault, "text": candidate.text}
        for keys, record in rows
        for candidate in record.answers.candidates
        if not candidate.format_ok
    ]
    append_some(journal, f"{place}/manual_review_queue.jsonl", queue)
    append_some(journal, f"{place}/failure_malformed.jsonl", malformed)


def append_some(journal: Journal, file: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append ``rows`` if there are any, so that a file without rows does not exist."""
    if rows:
        journal.append(file, rows)


def _describe_place(batch: Round, record: Record) -> dict[str, Any]:
    return {
        "epoch": batch.epoch,
        "split": batch.split,
        "round": batch.number,
        "ticket_key": record.ticket.key,
        "group_id": record.ticket.group_id,
        "mission": record.ticket.mission,
        "guidance_step": record.guidance_step,
    }


def _describe_candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "candidate_index": candidate.index,
        "decode": candidate.decode,
        "thinking": candidate.thinking,
        "text": candidate.text,
        "verdict": candidate.verdict,
        "reason": candidate.reason,
        "format_ok": candidate.format_ok,
        "tokens": candidate.tokens,
    }


def _describe_selection(record: Record) -> dict[str, Any]:
    row = shallow(record.selection)
    row["manual_review"] = bool(record.selection.manual_review)
    return {"label": record.ticket.label, **row, "prompt_tokens": record.answers.prompt_tokens}


def write_metrics(journal: Journal, batch: Round, guidance_step: int, figures: Row) -> None:
    """One epoch's figures of one split."""
    keys = {"epoch": batch.epoch, "split": batch.split, "mission": batch.mission, "guidance_step": guidance_step}
    journal.append(f"{safe_name(batch.mission)}/metrics.jsonl", [keys | figures])


def write_guidance(journal: Journal, guidance: Guidance, retention: int) -> None:
    """guidance.json and the step's snapshot; snapshots older than the newest ``retention`` go."""
    place = safe_name(guidance.mission)
    journal.replace(f"{place}/snapshots/guidance-{guidance.step:06d}.json", format_file([guidance]))
    write_current(journal, guidance)
    if guidance.step >= retention:
        journal.remove(f"{place}/snapshots/guidance-{guidance.step - retention:06d}.json")


def write_current(journal: Journal, guidance: Guidance) -> None:
    """guidance.json alone: a step that is gone back to has its snapshot, as it was learnt."""
    journal.replace(f"{safe_name(guidance.mission)}/guidance.json", format_file([guidance]))


def restore_current(journal: Journal, guidance: Guidance) -> None:
    """guidance.json of a finished run, where it was removed; one that a person changed since stays as it is."""
    if not (journal.folder / safe_name(guidance.mission) / "guidance.json").exists():
        write_current(journal, guidance)


def write_refused(journal: Journal, mission: str, reflection_id: str, proposals: Iterable[Proposal]) -> None:
    """Write what was refused in a bundle's answers, with the raw text."""
    refused = [
        {
            "mission": mission,
            "reflection_id": reflection_id,
            "source": "reflection",
            "proposal": proposal.index,
            "why": refusal.reason,
            "text": refusal.raw,
        }
        for proposal in proposals
        for refusal in proposal.refusals
    ]
    append_some(journal, f"{safe_name(mission)}/failure_malformed.jsonl", refused)


def write_choice(journal: Journal, mission: str, choices: Sequence[Choice], chosen: Choice) -> None:
    """Which guidance was chosen on val, and from which."""
    rows = [
        {"guidance_step": each.guidance.step, "right": each.right, "n": each.n, "chosen": each is chosen} for each in choices
    ]
    journal.append(f"{safe_name(mission)}/choice.jsonl", rows)


def write_distilled(journal: Journal, guidance: Guidance, records: Sequence[Record], words: Words) -> None:
    """Right answers as chats of system, user and assistant, one a line."""
    rows, words = [], name_labels(words, guidance.labels)
    for record in records:
        prompt = rollout_prompt(record.ticket, guidance, words)
        verdict = record.selection.verdict
        assert verdict is not None  # it is the label
        said = answer_text(verdict, record.selection.reason, words)
        turns = {"system": prompt.system, "user": prompt.user, "assistant": said}
        rows.append({"messages": [{"role": role, "content": content} for role, content in turns.items()]})
    append_some(journal, f"{safe_name(guidance.mission)}/distill_chatml.jsonl", rows)


def make_reflection_row(mission: str, bundle: Bundle, lesson: Lesson) -> Row:
    """Return the row of a reflection's bundle and proposals, before the gate decides on them."""
    return {
        "mission": mission,
        "reflection_id": bundle.name,
        "tickets": len(bundle.judged),
        "wrong": sum(not case.right for case in bundle.judged),
        "judged": bundle.asked,
        "eligible": not bundle.why_not,
        "why_not": bundle.why_not or (TOLD_TO_STOP if lesson.is_stopped and not lesson.proposals else ""),
        "evidence": [
            describe_evidence(shown) for shown in {(shown.rule, shown.evidence): shown for shown in lesson.shown}.values()
        ],
        "proposals": [asdict(make_proposal_entry(proposal)) for proposal in lesson.proposals],
        **({"sizes": [asdict(size) for size in lesson.sizes]} if lesson.sizes else {}),
    }


def describe_evidence(shown: ReflectionInput) -> dict[str, Any]:
    """Return the counts for one kind of error."""
    evidence = shown.evidence
    return {
        "rule": shown.rule,
        "wrong": evidence.wrong,
        "right": evidence.right,
        "clues": [[clue.wrong, clue.right, clue_text(clue.conditions, WORDS["en"])] for clue in evidence.clues],
    }


def make_outcome_row(before: MissionState, after: MissionState, learnt: GateResult, gated: bool) -> Row:
    """Return the row of the outcome of the edits that were tried."""
    winner = learnt.decision.winner
    return {
        "gate": asdict(make_gate_entry(learnt.decision, learnt.verdicts.judged, before.left, after.left)) if gated else None,
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
        **({"judges": dict(tried.judges), "judge": tried.edit.guidance.judge} if tried.judges else {}),
    }


def make_proposal_entry(proposal: Proposal) -> ProposalEntry:
    """A proposal as reflection.jsonl shows it."""
    return ProposalEntry(proposal.index, proposal.operations, proposal.refusals, proposal.text)
