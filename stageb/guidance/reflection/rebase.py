"""What was proposed for one guidance, and is tested under a later one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stageb.guidance.reflection.edits import apply, named
from stageb.guidance.types import Guidance, Operation, Proposal, Refusal


def rebase(proposals: Sequence[Proposal], made_for: Guidance, present: Guidance) -> tuple[Proposal, ...]:
    """``proposals`` without the operations of those that name a rule which has changed since ``made_for``, or that would
    change nothing any more. A proposal's operations belong together: all or none are kept."""
    return tuple(_rebase(proposal, made_for, present) for proposal in proposals)


def _rebase(proposal: Proposal, made_for: Guidance, present: Guidance) -> Proposal:
    why = _why_late(proposal.operations, made_for, present) if proposal.operations else ""
    return replace(proposal, operations=(), refusals=(*proposal.refusals, Refusal(proposal.text, why))) if why else proposal


def _why_late(operations: Sequence[Operation], made_for: Guidance, present: Guidance) -> str:
    """Why operations come too late; empty where they do not."""
    for key in (key for operation in operations for key in named(operation)):
        if present.rule(key) != made_for.rule(key):
            return f"too late: {key} was changed by an edit of the same round"
    return "too late: an edit of the same round did it" if apply(present, operations) is present else ""
