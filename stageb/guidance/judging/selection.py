"""From a ticket's answers to its verdict: log-odds calibrated, and one answer selected."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from math import sqrt

from stageb.errors import StagebError, shown
from stageb.guidance.words.costs import EQUAL, Prices
from stageb.guidance.words.types import UNCALIBRATED, Answers, Calibration, Candidate, Choice, Selection, Ticket, Verdict
from stageb.settings import function_named

# How a model's verdicts are calibrated, and weighed beside what rules say as code: by logistic regression.
#
# A model that orders tickets well may still put nearly all of them on one side: its log-odds carry what the words "pass" and
# "fail" are worth to it anywhere. A slope and an offset mend that (Platt, "Probabilistic outputs for support vector
# machines", 1999). Where rules can be read as code, what they say of a ticket is evidence beside the model's and gets a
# weight of its own (stacking: Wolpert, "Stacked generalization", 1992), so that the verdict follows whoever is right more
# often. A ridge keeps a few tickets that happen to be told apart from making every verdict certain.


FEWEST = 16  # tickets to fit on
RIDGE = 1.0  # of the slope, about 1, and of the weight of rules, about 0; a hundredth of it of the offset, about 0
LEAST_SLOPE = 0.05  # a model that is wrong more often than right is not turned round, nor are rules
STEPS = 50  # of Newton's method, each of at most 1 in any number
BINS = 10  # of probabilities, of about as many tickets each


def fit_calibration(
    log_odds: Sequence[float],
    passes: Sequence[bool],
    rulings: Sequence[Verdict | None] = (),
    counts: Sequence[float] = (),
) -> Calibration:
    """The calibration under which tickets of these ``log_odds``, of which the rules as code say ``rulings``, have their
    labels with the highest probability; none where they are too few, or all of one label. Each ticket ``counts`` so much,
    without that one."""
    if len(passes) < FEWEST or len(set(passes)) < 2:
        return UNCALIBRATED
    scale = max(1.0, math.sqrt(sum(each * each for each in log_odds) / len(log_odds)))
    rows = [
        (each / scale, Calibration(1.0, 0.0, 1.0).given(ruling).offset, 1.0)
        for each, ruling in zip_longest(log_odds, rulings)
    ]
    slope, rules, offset = _fit_logistic(
        rows, passes, counts or [1.0] * len(rows), (1.0, 0.0, 0.0), (RIDGE, RIDGE, RIDGE / 100)
    )
    return Calibration(round(max(LEAST_SLOPE, slope / scale), 6), round(offset, 6), round(max(0.0, rules), 6))


def find_log_odds(merit: float, label_passes: bool, temperature: float) -> float:
    """The log-odds of a pass that give a ticket of that label this ``merit`` at ``temperature``."""
    share = min(1 - 1e-6, max(1e-6, merit if label_passes else 1 - merit))
    return temperature * math.log(share / (1 - share))


def measure_calibration_error(log_odds: Sequence[float], passes: Sequence[bool]) -> float:
    """The expected calibration error: how far the probability of a pass is from the share of passes, in the mean over
    ``BINS`` bins of as many tickets each, as they come by probability (Naeini et al., AAAI 2015)."""
    pairs = ((_share(each), is_pass) for each, is_pass in zip(log_odds, passes, strict=True))
    ordered = sorted(pairs, key=lambda pair: pair[0])  # by label, equal ones would lie in bins of one label each
    count, error = len(ordered), 0.0
    for place in range(BINS):
        some = ordered[place * count // BINS : (place + 1) * count // BINS]
        error += abs(sum(share - is_pass for share, is_pass in some))
    return error / max(1, count)


def _fit_logistic(
    rows: Sequence[Sequence[float]],
    labels: Sequence[bool],
    counts: Sequence[float],
    prior: Sequence[float],
    ridge: Sequence[float],
) -> list[float]:
    """The weights of a logistic regression in which each row ``counts`` so much, by Newton's method, drawn to ``prior`` by
    ``ridge``."""
    weights, size = list(prior), range(len(prior))
    for _ in range(STEPS):
        shares = [_share(sum(map(float.__mul__, row, weights))) for row in rows]
        slopes = [ridge[j] * (weights[j] - prior[j]) for j in size]
        bends = [[ridge[j] if j == k else 0.0 for k in size] for j in size]
        for row, share, label, count in zip(rows, shares, labels, counts, strict=True):
            for j in size:
                slopes[j] += count * (share - label) * row[j]
                for k in size:
                    bends[j][k] += count * share * (1 - share) * row[j] * row[k]
        steps = _solve(bends, slopes)
        weights = [weight - max(-1.0, min(1.0, step)) for weight, step in zip(weights, steps, strict=True)]
        if max(map(abs, steps)) < 1e-9:
            break
    return weights


def _solve(matrix: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """x with matrix x = values, of a positive definite matrix: Gauss's elimination."""
    rows = [[*row, value] for row, value in zip(matrix, values, strict=True)]
    for j, pivot in enumerate(rows):
        for k, row in enumerate(rows):
            if k != j:
                factor = row[j] / pivot[j]
                rows[k] = [one - factor * other for one, other in zip(row, pivot, strict=True)]
    return [row[-1] / row[j] for j, row in enumerate(rows)]


def _share(log_odds: float) -> float:
    return 1 / (1 + math.exp(-max(-40.0, min(40.0, log_odds))))


SelectionRule = Callable[[str, Sequence[Candidate]], Candidate | None]
"""The mission and a ticket's well-formed candidates, one or more, in; one of them out, or None for no verdict. A function of
these alone; what the label is it is not told."""

MAJORITY = "majority"


def majority(mission: str, candidates: Sequence[Candidate]) -> Candidate:
    """A candidate of the verdict that most gave; a tie goes to fail, since a missed fault costs more than a look.

    Of that verdict's candidates it is the one of lowest temperature, then of lowest index; their order does not matter.
    """
    passes = sum(candidate.verdict == "pass" for candidate in candidates)
    verdict = "pass" if 2 * passes > len(candidates) else "fail"
    agreeing = (candidate for candidate in candidates if candidate.verdict == verdict)
    return min(agreeing, key=lambda candidate: (candidate.temperature, candidate.index))


def load_selection_rule(name: str) -> SelectionRule:
    """The rule that the key ``selection`` names. Raises ``ConfigError`` if there is no such function."""
    if name == MAJORITY:
        return majority
    own = function_named("selection", name)

    def checked(mission: str, candidates: Sequence[Candidate]) -> Candidate | None:
        chosen: Candidate | None = own(mission, candidates)
        if chosen is None or chosen in candidates:
            return chosen
        what = shown(repr(chosen), 60)
        raise StagebError(f"selection: {name} returned {what}; return one of the candidates that it is given, or None")

    return checked


def select(ticket: Ticket, answers: Answers, min_verdict_agreement: float, rule: SelectionRule = majority) -> Selection:
    """The verdict and the reason of the well-formed candidate that ``rule`` chooses, and how many agree with it.

    Without a well-formed candidate there is no verdict, which counts as wrong.
    """
    usable = [candidate for candidate in answers.candidates if candidate.format_ok and candidate.verdict is not None]
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
    """The latest guidance whose mean cost on val, at these ``prices``, lies within one standard error of the least; at equal
    prices, whose accuracy lies within one of the best. ``choices`` in the order in which they were learnt, one or more.

    Every edit has passed its test, so the later guidance has the better claim, unless val speaks against it: the best of
    several figures overstates, and by one standard error it is no better (Breiman et al., Classification and Regression
    Trees, 1984, section 3.4.3).
    """
    scale = choices[0].scale
    weights = {label: price / max(prices.values()) * scale.get(label, 1.0) for label, price in prices.items()}

    def cost(choice: Choice, power: int = 1) -> float:
        """The mean of the ``power`` of what a ticket costs."""
        return sum(weights[label] ** power * count for label, count in choice.missed.items()) / choice.n

    best = min(choices, key=cost)
    error = sqrt((cost(best, 2) - cost(best) ** 2) / choices[0].n)
    return [choice for choice in choices if cost(choice) <= cost(best) + error][-1]
