"""A selection rule: one careful look outweighs the others.

``selection: own_selection:any_fault`` takes a ticket for a fail as soon as a share of its answers
found a fault, rather than only where most of them did. Fewer faults slip through, and more good
tickets are sent back; which is dearer, you know.
"""

from collections.abc import Sequence

from stageb.guidance.words.types import Candidate

ENOUGH = 0.25  # of the answers


def any_fault(mission: str, candidates: Sequence[Candidate]) -> Candidate | None:
    """The candidate whose verdict and reason stand for the ticket; None would leave it without a
    verdict, for a person.

    ``candidates`` are the well-formed answers, one at least. What the label is nobody says here, so
    nobody can look.
    """
    faults = [candidate for candidate in candidates if candidate.verdict == "fail"]
    passes = [candidate for candidate in candidates if candidate.verdict == "pass"]
    chosen = faults if len(faults) >= ENOUGH * len(candidates) else passes
    return min(chosen, key=lambda candidate: (candidate.temperature, candidate.index))
