"""What a run leaves in a mission's folder, row by row. Nothing here reads a clock: equal runs leave equal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stageb.guidance.guidance_file import to_json
from stageb.guidance.plan import Step
from stageb.guidance.state import Tally
from stageb.guidance.types import Candidate, Guidance, Proposal, Record
from stageb.journal import Journal, safe_name


def folder(mission: str) -> str:
    """The mission's folder in the run's."""
    return safe_name(mission)


def write_round(journal: Journal, step: Step, records: Sequence[Record]) -> None:
    """Trajectories, selections, the manual-review queue and malformed answers of one round."""
    place = folder(step.mission)
    rows = [(_keys(step, record), record) for record in records]
    journal.append(
        f"{place}/trajectories.jsonl",
        (keys | _candidate(candidate) for keys, record in rows for candidate in record.answers.candidates),
    )
    journal.append(f"{place}/selections.jsonl", (keys | _selection(record) for keys, record in rows))
    queue = [
        keys | {"why": record.selection.manual_review, **_selection(record)}
        for keys, record in rows
        if record.selection.manual_review
    ]
    malformed = [
        keys
        | {"source": "rollout", "candidate_index": candidate.index, "why": "not the two-line answer", "text": candidate.text}
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


def _keys(step: Step, record: Record) -> dict[str, Any]:
    return {
        "epoch": step.epoch,
        "split": step.split,
        "round": step.number,
        "ticket_key": record.ticket.key,
        "group_id": record.ticket.group_id,
        "mission": record.ticket.mission,
        "guidance_step": record.guidance_step,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "candidate_index": candidate.index,
        "decode": candidate.decode,
        "text": candidate.text,
        "verdict": candidate.verdict,
        "reason": candidate.reason,
        "format_ok": candidate.format_ok,
        "tokens": candidate.tokens,
    }


def _selection(record: Record) -> dict[str, Any]:
    row = asdict(record.selection)
    row["manual_review"] = bool(record.selection.manual_review)
    return {"label": record.ticket.label, **row, "prompt_tokens": record.answers.prompt_tokens}


def write_metrics(journal: Journal, step: Step, guidance_step: int, tally: Tally) -> None:
    """One epoch's figures of one split."""
    keys = {"epoch": step.epoch, "split": step.split, "mission": step.mission, "guidance_step": guidance_step}
    journal.append(f"{folder(step.mission)}/metrics.jsonl", [keys | tally.row()])


def write_guidance(journal: Journal, guidance: Guidance, retention: int) -> None:
    """guidance.json and the step's snapshot; snapshots older than the newest ``retention`` go."""
    place, text = folder(guidance.mission), json.dumps(to_json(guidance), ensure_ascii=False, indent=2) + "\n"
    journal.replace(f"{place}/snapshots/guidance-{guidance.step:06d}.json", text)
    journal.replace(f"{place}/guidance.json", text)
    if guidance.step >= retention:
        journal.remove(f"{place}/snapshots/guidance-{guidance.step - retention:06d}.json")


def write_reflection(journal: Journal, mission: str, row: Mapping[str, Any], proposals: Iterable[Proposal]) -> None:
    """One bundle's row, and what was refused in its answers with the raw text."""
    place = folder(mission)
    journal.append(f"{place}/reflection.jsonl", [row])
    refused = [
        {
            "mission": mission,
            "reflection_id": row["reflection_id"],
            "source": "reflection",
            "proposal": proposal.index,
            "why": refusal.reason,
            "text": refusal.raw,
        }
        for proposal in proposals
        for refusal in proposal.refusals
    ]
    append_some(journal, f"{place}/failure_malformed.jsonl", refused)


def proposal_row(proposal: Proposal) -> dict[str, Any]:
    """A proposal as reflection.jsonl shows it."""
    return {
        "proposal": proposal.index,
        "operations": [asdict(operation) for operation in proposal.operations],
        "refused": [asdict(refusal) for refusal in proposal.refusals],
        "text": proposal.text,
    }
