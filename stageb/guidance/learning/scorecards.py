"""Scorecards: conditions with small whole points, and the sum from which a ticket fails, or has a
label.

Conditions are chosen one after the other, for a logistic regression with a small penalty on large
weights: each time the one that lowers the loss most, to the second order; then all weights are
fitted anew. For every size, the weights are made whole: multiplied so that the largest is between 1
and ``MOST_POINTS``, and rounded, with the multiplier of least loss (Liu et al., "FasterRisk: fast
and accurate interpretable risk scores", 2022; Ustun & Rudin, "Supersparse linear integer models for
optimized medical scoring systems", 2016). Which size is used is decided on tickets that taught none
of them (``rule_sets.py``).

Each label of a mission's own has a card. A ticket gets the label of the card whose limit it exceeds
most, of those that it reaches. Cards grow in turns, each by a condition or by two that hold
together: for a softmax over labels, in which one label's card is fitted while those of the others
stay as they are. All are made whole by one multiplier, since they are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import floor, log
from operator import or_

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.calibrate import Numbers, find_probabilities, fit_logistic
from stageb.guidance.learning.terms import (
    Conjunction,
    Contingency,
    Masks,
    hold_together,
    repack,
    unpack,
)
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.words.costs import Prices
from stageb.guidance.words.types import Verdict

MOST_TERMS = 30  # on a card
MOST_POINTS = 5  # that a condition gives or takes
FEWEST_TICKETS = (
    3  # tickets that meet a condition, that do not meet it, and that a label with a card has
)
FEWEST_TOGETHER = 5  # tickets that must meet both conditions of a pair
TRIED = 1500  # conditions that may be chosen: those that tell most by themselves
PENALTY = 0.5  # half of it times the square of each weight is added to the loss
SCALES = 9  # multipliers that are tried
MOST_COMPARED_POINTS = 9  # that a condition gives or takes on a card that is compared
PAIRED = 100  # conditions that may be joined in pairs: those that tell most by themselves, ...
OF_FIELD = 4  # ... and this many on one field before any other field has had its turn
LINES_PER_STEP = 10  # a card grows by one line at a time, and by one more for every 10 that it has


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
    # Half of the price weighs tickets, half moves the limit: all by weight, few failures would
    # teach as if they were many.
    of_each = np.sqrt(np.array([prices[verdict], prices[other]]))
    of_each *= len(labels) / np.where(labels > 0, *of_each).sum()
    weights = np.where(labels > 0, *of_each)
    even = (log(prices[other]) - log(prices[verdict])) / 2
    first, tally = (
        np.ones((len(labels), 1)),
        Contingency.of(terms, held, labelled[verdict], among),
    )
    fitted = _fit(first, labels, weights, np.zeros(1))
    gains = _estimate_first_gains(tally, fitted[0], *of_each)
    gains[_find_complements(held, among)] = -np.inf
    lists = [
        words for side in (tally, tally.turned) for words in (listing(side) if listing else ())
    ]
    if listing and not lists:
        return []
    gains[[place for words in lists for place in words]] = -np.inf
    tried = np.sort(np.argsort(-gains, kind="stable")[: min(TRIED, int((gains > -np.inf).sum()))])
    first = np.column_stack([first, *(_count_words(words, held, among) for words in lists)])
    rows = unpack([held[place] for place in tried] if most_lines else [], among).astype(np.float32)
    cards, chosen = list[Scorecard](), list[int]()
    design, fitted = (
        first,
        _fit(first, labels, weights, np.append(fitted, np.zeros(len(lists)))) if lists else fitted,
    )
    named = [[(terms[place],) for place in words] for words in lists]

    def write() -> None:
        if card := _round(design, labels, weights, fitted, even):
            lines = [*named, *([(terms[tried[place]],)] for place in chosen)]
            cards.append(_write_card(verdict, lines, card[0], card[1], len(lists)))

    if lists:
        write()
    while len(chosen) < min(most_lines, len(tried)):
        gains = _estimate_gains(rows, labels, weights, design @ fitted)
        gains[chosen] = -1
        chosen.append(int(np.argmax(gains)))
        design = np.column_stack([first, rows[chosen].T])
        fitted = _fit(design, labels, weights, np.append(fitted, 0.0))
        write()
    return cards


def grow_compared(
    masks: Masks,
    labelled: Mapping[Verdict, int],
    among: int,
    most_lines: int,
    paired: int = PAIRED,
    listing: Listing | None = None,
) -> list[tuple[Scorecard, ...]]:
    """Return cards for each label, with one line each, then two, and so on, later in longer steps,
    learnt from those tickets in ``among`` that are ``labelled``. At most ``paired`` conditions may
    be joined in pairs. With a ``listing``, each card also has the lists of words that speak for its
    label, and the first cards have these alone. The result is kept with the masks, so no cards are
    grown twice."""
    key = *labelled.items(), among, paired, listing
    known = masks.compared.get(key)
    if known is None or known[0] < most_lines:
        known = masks.compared[key] = (
            most_lines,
            _grow_compared(masks, labelled, among, most_lines, paired, listing),
        )
    found: list[tuple[Scorecard, ...]] = []
    longest = 0  # lines on the longest card found
    for lines, cards in known[1][: most_lines + (listing is not None)]:
        if found and longest >= most_lines:
            break
        found.append(cards)
        longest = lines
    return found


def judge_compared(cards: Sequence[Scorecard], masks: Masks, among: int) -> dict[Verdict, int]:
    """Return the tickets in ``among`` by verdict: that of the card whose limit they exceed most, of
    equal ones the first. Tickets below all limits are left out."""
    margins = find_margins(cards, masks, among)
    first, is_reached = margins.argmax(axis=0), margins.max(axis=0) >= 0
    return {
        card.verdict: repack((first == place) & is_reached, among)
        for place, card in enumerate(cards)
    }


def find_margins(cards: Sequence[Scorecard], masks: Masks, among: int) -> Numbers:
    """Return by how many points each ticket in ``among`` exceeds each card's limit: a row for each
    card."""
    margins = []
    for card in cards:
        rows = unpack([hold_together(masks, line) for line in card.points], among)
        points = np.array([*card.points.values()], np.float32)
        margins.append(points @ rows.astype(np.float32) - card.least)
    return np.array(margins, np.float64)


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


# Inside -------------------------------------------------------------------------------------------


def _find_complements(held: Sequence[int], among: int) -> list[int]:
    """Find the places of masks that hold for all tickets for which an earlier one does not: points
    for the one are points taken for the other."""
    seen, found = set[int](), list[int]()
    for place, mask in enumerate(held):
        if among & ~mask in seen:
            found.append(place)
        seen.add(mask)
    return found


def _grow_compared(
    masks: Masks,
    labelled: Mapping[Verdict, int],
    among: int,
    most_lines: int,
    paired: int,
    listing: Listing | None,
) -> list[tuple[int, tuple[Scorecard, ...]]]:
    """Compute what ``grow_compared`` returns. Each entry: the number of lines on the longest card,
    and a card for each label."""
    labels = [
        label for label, mask in labelled.items() if (mask & among).bit_count() >= FEWEST_TICKETS
    ]
    among &= reduce(or_, (labelled[label] for label in labels), 0)
    terms, held = find_distinct(masks, among)
    if not terms or len(labels) < 2:
        return []
    is_label = unpack([labelled[label] for label in labels], among).astype(np.float64)
    scores = np.log(is_label.mean(axis=1))[:, None] + np.zeros(len(is_label[0]))
    cards = []
    for label, is_mine, score in zip(labels, is_label, scores, strict=True):
        tally = Contingency.of(terms, held, labelled[label], among)
        lists = {
            tuple(words): _count_words(words, held, among)
            for words in (listing(tally) if listing else ())
        }
        lines = (
            _find_lines(tally, held, labelled[label], among, score[0], paired) if most_lines else []
        )
        cards.append(_Growing(label, is_mine, terms, lists, lines, among))
    if listing and not any(card.lists for card in cards):
        return []
    found: list[tuple[int, tuple[Scorecard, ...]]] = []
    is_first = listing is not None  # a first round without lines, of word lists alone
    most_rounds = most_lines + is_first
    # Each round lengthens every label's card in turn, fitted against the current scores of the
    # others; then all cards are rounded together.
    while len(found) < most_rounds and (
        is_first or all(len(card.chosen) < most_lines for card in cards)
    ):
        for place, card in enumerate(cards):
            others = np.logaddexp.reduce(np.delete(scores, place, axis=0))
            lines_to_add = 0 if is_first else 1 + len(card.chosen) // LINES_PER_STEP
            scores[place] = card.lengthen(scores[place] - others, others, lines_to_add)
        rounded = _round_together(cards, default=[*labelled][-1])
        found.append((max(len(card.chosen) for card in cards), rounded))
        is_first = False
    return found


def _count_words(words: Sequence[int], held: Sequence[int], among: int) -> Numbers:
    """Count, for each ticket in ``among``, how many of these words it mentions. ``held[i]`` is the
    mask of term i."""
    counts: Numbers = unpack([held[place] for place in words], among).sum(axis=0, dtype=np.float64)
    return counts


class _Growing:
    """A label's card while it grows."""

    def __init__(
        self,
        verdict: Verdict,
        wanted: Numbers,
        terms: Sequence[Expression],
        # places of words -> how many of them each ticket mentions
        lists: Mapping[tuple[int, ...], Numbers],
        # that may have points, each with the tickets in ``among`` that meet it
        lines: Sequence[tuple[Conjunction, int]],
        among: int,
    ) -> None:
        self.verdict, self.wanted = verdict, wanted
        self.lists: list[list[Conjunction]] = [
            [(terms[place],) for place in words] for words in lists
        ]
        listed = {line for words in self.lists for line in words}
        free = [each for each in lines if each[0] not in listed] if listed else lines
        self.lines = [line for line, _ in free]
        self._rows = unpack([mask for _, mask in free], among).astype(np.float32)
        self.chosen: list[int] = []
        self.design = np.column_stack([np.ones(len(wanted)), *lists.values()])
        self.fitted = np.zeros(1 + len(lists))

    def lengthen(self, log_odds: Numbers, others: Numbers, count: int) -> Numbers:
        """Add up to ``count`` lines and return the label's scores, fitted to what ``others`` have.
        ``log_odds`` are those before."""
        even = np.ones(len(self.wanted))
        if left := min(count, len(self.lines) - len(self.chosen)):
            gains = _estimate_gains(self._rows, self.wanted, even, log_odds)
            gains[self.chosen] = -np.inf
            further = np.argsort(-gains, kind="stable")[:left].tolist()
            self.chosen += further
            self.design = np.column_stack([self.design, self._rows[further].T])
            self.fitted = np.append(self.fitted, np.zeros(left))
        if left or not count:
            self.fitted = _fit(self.design, self.wanted, even, self.fitted, -others)
        scores: Numbers = self.design @ self.fitted
        return scores

    def write(self, points: Numbers, least: int) -> Scorecard:
        """Return its card with whole points for each list and line."""
        lines = [*self.lists, *([self.lines[place]] for place in self.chosen)]
        return _write_card(
            self.verdict, lines, [int(each) for each in points], least, len(self.lists)
        )


def _find_lines(
    tally: Contingency, held: Sequence[int], wanted: int, among: int, log_odds: float, paired: int
) -> list[tuple[Conjunction, int]]:
    """Find the lines that may have points on a label's card, each with the tickets in ``among``
    that meet it: the conditions that tell most by themselves, and of the pairs of the first ones
    those that tell most more than either part."""
    terms, alone = tally.terms, _estimate_first_gains(tally, log_odds)
    order = np.argsort(-alone, kind="stable")
    turns, seen = [], Counter[tuple[str, ...]]()
    for place in order.tolist():
        fields = terms[place].fields  # none where words are mentioned
        turns.append(seen[fields] // OF_FIELD if fields else 0)
        seen[fields] += 1
    alone_tried = order[~np.isin(order, _find_complements(held, among))][:TRIED]
    tried, joined = (
        np.sort(alone_tried),
        np.sort(order[np.argsort(turns, kind="stable")[:paired]]),
    )
    pairs = np.array([*combinations(joined, 2)], int).reshape(-1, 2)
    both = [held[one] & held[other] for one, other in pairs.tolist()]
    together = Contingency.of((), both, wanted, among)
    more = _estimate_first_gains(together, log_odds) - alone[pairs].max(axis=1)
    alone_held = {*held}  # such a pair says no more than one condition does
    is_one = np.array([each in alone_held for each in both], bool)
    more[(together.held < FEWEST_TOGETHER) | is_one] = -np.inf
    first = np.argsort(-more, kind="stable")[:TRIED]
    first = np.sort(first[more[first] > -np.inf])
    lines: list[tuple[Conjunction, int]] = [
        ((terms[place],), held[place]) for place in tried.tolist()
    ]
    lines += [
        ((terms[pairs[place, 0]], terms[pairs[place, 1]]), both[place]) for place in first.tolist()
    ]
    return lines


def _round_together(cards: Sequence[_Growing], default: Verdict) -> tuple[Scorecard, ...]:
    """Round the points to whole numbers, by the multiplier of least loss. Choose the limits under
    which most train tickets are judged right, as high as possible, where a ticket that reaches none
    has the label ``default``."""
    largest = max(float(np.abs(card.fitted[1:]).max(initial=0)) for card in cards)
    if largest < 1e-6:
        return ()
    is_label = np.array([card.wanted for card in cards])

    def scale(times: float) -> tuple[float, list[Numbers], Numbers]:
        points = [np.round(times * card.fitted) for card in cards]
        sums = np.array([card.design @ some for card, some in zip(cards, points, strict=True)])
        loss = float(
            (np.logaddexp.reduce(sums / times) - (is_label * sums / times).sum(axis=0)).sum()
        )
        return round(loss, 6), points, sums

    scales = [scale(most / largest) for most in np.linspace(1, MOST_COMPARED_POINTS, SCALES)]
    _, points, sums = min(scales, key=lambda each: each[0])
    most, is_right = (
        sums.max(axis=0),
        np.take_along_axis(is_label, sums.argmax(axis=0)[None], axis=0)[0],
    )
    is_default = np.array([card.verdict == default for card in cards]) @ is_label
    limits = np.unique(most)[::-1]  # that the highest sum must reach; the highest limit first
    limit = limits[
        np.argmax([np.where(most >= each, is_right, is_default).sum() for each in limits])
    ]
    return tuple(
        card.write(some[1:], int(limit - some[0])) for card, some in zip(cards, points, strict=True)
    )


def _write_card(
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


def _estimate_first_gains(
    tally: Contingency, log_odds: float, price: float = 1.0, other: float = 1.0
) -> Numbers:
    """Return what ``_estimate_gains`` would where all tickets have the same log-odds. A wanted
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


def _estimate_gains(
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


def _find_newton_gains(gradients: Numbers, hessians: Numbers, whole: float) -> Numbers:
    """Return by how much a Newton step lowers the loss, given its gradients and second derivatives;
    ``whole`` is that of the constant."""
    gains: Numbers = gradients**2 / (hessians - hessians**2 / max(whole, 1e-9) + PENALTY)
    return gains.round(3)  # smaller differences may come from the order of a sum alone


def _fit(
    design: Numbers,
    labels: Numbers,
    weights: Numbers,
    first: Numbers,
    beside: Numbers | float = 0.0,
) -> Numbers:
    """Return the weights of least loss, that of the constant first."""
    ridge = np.array([1e-6] + [PENALTY] * (len(first) - 1))
    return fit_logistic(design, labels, weights, first, ridge, beside=beside)


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
