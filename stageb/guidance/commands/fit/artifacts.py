"""The files of a mission's folder, row by row. Nothing here reads a clock: equal runs leave equal
bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stageb.guidance.judging.selection import latest_of_the_best
from stageb.guidance.learning.attempts import Attempts, list_attempts
from stageb.guidance.learning.reflection_file import REFLECTION, parse_row
from stageb.guidance.rules.guidance_json import format_file
from stageb.guidance.rules.prompts import Words, answer_text, name_labels, rollout_prompt
from stageb.guidance.words.costs import Prices
from stageb.guidance.words.types import (
    Candidate,
    Choice,
    Guidance,
    Proposal,
    Record,
    Round,
    shallow,
)
from stageb.store.journal import Journal, safe_name

Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class MissionFiles:
    """Writes what a run leaves of one mission, and reads of it what it needs again."""

    journal: Journal
    mission: str

    def write_round(self, batch: Round, records: Sequence[Record]) -> None:
        """Trajectories, selections, the manual-review queue and malformed answers of one round."""
        rows = [(_describe_place(batch, record), record) for record in records]
        candidates = [(keys, each) for keys, record in rows for each in record.answers.candidates]
        queue = [
            keys | {"why": record.selection.manual_review, **_describe_selection(record)}
            for keys, record in rows
            if record.selection.manual_review
        ]
        malformed = [
            keys
            | {
                "source": "rollout",
                "candidate_index": candidate.index,
                "why": candidate.fault,
                "text": candidate.text,
            }
            for keys, candidate in candidates
            if not candidate.format_ok
        ]
        self.append(
            "trajectories.jsonl",
            (keys | _describe_candidate(candidate) for keys, candidate in candidates),
        )
        self.append(
            "selections.jsonl", (keys | _describe_selection(record) for keys, record in rows)
        )
        self.append_some("manual_review_queue.jsonl", queue)
        self.append_some("failure_malformed.jsonl", malformed)

    def write_metrics(self, batch: Round, guidance_step: int, figures: Mapping[str, Any]) -> None:
        """One epoch's figures of one split."""
        keys = {
            "epoch": batch.epoch,
            "split": batch.split,
            "mission": batch.mission,
            "guidance_step": guidance_step,
        }
        self.append("metrics.jsonl", [{**keys, **figures}])

    def write_guidance(self, guidance: Guidance, retention: int) -> None:
        """guidance.json and the step's snapshot; snapshots older than the newest ``retention``
        go."""
        self.journal.replace(
            self._place(f"snapshots/guidance-{guidance.step:06d}.json"), format_file([guidance])
        )
        self.write_current(guidance)
        if guidance.step >= retention:
            self.journal.remove(
                self._place(f"snapshots/guidance-{guidance.step - retention:06d}.json")
            )

    def write_current(self, guidance: Guidance) -> None:
        """guidance.json alone: a step that is gone back to has its snapshot, as it was learnt."""
        self.journal.replace(self._place("guidance.json"), format_file([guidance]))

    def restore_current(self, guidance: Guidance) -> None:
        """guidance.json of a finished run, where it was removed; one that a person changed since
        stays as it is."""
        if not (self.journal.folder / self._place("guidance.json")).exists():
            self.write_current(guidance)

    def write_reflection(self, row: Mapping[str, Any], proposals: Iterable[Proposal]) -> None:
        """What a bundle taught, and what was refused in its answers, with the raw text."""
        refused = [
            {
                "mission": self.mission,
                "reflection_id": row["reflection_id"],
                "source": "reflection",
                "proposal": proposal.index,
                "why": refusal.reason,
                "text": refusal.raw,
            }
            for proposal in proposals
            for refusal in proposal.refusals
        ]
        self.append_some("failure_malformed.jsonl", refused)
        self.append(REFLECTION, [row])

    def write_choices(self, choices: Sequence[Choice], prices: Prices) -> None:
        """Which guidance was chosen on val, by the ``prices`` of errors, and from which."""
        chosen = latest_of_the_best(choices, prices)
        self.append(
            "choice.jsonl",
            (
                {
                    "guidance_step": each.guidance.step,
                    "right": each.right,
                    "n": each.n,
                    "chosen": each is chosen,
                }
                for each in choices
            ),
        )

    def write_distilled(self, guidance: Guidance, records: Sequence[Record], words: Words) -> None:
        """Right answers as chats of system, user and assistant, one a line."""
        rows, words = [], name_labels(words, guidance.labels)
        for record in records:
            prompt = rollout_prompt(record.ticket, guidance, words)
            verdict = record.selection.verdict
            assert verdict is not None  # it is the label
            said = answer_text(verdict, record.selection.reason, words)
            turns = {"system": prompt.system, "user": prompt.user, "assistant": said}
            rows.append(
                {
                    "messages": [
                        {"role": role, "content": content} for role, content in turns.items()
                    ]
                }
            )
        self.append_some("distill_chatml.jsonl", rows)

    def append(self, file: str, rows: Rows) -> None:
        """Append rows to a file of this mission."""
        self.journal.append(self._place(file), rows)

    def append_some(self, file: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append ``rows`` if there are any, so that a file without rows does not exist."""
        if rows:
            self.append(file, rows)

    def read(self, file: str) -> Sequence[Mapping[str, Any]]:
        """Read the rows of a file of this mission."""
        return self.journal.rows(self._place(file))

    def list_attempts(self, until: int | None = None) -> Attempts:
        """List the attempts of reflections; with ``until`` those that changed the guidance on the
        way to that step."""
        rows = map(parse_row, self.read(REFLECTION))
        return list_attempts(
            [
                row
                for row in rows
                if until is None or (row.applied is not None and row.step_after <= until)
            ]
        )

    def _place(self, file: str) -> str:
        return f"{safe_name(self.mission)}/{file}"


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
