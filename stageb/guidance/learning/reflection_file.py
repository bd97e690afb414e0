"""Reads ``reflection.jsonl``: a row for each bundle that was reflected on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stageb.guidance.words.types import PROVISIONAL, Estimate, Operation, Refusal

REFLECTION = "reflection.jsonl"  # in the mission's folder
ACCEPTED = "accepted"  # the outcome of the edit that the gate let through


@dataclass(frozen=True, slots=True)
class ProposalEntry:
    """One answer of the model that reflects."""

    proposal: int  # its number among those of the row
    operations: tuple[Operation, ...]  # the usable ones
    refused: tuple[Refusal, ...]  # the others, and why they cannot be used
    text: str  # as it came


@dataclass(frozen=True, slots=True)
class EvidenceEntry:
    """The effect of an edit on the tickets that it names."""

    tickets: int  # number of tickets that it names as evidence
    turned: int  # how many of these are judged right under it; 0 where that was not asked


@dataclass(frozen=True, slots=True)
class RaceEntry:
    """The result of an edit in its race against the others."""

    tickets: int  # number of tickets that it was judged on; 0 where it did not race
    won: float  # tickets that it judges better than the guidance in use
    lost: float  # tickets that it judges worse


@dataclass(frozen=True, slots=True)
class EditEntry:
    """One edit that came to the gate."""

    proposals: tuple[int, ...]  # the proposals whose operations it joins, by number
    proposed_times: int  # number of answers that proposed it
    outcome: str  # how far it came: accepted, unproven, futile, ...
    evidence: EvidenceEntry  # on the tickets that it names
    race: RaceEntry  # on the tickets that edits race on
    # level, tickets, groups, mean_gain, and won and lost, or log_wealth; calibration_errors, before
    # and after, of a model that was calibrated; None where it was not tested
    test: Mapping[str, Any] | None
    estimate: Estimate | None = None  # of what was learnt at once


@dataclass(frozen=True, slots=True)
class GateEntry:
    """The gate's decision on the edits of a row."""

    judged: int  # number of verdicts that it asked for
    budget_before: float  # the mission's false-acceptance budget
    budget_after: float  # what is left of it
    edits: tuple[EditEntry, ...]  # in the order in which they were tried


@dataclass(frozen=True, slots=True)
class SizeEntry:
    """A guidance that code learns at once, with at most so many conditions."""

    most: int  # conditions, as asked for
    conditions: int  # that it has
    estimate: Estimate
    operations: tuple[Operation, ...]  # that turn the guidance before into it


@dataclass(frozen=True, slots=True)
class ReflectionRow:
    """A bundle that was reflected on."""

    reflection_id: str  # R1, R2, ...
    epoch: int | None  # from 1; None where the run's files are older than this figure
    step_after: int  # of the guidance then: one more where an edit was applied
    proposals: tuple[ProposalEntry, ...]  # what was proposed
    gate: GateEntry | None  # None without a gate
    # the proposals that changed the guidance, by ascending number; None where nothing did
    applied: tuple[int, ...] | None
    why_not: str  # why nothing was asked; empty where something was
    sizes: tuple[SizeEntry, ...] = ()  # what was learnt at once in other sizes, the smallest first

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations that changed the guidance."""
        return self.operations_of(self.applied or ())

    @property
    def is_provisional(self) -> bool:
        """Whether an edit was applied without its proof."""
        return bool(self.gate and any(edit.outcome == PROVISIONAL for edit in self.gate.edits))

    @property
    def test(self) -> Mapping[str, Any] | None:
        """The figures by which an edit was accepted; None where none was tested."""
        return (
            next((edit.test for edit in self.gate.edits if edit.outcome == ACCEPTED), None)
            if self.gate
            else None
        )

    def operations_of(self, proposals: tuple[int, ...]) -> tuple[Operation, ...]:
        """Return the operations of these proposals, in the order of their numbers here. Raises
        ``KeyError``."""
        known = {proposal.proposal: proposal.operations for proposal in self.proposals}
        return tuple(operation for number in proposals for operation in known[number])


def parse_row(row: Mapping[str, Any]) -> ReflectionRow:
    """Parse a row of ``reflection.jsonl``. Raises ``LookupError``, ``TypeError``, ``ValueError`` or
    ``AttributeError`` for one that no run writes."""
    parsed = ReflectionRow(
        reflection_id=str(row["reflection_id"]),
        epoch=row.get("epoch"),
        step_after=int(row["guidance_step_after"]),
        proposals=tuple(map(_parse_proposal, row["proposals"])),
        gate=GateEntry(**{**gate, "edits": tuple(map(_parse_edit, gate["edits"]))})
        if (gate := row["gate"])
        else None,
        applied=tuple(sorted(row["applied_proposals"])) if row["applied"] else None,
        why_not=row["why_not"],
        sizes=tuple(map(_parse_size, row.get("sizes", ()))),
    )
    parsed.operations_of(parsed.applied or ())  # which it must hold
    return parsed


def _parse_proposal(row: Mapping[str, Any]) -> ProposalEntry:
    refused = tuple(Refusal(**each) for each in row["refused"])
    return ProposalEntry(**{**row, "operations": _parse_operations(row), "refused": refused})


def _parse_size(row: Mapping[str, Any]) -> SizeEntry:
    most, conditions = int(row["most"]), int(row["conditions"])
    return SizeEntry(most, conditions, _parse_estimate(row["estimate"]), _parse_operations(row))


def _parse_estimate(figures: Any) -> Estimate:
    estimate = Estimate.parse(figures)
    if estimate is None:
        raise ValueError("an estimate that no run comes to")
    return estimate


def _parse_operations(row: Mapping[str, Any]) -> tuple[Operation, ...]:
    lists = ("merged_from", "evidence")
    return tuple(
        Operation(**{**each, **{name: tuple(each[name]) for name in lists}})
        for each in row["operations"]
    )


def _parse_edit(row: Mapping[str, Any]) -> EditEntry:
    parsed = {
        "proposals": tuple(row["proposals"]),
        "evidence": EvidenceEntry(**row["evidence"]),
        "race": RaceEntry(**row["race"]),
        "test": None if row["test"] is None else dict(row["test"]),
        "estimate": _parse_estimate(row["estimate"]) if row.get("estimate") else None,
    }
    return EditEntry(**{**row, **parsed})
