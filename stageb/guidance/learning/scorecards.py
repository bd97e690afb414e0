"""Scorecards: conditions with small whole points, and the sum from which a ticket fails, or has a
label. Those of several labels are compared (``compared_cards.py``).

Conditions are chosen one after the other, for a logistic regression with a small penalty on large
weights: each time the one that lowers the loss most, to the second order; then all weights are
fitted anew. For every size, the weights are made whole: multiplied so that the largest is between 1
and ``MOST_POINTS``, and rounded, with the multiplier of least loss (Liu et al., "FasterRisk: fast
and accurate interpretable risk scores", 2022; Ustun & Rudin, "Supersparse linear integer models for
optimized medical scoring systems", 2016). Which size is used is decided on tickets that taught none
of them (``rule_sets.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.calibrate import Numbers, find_probabilities, fit_logistic
from stageb.guidance.learning.terms import Conjunction, Contingency, Masks, unpack
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.words.costs import Prices
from stageb.guidance.words.types import Verdict

MOST_TERMS = 30  # on a card
MOST_POINTS = 5  # that a condition gives or takes
FEWEST_TICKETS = (
    3  # tickets that meet a condition, that do not meet it, and that a label with a card has
)
TRIED = 1500  # conditions that may be chosen: those that tell most by themselves
PENALTY = 0.5  # half of it times the square of each weight is added to the loss
SCALES = 9  # multipliers that are tried


@dataclass(frozen=True, slots=True)
class Scorecard:
    """Tickets that have ``least`` points or more have ``verdict``."""

    verdict: Verdict
    points: Mapping[Conjunction, int]  # in the order in which they came
    least: int
    # lists of those lines that are words with equal points, the surest word first
    lists: Sequence[Sequence[Conjunction]] = ()

    @property
    def size(self) -> int:
        """Count its conditions: a word list is one, and so is each condition that a count
        counts."""
        listed = {line for words in self.lists for line in words}
        others = (term for line in self.points if line not in listed for term in line)
        return len(self.lists) + sum(term.size for term in others)


Listing = Callable[[Contingency], "list[list[int]]"]
"""Finds the places of words that speak for the wanted tickets, in lists."""


def grow_cards(
    masks: Masks,
    labelled: Mapping[Verdict, int],
    among: int,
    prices: Prices,
    listing: Listing | None = None,
    most_lines: int = MOST_TERMS,
) -> list[Scorecard]:
    """Return cards of one condition, of two, and so on to ``most_lines``, that tell the first of
    two labels from the other for the tickets in ``among``. With a ``listing``, each card also has
    the lists of words that speak for either label, and the first card has these alone."""
    verdict, other = labelled
    terms, held = find_distinct(masks, among)
    labels = unpack([labelled[verdict]], among)[0].astype(np.float64)
    if not 0 < labels.sum() < len(labels):
        return []
    # Tickets weigh the square root of their label's price, and the limit moves by the rest (the
    # other root): weights of the whole price would make few failures teach as if they were many.
    of_each = np.sqrt(np.array([prices[verdict], prices[other]]))
    of_each *= len(labels) / np.where(labels > 0, *of_each).sum()
    weights = np.where(labels > 0, *of_each)
    even = (log(prices[other]) - log(prices[verdict])) / 2
    first, tally = (
        np.ones((len(labels), 1)),
        Contingency.of(terms, held, labelled[verdict], among),
    )
    fitted = fit_points(first, labels, weights, np.zeros(1))
    gains = estimate_first_gains(tally, fitted[0], *of_each)
    lists = [
        words for side in (tally, tally.turned) for words in (listing(side) if listing else ())
    ]
    if listing and not lists:
        return []
    gains[[place for words in lists for place in words]] = -np.inf
    tried = np.sort(np.argsort(-gains, kind="stable")[: min(TRIED, int((gains > -np.inf).sum()))])
    first = np.column_stack([first, *(count_words(words, held, among) for words in lists)])
    rows = unpack([held[place] for place in tried] if most_lines else [], among).astype(np.float32)
    cards, chosen = list[Scorecard](), list[int]()
    design, fitted = (
        first,
        fit_points(first, labels, weights, np.append(fitted, np.zeros(len(lists))))
        if lists
        else fitted,
    )
    named = [[(terms[place],) for place in words] for words in lists]

    def write() -> None:
        if card := _round(design, labels, weights, fitted, even):
            lines = [*named, *([(terms[tried[place]],)] for place in chosen)]
            cards.append(write_card(verdict, lines, card[0], card[1], len(lists)))

    if lists:
        write()
    while len(chosen) < min(most_lines, len(tried)):
        gains = estimate_gains(rows, labels, weights, design @ fitted)
        gains[chosen] = -1
        chosen.append(int(np.argmax(gains)))
        design = np.column_stack([first, rows[chosen].T])
        fitted = fit_points(design, labels, weights, np.append(fitted, 0.0))
        write()
    return cards


def find_distinct(masks: Masks, among: int) -> tuple[list[Expression], list[int]]:
    """Find the conditions that may have points, and the tickets in ``among`` that meet each. Of
    conditions that the same tickets meet, keep the first. Denials and comparisons of two fields are
    left out, since points may be taken, too."""
    found: dict[int, Expression] = {}
    most = among.bit_count() - FEWEST_TICKETS
    for term, mask in masks.plain.items():
        held = mask & among
        if FEWEST_TICKETS <= held.bit_count() <= most and not term.is_denied:
            found.setdefault(held, term)
    return [*found.values()], [*found]


def count_words(words: Sequence[int], held: Sequence[int], among: int) -> Numbers:
    """Count, for each ticket in ``among``, how many of these words it mentions. ``held[i]`` is the
    mask of term i."""
    counts: Numbers = unpack([held[place] for place in words], among).sum(axis=0, dtype=np.float64)
    return counts


def write_card(
    of: Verdict, lines: Sequence[Sequence[Conjunction]], points: list[int], least: int, lists: int
) -> Scorecard:
    """Return a card on which all conditions in an entry of ``lines`` have the same points. The
    first ``lists`` entries are word lists."""
    each = {
        line: score for some, score in zip(lines, points, strict=True) if score for line in some
    }
    listed: dict[int, list[Conjunction]] = {}  # words with equal points become one list
    for some, score in zip(lines[:lists], points, strict=False):
        if score:
            listed.setdefault(score, []).extend(some)
    return Scorecard(of, each, least, tuple(listed.values()))


def estimate_first_gains(
    tally: Contingency, log_odds: float, price: float = 1.0, other: float = 1.0
) -> Numbers:
    """Return what ``estimate_gains`` would where all tickets have the same log-odds. A wanted
    ticket weighs ``price``, any other one ``other``."""
    (chance,), right, wrong = (
        find_probabilities(np.array([log_odds])),
        price * tally.right,
        other * (tally.held - tally.right),
    )
    hessian = chance * (1 - chance)
    whole = hessian * (price * tally.wanted + other * (tally.tickets - tally.wanted))
    return _find_newton_gains(
        right * (1 - chance) - wrong * chance, hessian * (right + wrong), whole
    )


def estimate_gains(
    rows: NDArray[np.float32], labels: Numbers, weights: Numbers, log_odds: Numbers
) -> Numbers:
    """Return by how much each condition would lower the loss, to the second order, if its weight
    and the constant were fitted."""
    chances = find_probabilities(log_odds)
    hessian = weights * chances * (1 - chances)
    gradients, hessians = (
        rows @ each.astype(np.float32) for each in (weights * (labels - chances), hessian)
    )
    return _find_newton_gains(
        gradients.astype(np.float64), hessians.astype(np.float64), hessian.sum()
    )


def fit_points(
    design: Numbers,
    labels: Numbers,
    weights: Numbers,
    first: Numbers,
    beside: Numbers | float = 0.0,
) -> Numbers:
    """Return the weights of least loss, that of the constant first."""
    ridge = np.array([1e-6] + [PENALTY] * (len(first) - 1))
    return fit_logistic(design, labels, weights, first, ridge, beside=beside)


# Inside -------------------------------------------------------------------------------------------


def _find_newton_gains(gradients: Numbers, hessians: Numbers, whole: float) -> Numbers:
    """Return by how much a Newton step lowers the loss, given its gradients and second derivatives;
    ``whole`` is that of the constant."""
    gains: Numbers = gradients**2 / (hessians - hessians**2 / max(whole, 1e-9) + PENALTY)
    return gains.round(3)  # smaller differences may come from the order of a sum alone


def _round(
    design: Numbers, labels: Numbers, weights: Numbers, fitted: Numbers, even: float
) -> tuple[list[int], int] | None:
    """Return whole points for the weights, and the smallest sum whose log-odds are above ``even``:
    from there on a ticket fails. None if no weight is left after rounding."""
    largest = float(np.abs(fitted[1:]).max())
    if largest < 1e-6:
        return None
    most = np.linspace(1, MOST_POINTS, SCALES)
    points = np.round(fitted[1:] * most[:, None] / largest)
    sums = (points @ design[:, 1:].T).astype(np.int64)
    low, high = int(sums.min()), int(sums.max())
    # Tickets with equal sums are counted as one, of which a share fails.
    each = np.arange(low, high + 1, dtype=np.float64)
    places = sums - low + len(each) * np.arange(SCALES)[:, None]
    having, failing = (
        np.bincount(places.ravel(), np.tile(some, SCALES), SCALES * len(each))
        .reshape(SCALES, -1)
        .astype(np.float64)
        for some in (weights, weights * labels)
    )
    shares = failing / np.maximum(having, 1e-300)
    rows = np.broadcast_to(np.column_stack([np.ones(len(each)), each]), (SCALES, len(each), 2))
    first = np.column_stack([np.full(SCALES, fitted[0]), largest / most])
    scaled = fit_logistic(rows, shares, having, first, np.full(2, 1e-6))
    log_odds = scaled[:, :1] + scaled[:, 1:] * each
    losses = (having * (np.logaddexp(0, log_odds) - shares * log_odds)).sum(axis=1).round(6)
    losses[scaled[:, 1] <= 0] = np.inf
    best = int(np.argmin(losses))
    if losses[best] == np.inf:
        return None
    shared = int(np.gcd.reduce(points[best].astype(np.int64)))
    shift, scale = scaled[best]
    least = floor((even - shift) / scale / shared) + 1
    return [int(each) // shared for each in points[best]], least
