"""Scorecards: conditions with small whole points, and the sum from which a ticket fails.

Conditions are chosen one after the other, for a logistic regression with a small penalty on large weights: of all of them,
the one that lowers the loss most, to the second order; then all weights are fitted anew. Of every size, the weights are made
whole: multiplied so that the largest is between 1 and ``MOST_POINTS``, and rounded, with the multiplier of least loss
(Liu et al., "FasterRisk: fast and accurate interpretable risk scores", 2022; Ustun & Rudin, "Supersparse linear integer
models for optimized medical scoring systems", 2016). Which size is used is decided on tickets that taught none of them
(``whole.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.calibration import Numbers, find_chances, fit_logistic
from stageb.guidance.learning.terms import Masks, Term, unpack

MOST_TERMS = 20  # of a card
MOST_POINTS = 5  # of a condition, more or less
FEWEST = 3  # tickets for which a condition must hold, and not hold
TRIED = 1500  # conditions: those that tell most by themselves
PENALTY = 0.5  # half of it times the square of each weight is added to the loss
SCALES = 9  # multipliers that are tried

Sums = dict[int, int]
"""A sum of points -> the tickets that have it."""


@dataclass(frozen=True, slots=True)
class Scorecard:
    """A ticket fails if it has ``least`` points or more."""

    points: Mapping[Term, int]  # in the order in which they came
    least: int


def grow_cards(
    masks: Masks, fails: int, passes: int, prices: tuple[float, float], longest: int = MOST_TERMS
) -> list[Scorecard]:
    """Cards of one condition, of two, and so on, for ``fails`` and ``passes``; ``prices`` of one of either judged wrong."""
    among = fails | passes
    terms = _distinct(masks, among)
    if not terms or not fails or not passes:
        return []
    labels = unpack([fails], among)[0].astype(np.float64)
    # Half of the price weighs tickets, half moves the limit: all by weight, few failures would teach as if they were many.
    weights = np.sqrt(np.where(labels > 0, *prices))
    weights *= len(labels) / weights.sum()
    even = (log(prices[1]) - log(prices[0])) / 2
    rows = unpack([masks[term] for term in terms], among).astype(np.float32)
    constant = np.ones((len(labels), 1))
    fitted = _fit(constant, labels, weights, np.zeros(1))
    gains = _promise(rows, labels, weights, constant @ fitted)
    tried = np.sort(np.argsort(-gains, kind="stable")[:TRIED])
    rows, cards, chosen = rows[tried], list[Scorecard](), list[int]()
    design = constant
    while len(chosen) < min(longest, len(tried)):
        gains = _promise(rows, labels, weights, design @ fitted)
        gains[chosen] = -1
        chosen.append(int(np.argmax(gains)))
        design = np.column_stack([constant, rows[chosen].T])
        fitted = _fit(design, labels, weights, np.append(fitted, 0.0))
        card = _round(design, labels, weights, fitted, even)
        if card:
            points = {terms[tried[place]]: score for place, score in zip(chosen, card[0], strict=True) if score}
            cards.append(Scorecard(points, card[1]))
    return cards


def fail_by(card: Scorecard, masks: Masks, among: int) -> int:
    """The tickets ``among`` these that fail by a card."""
    sums: Sums = {0: among}
    for term, points in card.points.items():
        further: Sums = {}
        for total, tickets in sums.items():
            for reached, some in ((total + points, tickets & masks[term]), (total, tickets & ~masks[term])):
                if some:
                    further[reached] = further.get(reached, 0) | some
        sums = further
    return sum(mask for total, mask in sums.items() if total >= card.least)


# Inside ------------------------------------------------------------------------------------------------------------------


def _distinct(masks: Masks, among: int) -> list[Term]:
    """What may have points: of terms that say the same of all tickets the first, and nothing denied or computed, since
    points may be taken, too."""
    found: dict[int, Term] = {}
    for term, mask in masks.items():
        held = mask & among
        few = min(held.bit_count(), (among & ~mask).bit_count())
        if few >= FEWEST and not term.is_denied and not term.condition.is_computed:
            found.setdefault(held, term)
    return [*found.values()]


def _promise(rows: NDArray[np.float32], labels: Numbers, weights: Numbers, log_odds: Numbers) -> Numbers:
    """How much each condition would lower the loss, to the second order, if its weight and the constant were fitted."""
    chances = find_chances(log_odds)
    bend = weights * chances * (1 - chances)
    slopes, bends = (rows @ each.astype(np.float32) for each in (weights * (labels - chances), bend))
    gains: Numbers = slopes**2 / (bends - bends**2 / max(bend.sum(), 1e-9) + PENALTY)
    return gains.astype(np.float64).round(3)  # what differs less is the same, in whatever order it was summed up


def _fit(design: Numbers, labels: Numbers, weights: Numbers, first: Numbers) -> Numbers:
    """The weights of least loss, that of the constant first."""
    return fit_logistic(design, labels, weights, first, np.array([1e-6] + [PENALTY] * (len(first) - 1)))


def _round(design: Numbers, labels: Numbers, weights: Numbers, fitted: Numbers, even: float) -> tuple[list[int], int] | None:
    """Whole points for the weights, and the least sum of log-odds above ``even``, which fails; None where nothing is left of
    them."""
    largest = float(np.abs(fitted[1:]).max())
    if largest < 1e-6:
        return None
    most = np.linspace(1, MOST_POINTS, SCALES)
    points = np.round(fitted[1:] * most[:, None] / largest)
    sums = (points @ design[:, 1:].T).astype(np.int64)
    low, high = int(sums.min()), int(sums.max())
    # Tickets of one sum are as one, of which a share fails.
    each = np.arange(low, high + 1, dtype=np.float64)
    places = sums - low + len(each) * np.arange(SCALES)[:, None]
    having, failing = (
        np.bincount(places.ravel(), np.tile(some, SCALES), SCALES * len(each)).reshape(SCALES, -1).astype(np.float64)
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
