"""From a ticket's answers to its verdict: selects one of them; and from guidances to the one that
is kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import sqrt

from stageb.errors import StagebError, shown
from stageb.guidance.words.costs import EQUAL, Prices
from stageb.guidance.words.labels import rank
from stageb.guidance.words.types import Answers, Candidate, Choice, Selection, Ticket
from stageb.settings import function_named

SelectionRule = Callable[[str, Sequence[Candidate]], Candidate | None]
"""Takes the mission and a ticket's well-formed candidates, one or more; returns one of them, or
None for no verdict. A function of these alone; it does not know the label."""

MAJORITY = "majority"


def majority(mission: str, candidates: Sequence[Candidate]) -> Candidate:
    """Choose a candidate of the verdict that most gave; a tie goes to the last by ``rank``, or, of
    other labels, to the one whose name comes first.

    Of that verdict's candidates it is the one of lowest temperature, then of lowest index; their
    order does not matter.
    """
    votes = Counter(candidate.verdict or "" for candidate in candidates)
    verdict = min(votes, key=lambda each: (-votes[each], -rank(each), each))
    agreeing = (candidate for candidate in candidates if candidate.verdict == verdict)
    return min(agreeing, key=lambda candidate: (candidate.temperature, candidate.index))


def load_selection_rule(name: str) -> SelectionRule:
    """Return the rule that the key ``selection`` names. Raises ``ConfigError`` if there is no such
    function."""
    if name == MAJORITY:
        return majority
    own = function_named("selection", name)

    def checked(mission: str, candidates: Sequence[Candidate]) -> Candidate | None:
        chosen: Candidate | None = own(mission, candidates)
        if chosen is None or chosen in candidates:
            return chosen
        what = shown(repr(chosen), 60)
        raise StagebError(
            f"selection: {name} returned {what}; return one of the candidates that it is given, "
            f"or None"
        )

    return checked


def select(
    ticket: Ticket, answers: Answers, min_verdict_agreement: float, rule: SelectionRule = majority
) -> Selection:
    """Return the verdict and the reason of the well-formed candidate that ``rule`` chooses, and how
    many agree with it.

    Without a well-formed candidate there is no verdict, which counts as wrong.
    """
    usable = [
        candidate
        for candidate in answers.candidates
        if candidate.format_ok and candidate.verdict is not None
    ]
    winner = rule(ticket.mission, usable) if usable else None
    if winner is None:
        why = answers.set_aside or f"no usable answer in {len(answers.candidates)} candidates"
        why = f"no verdict chosen from {len(usable)} candidates" if usable else why
        return Selection(None, "", None, 0.0, min_verdict_agreement > 0, False, why)
    agreeing = sum(candidate.verdict == winner.verdict for candidate in usable)
    strength = agreeing / len(usable)
    low = strength < min_verdict_agreement
    return Selection(
        verdict=winner.verdict,
        reason=winner.reason,
        selected_candidate=winner.index,
        vote_strength=strength,
        low_agreement=low,
        label_match=winner.verdict == ticket.label,
        manual_review=f"low agreement: {agreeing} of {len(usable)}" if low else "",
    )


def latest_of_the_best(choices: Sequence[Choice], prices: Prices = EQUAL) -> Choice:
    """Return the latest guidance whose mean cost on val, at these ``prices``, lies within one
    standard error of the least; at equal prices, whose accuracy lies within one standard error of
    the best. ``choices`` are in the order in which they were learnt, one or more.

    Every edit has passed its test, so the later guidance has the better claim, unless val speaks
    against it: the best of several figures overstates, and by one standard error it is no better
    (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3).
    """
    scale = choices[0].scale
    labels = {label for choice in choices for label in choice.missed}
    weights = {label: prices.get(label, 1.0) * scale.get(label, 1.0) for label in labels}

    def cost(choice: Choice, power: int = 1) -> float:
        """Return the mean of the ``power`` of what a ticket costs."""
        return (
            sum(weights[label] ** power * count for label, count in choice.missed.items())
            / choice.n
        )

    best = min(choices, key=cost)
    error = sqrt((cost(best, 2) - cost(best) ** 2) / choices[0].n)
    return [choice for choice in choices if cost(choice) <= cost(best) + error][-1]
