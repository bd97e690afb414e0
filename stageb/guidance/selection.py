"""Choosing: one verdict for a ticket from its candidates, and one guidance for a mission from those that a run came by."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from stageb.guidance.state import Choice
from stageb.guidance.types import Answers, Candidate, Selection, Ticket, Verdict


def select(ticket: Ticket, answers: Answers, min_verdict_agreement: float) -> Selection:
    """The verdict that most well-formed candidates gave; a tie goes to fail, since a missed fault costs more than a look.

    The winner, whose reason is kept, is that verdict's candidate of lowest temperature, then of lowest index. Without a
    well-formed candidate there is no verdict, which counts as wrong. The candidates' order does not matter.
    """
    usable = [candidate for candidate in answers.candidates if candidate.format_ok and candidate.verdict is not None]
    if not usable:
        why = answers.set_aside or f"no usable answer in {len(answers.candidates)} candidates"
        return Selection(None, "", None, 0.0, min_verdict_agreement > 0, False, why)
    verdict = _majority(usable)
    agreeing = [candidate for candidate in usable if candidate.verdict == verdict]
    winner = min(agreeing, key=lambda candidate: (candidate.temperature, candidate.index))
    strength = len(agreeing) / len(usable)
    low = strength < min_verdict_agreement
    return Selection(
        verdict=verdict,
        reason=winner.reason,
        selected_candidate=winner.index,
        vote_strength=strength,
        low_agreement=low,
        label_match=verdict == ticket.label,
        manual_review=f"low agreement: {len(agreeing)} of {len(usable)}" if low else "",
    )


def _majority(usable: list[Candidate]) -> Verdict:
    """The verdict of more than half; fail where the halves are equal."""
    passes = sum(candidate.verdict == "pass" for candidate in usable)
    return "pass" if 2 * passes > len(usable) else "fail"


def latest_of_the_best(choices: Sequence[Choice]) -> Choice:
    """The latest guidance whose val accuracy lies within one standard error of the best one's; ``choices`` in the order in
    which they were learnt, one or more.

    Every edit has passed its test, so the later guidance has the better claim, unless val speaks against it: the best of
    several figures overstates, and by one standard error it is no better (Breiman et al., Classification and Regression
    Trees, 1984, section 3.4.3).
    """
    best = max(choice.right / choice.n for choice in choices)
    error = sqrt(best * (1 - best) / choices[0].n)
    return [choice for choice in choices if choice.right / choice.n >= best - error][-1]
