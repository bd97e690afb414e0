"""Scorecards: conditions with small whole points, and the sum from which a ticket fails.

A card grows point by point. The log-odds that a ticket fails are ``SCALE`` times its points, more or less a constant, so a
point about doubles the odds. Each step gives one more point to a condition, or takes one: the step that lowers the logistic
loss most, of those that its slope and its curvature promise most of (a sparse additive model with integer points, as Ustun &
Rudin, "Supersparse linear integer models for optimized medical scoring systems", 2016; greedy, by coordinates, as in Liu et
al., "FasterRisk", 2022). All cards on the way are kept; which one is used is decided on tickets that taught none of them
(``whole.py``).

Tickets of one sum have one probability, so a step looks at no ticket but through bit masks of those with one sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log1p

from stageb.guidance.reflection.lists import Masks, Term

SCALE = 0.7  # log-odds of a point
STEPS = 60  # at most
MOST_TERMS = 20  # of a card
MOST_POINTS = 5  # of a condition, more or less
FEWEST = 3  # tickets for which a condition must hold, and not hold
TRIED = 12  # steps of which the loss is computed
BITS = 7  # in which probabilities are summed over tickets

Sums = dict[int, int]
"""A sum of points -> the tickets that have it."""


@dataclass(frozen=True, slots=True)
class Scorecard:
    """A ticket fails if it has ``least`` points or more."""

    points: Mapping[Term, int]  # in the order in which they came
    least: int


def grow_cards(masks: Masks, fails: int, passes: int, prices: tuple[float, float]) -> list[Scorecard]:
    """Cards of ever more points for ``fails`` and ``passes``; ``prices`` of one of either judged wrong."""
    terms = _distinct(masks, fails | passes)
    points: dict[Term, int] = {}
    sums: Sums = {0: fails | passes}
    constant = _fit_constant(_count(sums, fails), prices, 0.0)
    loss = _loss(_count(sums, fails), prices, constant)
    cards = [_card(points, constant)]
    while len(cards) < STEPS:
        among = terms if len(points) < MOST_TERMS else {term: terms[term] for term in points}
        steps = _promising(among, sums, fails, prices, constant)
        best: tuple[float, Term, int, Sums, float] | None = None
        for term, step in steps:
            if abs(points.get(term, 0) + step) > MOST_POINTS:
                continue
            further = _add(sums, terms[term], step)
            counts = _count(further, fails)
            fitted = _fit_constant(counts, prices, constant)
            reached = _loss(counts, prices, fitted)
            if best is None or reached < best[0] - 1e-9:
                best = reached, term, step, further, fitted
        if best is None or best[0] >= loss - 1e-6:
            break
        loss, term, step, sums, constant = best
        points = {**points, term: points.get(term, 0) + step}
        points = {each: score for each, score in points.items() if score}
        cards.append(_card(points, constant))
    return cards


def fail_by(card: Scorecard, masks: Masks, among: int) -> int:
    """The tickets ``among`` these that fail by a card."""
    sums: Sums = {0: among}
    for term, points in card.points.items():
        sums = _add(sums, masks[term], points)
    return sum(mask for total, mask in sums.items() if total >= card.least)


# Inside ------------------------------------------------------------------------------------------------------------------


def _card(points: Mapping[Term, int], constant: float) -> Scorecard:
    least = 0
    while SCALE * least + constant <= 0:
        least += 1
    while SCALE * (least - 1) + constant > 0:
        least -= 1
    return Scorecard(dict(points), least)


def _distinct(masks: Masks, among: int) -> dict[Term, int]:
    """What may have points: of terms that say the same of all tickets the first, and nothing denied or computed, since
    points may be taken, too."""
    found: dict[int, Term] = {}
    for term, mask in masks.items():
        held = mask & among
        few = min(held.bit_count(), (among & ~mask).bit_count())
        if few >= FEWEST and not term.is_denied and not term.condition.is_computed:
            found.setdefault(held, term)
    return {term: held for held, term in found.items()}


def _add(sums: Sums, mask: int, points: int) -> Sums:
    """The sums with further points for the tickets of a mask."""
    further: Sums = {}
    for total, tickets in sums.items():
        for reached, some in ((total + points, tickets & mask), (total, tickets & ~mask)):
            if some:
                further[reached] = further.get(reached, 0) | some
    return further


def _count(sums: Sums, fails: int) -> list[tuple[int, int, int]]:
    """Each sum with its failing and its passing tickets, in number."""
    failing = ((total, mask, (mask & fails).bit_count()) for total, mask in sorted(sums.items()))
    return [(total, few, mask.bit_count() - few) for total, mask, few in failing]


def _fit_constant(counts: Sequence[tuple[int, int, int]], prices: tuple[float, float], first: float) -> float:
    """The constant of least loss, by Newton's method from the ``first`` one."""
    constant = first
    for _ in range(8):
        slope = bend = 0.0
        for total, fails, passes in counts:
            chance = _chance(SCALE * total + constant)
            weight = prices[0] * fails + prices[1] * passes
            slope += weight * chance - prices[0] * fails
            bend += weight * chance * (1 - chance)
        if bend < 1e-9:
            break
        step = max(-2.0, min(2.0, slope / bend))
        constant -= step
        if abs(step) < 1e-6:
            break
    return constant


def _loss(counts: Sequence[tuple[int, int, int]], prices: tuple[float, float], constant: float) -> float:
    """The logistic loss, at the prices."""
    return sum(
        prices[0] * fails * _softplus(-(SCALE * total + constant)) + prices[1] * passes * _softplus(SCALE * total + constant)
        for total, fails, passes in counts
    )


def _promising(
    terms: Mapping[Term, int], sums: Sums, fails: int, prices: tuple[float, float], constant: float
) -> list[tuple[Term, int]]:
    """The ``TRIED`` steps of which the loss, to the second order, promises most."""
    chances = {total: _chance(SCALE * total + constant) for total in sums}
    missing = _planes((mask & fails, 1 - chances[total]) for total, mask in sums.items())
    beyond = _planes((mask & ~fails, chances[total]) for total, mask in sums.items())
    bend = _planes((mask, 4 * chances[total] * (1 - chances[total])) for total, mask in sums.items())
    ranked: list[tuple[float, int, Term, int]] = []
    for place, (term, mask) in enumerate(terms.items()):
        slope = prices[0] * _sum_up(missing, mask) - prices[1] * _sum_up(beyond, mask)
        promise = abs(slope) * SCALE - max(prices) * _sum_up(bend, mask) / 4 * SCALE * SCALE / 2
        ranked.append((-promise, place, term, 1 if slope > 0 else -1))
    return [(term, step) for _, _, term, step in sorted(ranked, key=lambda each: each[:2])[:TRIED]]


def _planes(shares: Iterable[tuple[int, float]]) -> list[int]:
    """Numbers between 0 and 1 of the tickets of each mask, in ``BITS`` bits: for each bit the tickets that have it."""
    planes = [0] * BITS
    for mask, share in shares:
        number = round(share * ((1 << BITS) - 1))
        for bit in range(BITS):
            if number >> bit & 1:
                planes[bit] |= mask
    return planes


def _sum_up(planes: Sequence[int], mask: int) -> float:
    """The sum of the numbers of a mask's tickets."""
    return sum((plane & mask).bit_count() << bit for bit, plane in enumerate(planes)) / ((1 << BITS) - 1)


def _chance(log_odds: float) -> float:
    return 1 / (1 + exp(-max(-500.0, log_odds)))


def _softplus(number: float) -> float:
    return log1p(exp(-abs(number))) + max(number, 0.0)
