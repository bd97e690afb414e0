"""Compared cards: a scorecard for each label of a mission's own, and which of them decides.

A ticket gets the label of the card whose limit it exceeds most, of those that it reaches. Cards
grow in turns, each by a condition or by two that hold together: for a softmax over labels, in which
one label's card is fitted while those of the others stay as they are. All are made whole by one
multiplier, since they are compared. In the end the lines that decide nothing are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from operator import or_

import numpy as np

from stageb.guidance.learning.calibrate import Numbers
from stageb.guidance.learning.scorecards import (
    FEWEST_TICKETS,
    SCALES,
    TRIED,
    Listing,
    Scorecard,
    count_words,
    estimate_first_gains,
    estimate_gains,
    find_distinct,
    fit_points,
    write_card,
)
from stageb.guidance.learning.terms import (
    Conjunction,
    Contingency,
    Masks,
    hold_together,
    repack,
    unpack,
)
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.words.types import Verdict

FEWEST_TOGETHER = 5  # tickets that must meet both conditions of a pair
MOST_COMPARED_POINTS = 9  # that a condition gives or takes on a card that is compared
PAIRED = 100  # conditions that may be joined in pairs: those that tell most by themselves, ...
OF_FIELD = 4  # ... and this many on one field before any other field has had its turn
LINES_PER_STEP = 10  # a card grows by one line at a time, and by one more for every 10 that it has


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
    known = masks.grown_cards.get(key)
    if known is None or known[0] < most_lines:
        known = masks.grown_cards[key] = (
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
        points = np.array([*card.points.values()], np.int64)
        margins.append(points @ rows - card.least)
    return np.array(margins, np.float64)


def drop_lines(
    cards: Sequence[Scorecard], default: Verdict, masks: Masks, among: int
) -> tuple[Scorecard, ...]:
    """Leave out the lines of compared cards without which all tickets in ``among`` have the same
    verdict, ``default`` where they reach none: those of few points first, of equal ones those that
    came last. Word lists stay whole."""
    verdicts = [default, *(card.verdict for card in cards)]
    labels = np.array([verdicts.index(verdict) for verdict in verdicts])
    # a row for the default, which tickets have that are below all limits
    margins = np.vstack([np.full(among.bit_count(), -0.5), *find_margins(cards, masks, among)])
    judged = labels[margins.argmax(axis=0)]
    points = [{**card.points} for card in cards]
    lines = [
        (abs(score), -number, place, line)
        for place, card in enumerate(cards)
        for number, (line, score) in enumerate(card.points.items())
        if not any(line in words for words in card.lists)
    ]
    rows = unpack([hold_together(masks, line) for *_, line in lines], among).astype(np.float64)
    for number in sorted(range(len(lines)), key=lambda number: lines[number][:3]):
        *_, place, line = lines[number]
        added = points[place][line] * rows[number]
        margins[1 + place] -= added
        if (labels[margins.argmax(axis=0)] == judged).all():
            del points[place][line]
        else:
            margins[1 + place] += added
    return tuple(replace(card, points=left) for card, left in zip(cards, points, strict=True))


# Inside -------------------------------------------------------------------------------------------


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
            tuple(words): count_words(words, held, among)
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
            gains = estimate_gains(self._rows, self.wanted, even, log_odds)
            gains[self.chosen] = -np.inf
            further = np.argsort(-gains, kind="stable")[:left].tolist()
            self.chosen += further
            self.design = np.column_stack([self.design, self._rows[further].T])
            self.fitted = np.append(self.fitted, np.zeros(left))
        if left or not count:
            self.fitted = fit_points(self.design, self.wanted, even, self.fitted, -others)
        scores: Numbers = self.design @ self.fitted
        return scores

    def write(self, points: Numbers, least: int) -> Scorecard:
        """Return its card with whole points for each list and line."""
        lines = [*self.lists, *([self.lines[place]] for place in self.chosen)]
        return write_card(
            self.verdict, lines, [int(each) for each in points], least, len(self.lists)
        )


def _find_lines(
    tally: Contingency, held: Sequence[int], wanted: int, among: int, log_odds: float, paired: int
) -> list[tuple[Conjunction, int]]:
    """Find the lines that may have points on a label's card, each with the tickets in ``among``
    that meet it: the conditions that tell most by themselves, and of the pairs of the first ones
    those that tell most more than either part."""
    terms, alone = tally.terms, estimate_first_gains(tally, log_odds)
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
    more = estimate_first_gains(together, log_odds) - alone[pairs].max(axis=1)
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


def _find_complements(held: Sequence[int], among: int) -> list[int]:
    """Find the places of masks that hold for all tickets for which an earlier one does not: points
    for both are points for one, of which the penalty takes less."""
    seen, found = set[int](), list[int]()
    for place, mask in enumerate(held):
        if among & ~mask in seen:
            found.append(place)
        seen.add(mask)
    return found


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
