"""Lists of lines: which tickets have one verdict, found by sequential covering to the end.

The next line is sought among the tickets that those before it leave (Fürnkranz,
"Separate-and-conquer rule learning", 1999): each of the ``BEAM`` best parts is joined with the
conditions that add most information (FOIL: Quinlan 1990), and of all lines that were met, the one
is taken that tells most. All conditions are counted at once, as rows of bits. In the end each line
is sought once more beside all others, and replaced where that costs less (Cohen, "Fast effective
rule induction", 1995). Each line loses the conditions that mend nothing, or too little to be sure
of it. Its limits, which come from a grid, are moved to where the line tells most, and in the end to
where the whole list costs least (``scales.py``).

A line's score says how unlikely it is that chance brings so many tickets of its verdict. Of its
``n`` tickets ``a`` are wanted, of all tickets a ``share``: the score is n * KL(a / n || share), as
in ``evidence.py``. Among many conditions some look good by chance, so each that a line has costs it
``PRICE`` times the log of how many there were to choose from. That price is low, since how many
lines are kept is decided elsewhere, on tickets that taught none of them (``rule_sets.py``). A
number that is computed from two fields costs more: it is harder to read, and there are many of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf, lgamma, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.scales import Score
from stageb.guidance.learning.terms import (
    FEWEST_HELD,
    Bits,
    Conjunction,
    Masks,
    hold_any,
    hold_together,
    pack,
)
from stageb.guidance.rules.conditions import Expression

BEAM = 5  # lines that are made longer at each step
LONGEST = 4  # conditions in a line, at most
LINES = 12  # in a list, at most
PRICE = 0.25  # of each condition, times the log of how many there were to choose from
ROUNDS = 8  # of moving all limits, one after the other, at most
# nats: a smaller gain is rounding; a condition that the line has already would seem to add it
LEAST_GAIN = 1e-9

Numbers = NDArray[np.float64]


class _Part(NamedTuple):
    """A line that may become longer."""

    line: tuple[int, ...]  # places of its terms
    places: NDArray[np.int64]  # of the terms that may be joined
    of_wanted: Bits  # the wanted tickets for which each of these terms holds
    of_negatives: Bits  # the negatives for which each holds
    right: Bits  # the wanted tickets for which the line holds
    wrong: Bits  # the negatives for which it holds

    def keep(self, is_kept: NDArray[np.bool_]) -> _Part:
        """Return the part with fewer terms that may be joined."""
        if is_kept.all():
            return self
        return self._replace(
            places=self.places[is_kept],
            of_wanted=self.of_wanted[is_kept],
            of_negatives=self.of_negatives[is_kept],
        )


class Demands(NamedTuple):
    """The demands on a condition."""

    computed: float = 4.0  # how many plain conditions one that computes with two fields counts for
    # by how many standard errors it must mend more than it breaks, so three tickets at least; 0: it
    # must mend more than nothing
    sure: float = 1.5


FULL = Demands()


def learn_lines(
    masks: Masks,
    wanted: int,
    negatives: int,
    least: float,
    most: int = LINES,
    demands: Demands = FULL,
) -> list[Conjunction]:
    """Find at most ``most`` lines that together hold for many ``wanted`` tickets and for few
    ``negatives``, the most telling first. Among the tickets for which they hold, the share of
    wanted ones is above ``least``."""
    seek, cost_of_negative = (
        cache(partial(_Search, masks, wanted, negatives, demands.computed)),
        least / (1 - least),
    )

    def grow(now: int, others: int) -> Conjunction:
        if not now:
            return ()
        share = max(least, min(0.999, now.bit_count() / (now | others).bit_count()))

        def tell(right: Numbers, wrong: Numbers) -> Numbers:
            return np.where(right >= FEWEST_HELD, _exponent(right, wrong, share), -np.inf)

        key = wanted, negatives, demands.computed, now, others, share
        if key not in masks.grown_lines:
            masks.grown_lines[key] = _move_limits(
                seek().find_line(now, others, share), masks, now, others, tell
            )
        line = masks.grown_lines[key]
        shorter = _shorten(line, masks, now, others, cost_of_negative, demands.sure)
        return line if shorter == line else _move_limits(shorter, masks, now, others, tell)

    lines: list[Conjunction] = []
    held = 0
    while len(lines) < most and (line := grow(wanted & ~held, negatives & ~held)):
        lines.append(line)
        held |= hold_together(masks, line)

    cost = partial(_cost, masks, wanted, negatives, cost_of_negative)
    for place in range(len(lines) if len(lines) > 1 else 0):
        others = hold_any(masks, [*lines[:place], *lines[place + 1 :]])
        line = grow(wanted & ~others, negatives & ~others)
        changed = [*lines[:place], line, *lines[place + 1 :]]
        if line and line not in lines and cost(changed) < cost(lines):
            lines = changed
    return lines


def refine(
    lines: Sequence[Conjunction], masks: Masks, wanted: int, negatives: int, least: float
) -> list[Conjunction]:
    """Move each limit to where the lines together cost least, then drop lines that no longer
    help."""
    cost_of_negative = least / (1 - least)
    cost, kept = partial(_cost, masks, wanted, negatives, cost_of_negative), list(lines)

    def mend(right: Numbers, wrong: Numbers) -> Numbers:
        return right - cost_of_negative * wrong

    for _ in range(ROUNDS):
        moved = list(kept)
        for place, line in enumerate(moved):
            others = hold_any(masks, [*moved[:place], *moved[place + 1 :]])
            moved[place] = _move_limits(line, masks, wanted & ~others, negatives & ~others, mend)
        if moved == kept or cost(moved) > cost(kept):
            break
        kept = moved
    place = len(kept)
    while place and len(kept) > 1:
        place -= 1
        without = [*kept[:place], *kept[place + 1 :]]
        if cost(without) <= cost(kept):
            # without this line, another one may mend nothing now
            kept, place = without, len(without)
    return kept


# Inside -------------------------------------------------------------------------------------------


def _cost(
    masks: Masks, wanted: int, negatives: int, cost_of_negative: float, lines: Sequence[Conjunction]
) -> float:
    """Return the cost of the tickets that the lines judge wrong. A wanted ticket missed costs 1, a
    negative one held costs ``cost_of_negative``. Rounded, so that equal costs compare as equal."""
    held = hold_any(masks, lines)
    return round(
        (wanted & ~held).bit_count() + cost_of_negative * (negatives & held).bit_count(), 9
    )


def _move_limits(
    line: Conjunction, masks: Masks, wanted: int, negatives: int, score: Score
) -> Conjunction:
    """Move each limit of the line to where it scores best beside the other terms, until none
    moves."""
    # the other terms each limit was last placed against; skip it while they are the same
    placed: dict[int, Conjunction] = {}
    for _ in range(ROUNDS):
        before = line
        for place, term in enumerate(line):
            former, others = term.as_limit, (*line[:place], *line[place + 1 :])
            scale = masks.scales.of(former)
            if former is None or scale is None or placed.get(place) == others:
                continue
            placed[place], held = others, hold_together(masks, others)
            if limit := scale.find_limit(former.side, wanted & held, negatives & held, score):
                line = (*line[:place], replace(former, limit=limit), *line[place + 1 :])
        if line == before:
            break
    return line


class _Search:
    """Seeks lines among the terms of masks that some ``wanted`` tickets meet."""

    def __init__(self, masks: Masks, wanted: int, negatives: int, computed: float) -> None:
        live = [
            (term, mask)
            for term, mask in masks.unguarded.items()
            # no "between": a line joins two limits itself
            if (mask & wanted).bit_count() >= FEWEST_HELD and not term.is_between
        ]
        self._terms = [term for term, _ in live]
        price = PRICE * log(max(2, len(live)))
        self._prices = np.array([price * _weigh(term, computed) for term in self._terms])
        self._limits = _number_limits(self._terms)
        self._sides = (wanted, negatives)
        # the lowest bit of each side: rows are shifted by so many
        self._lowest = [max(0, (side & -side).bit_length() - 1) for side in self._sides]
        self._rows = [self._pack(which, [mask for _, mask in live]) for which in (0, 1)]

    def find_line(self, wanted: int, negatives: int, share: float) -> Conjunction:
        """Find the line that tells most about which tickets are ``wanted`` and which are
        ``negatives``; no term where none tells anything."""
        if not self._terms:
            return ()
        left = self._pack(0, [wanted])[0], self._pack(1, [negatives])[0]
        places = _grow((self._rows[0], self._rows[1]), left, share, self._prices, self._limits)
        return tuple(self._terms[place] for place in places)

    def _pack(self, which: int, masks: Sequence[int]) -> Bits:
        side, lowest = self._sides[which], self._lowest[which]
        return pack([*((mask & side) >> lowest for mask in masks), side >> lowest])[:-1]


def _number_limits(terms: Sequence[Expression]) -> NDArray[np.int64]:
    """Number the terms: limits on the same side of a field have the same number, all other terms
    have numbers of their own."""
    first: dict[object, int] = {}
    keys = [(limit.of, limit.side) if (limit := each.as_limit) else each for each in terms]
    return np.array([first.setdefault(key, place) for place, key in enumerate(keys)])


def _grow(
    rows: tuple[Bits, Bits],
    left: tuple[Bits, Bits],
    share: float,
    prices: Numbers,
    limits: NDArray[np.int64],
) -> tuple[int, ...]:
    """Return the places of the terms in the line that tells most; none where none tells anything.
    It has at most one limit on each side of a field, which is moved afterwards: a second one would
    only make up for the place of the first."""
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    front = [_Part((), np.arange(len(prices)), *rows, *left)]
    everyone, cheapest = (_count(left[0]), _count(left[1])), prices.min()
    for length in range(1, LONGEST + 1):
        # the best lines that each part grows into, more than enough of them
        found: list[tuple[float, tuple[int, ...], int, _Part]] = []
        for part in front:
            before = _count(part.right), _count(part.wrong)
            if not before[1]:
                continue
            kept = _count_each(part.of_wanted & part.right)
            part, kept = part.keep(kept >= FEWEST_HELD), kept[kept >= FEWEST_HELD]
            broken = _count_each(part.of_negatives & part.wrong)
            is_better, gains = _find_gains(kept, broken, before, everyone)
            for place in part.line:
                is_better &= limits[part.places] != limits[place]
            gains = gains[is_better]
            paid = prices[part.places[is_better]] + sum(prices[place] for place in part.line)
            tells = _exponent(kept[is_better], broken[is_better], share) - paid + lgamma(length + 1)
            if not len(tells):
                continue
            spots, first = np.flatnonzero(is_better), int(np.argmax(tells))
            if tells[first] > best[0] + LEAST_GAIN:
                best = float(tells[first]), (*part.line, int(part.places[spots[first]]))
            gains -= paid - length * cheapest
            for rank in np.argsort(-gains, kind="stable")[: 8 * BEAM].tolist():
                spot = int(spots[rank])
                found.append(
                    (-float(gains[rank]), (*part.line, int(part.places[spot])), spot, part)
                )
        front = _lengthen(found)
    return best[1]


def _weigh(term: Expression, computed: float) -> float:
    """Return how many plain conditions the term counts for."""
    return sum(computed if each.family == "computed" else 1.0 for each in term.conditions())


def _shorten(
    line: Conjunction,
    masks: Masks,
    wanted: int,
    negatives: int,
    cost_of_negative: float,
    sure: float,
) -> Conjunction:
    """Drop the terms that mend too little beside the others in the line, as long as it holds for
    more wanted tickets than negatives, where each negative counts ``cost_of_negative`` times."""

    def matters(term: Expression) -> float:
        held = hold_together(masks, tuple(each for each in line if each != term))
        counted = held, held & ~hold_together(masks, line)
        (right, broken), (wrong, mended) = (
            [(each & side).bit_count() for each in counted] for side in (wanted, negatives)
        )
        asked = broken + sure * sqrt(cost_of_negative**2 * mended + broken) if sure else 0
        return cost_of_negative * mended - asked if right > cost_of_negative * wrong else inf

    while len(line) > 1 and matters(least := min(line, key=matters)) <= 0:
        line = tuple(each for each in line if each != least)
    return line


def _lengthen(found: Sequence[tuple[float, tuple[int, ...], int, _Part]]) -> list[_Part]:
    """Return the first ``BEAM`` lines by gain, each a part with one more of its terms; of lines
    that hold for the same tickets, the first."""
    first: dict[tuple[bytes, bytes], _Part] = {}
    for _, line, spot, part in sorted(found, key=lambda each: each[:2]):
        right, wrong = part.of_wanted[spot] & part.right, part.of_negatives[spot] & part.wrong
        longer = part._replace(line=line, right=right, wrong=wrong)
        first.setdefault((right.tobytes(), wrong.tobytes()), longer)
        if len(first) == BEAM:
            break
    return list(first.values())


def _count(bits: Bits) -> int:
    return int(np.bitwise_count(bits).sum())


def _count_each(rows: Bits) -> Numbers:
    # a product sums them faster, and as exactly below 2 ** 24
    each = np.bitwise_count(rows).astype(np.float32)
    return (each @ np.ones(each.shape[1], np.float32)).astype(np.float64)


def _find_gains(
    right: Numbers, wrong: Numbers, before: tuple[int, int], everyone: tuple[int, int]
) -> tuple[NDArray[np.bool_], Numbers]:
    """Return whether each term adds anything to a line that held for so many right and wrong
    tickets ``before``, and FOIL's gain of the line with it: its number of right tickets, times what
    each of them tells beside ``everyone``."""
    logs = np.log(np.maximum(right / np.maximum(1, right + wrong), 1e-300))
    adds, gains = (right * (logs - log(some[0] / sum(some))) for some in (before, everyone))
    return adds > LEAST_GAIN, gains


def _exponent(right: Numbers, wrong: Numbers, share: float) -> Numbers:
    """Return the exponent of Chernoff's bound on the chance of so many right tickets where their
    share is ``share``; minus infinity where there are no more than that."""
    n = np.maximum(1, right + wrong)
    tells: Numbers = right * np.log(np.maximum(right, 1) / (n * share)) + wrong * np.log(
        np.maximum(wrong, 1) / (n * (1 - share))
    )
    tells[right <= share * n] = -np.inf
    return tells
