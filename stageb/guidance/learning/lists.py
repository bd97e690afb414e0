"""Lists of lines: which tickets have one verdict, by sequential covering to the end.

The next line is sought among the tickets that those before it leave (Fürnkranz, "Separate-and-conquer rule learning", 1999):
from each of the ``BEAM`` best parts, the condition that adds most information is joined (FOIL: Quinlan 1990), and of all
that were met, the line counts that tells most. All conditions are counted at once, as rows of bits. In the end each line is
sought once more beside all others, and replaced where that costs less (Cohen, "Fast effective rule induction", 1995).
Each line loses the conditions that mend nothing, or too little to be sure of it. Its limits, which come from a grid, are
moved to where the line tells most, and in the end to where the whole list costs least (``scales.py``).

A line tells the more, the less likely chance is to bring so many tickets of its verdict: Chernoff's exponent, as in
``evidence.py``, less ``PRICE`` of the log of how many conditions there were to choose from, for each. That price is low,
since how many lines are kept is decided elsewhere, on tickets that taught none of them (``whole.py``).
The price of a number that two fields give is higher: it is harder to read, and there are many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf, lgamma, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.scales import Score
from stageb.guidance.learning.terms import FEWEST, Bits, Conjunction, Masks, hold_any, hold_together, pack
from stageb.guidance.rules.conditions import Expression

BEAM = 5  # lines that are made longer
LONGEST = 4  # conditions of a line
LINES = 12  # of a list
PRICE = 0.25
ROUNDS = 8  # in which limits are moved one after the other, at most
LEAST_GAIN = 1e-9  # nats: less is rounding, by which a condition that the line has would count as a gain

Numbers = NDArray[np.float64]
_Part = tuple[tuple[int, ...], Bits, Bits]
"""Places of the terms of a line, and the wanted and the spared tickets for which they hold."""


class Demands(NamedTuple):
    """What is asked of a condition."""

    computed: float = 4.0  # one that computes with two fields counts for so many plain ones
    sure: float = 1.5  # standard errors by which it mends more than it breaks, so three tickets at least; 0: it mends any


FULL = Demands()


def cover(
    masks: Masks, wanted: int, spared: int, least: float, most: int = LINES, demands: Demands = FULL
) -> list[Conjunction]:
    """At most ``most`` lines that together hold for many ``wanted`` tickets and for few ``spared`` ones, the most telling
    first. Of the tickets that they hold, a share above ``least`` is wanted."""
    live = [
        (term, mask)
        for term, mask in masks.unguarded.items()
        if (mask & wanted).bit_count() >= FEWEST and not term.is_between  # a line joins two limits itself
    ]
    if not live:
        return []
    price = PRICE * log(max(2, len(live)))
    prices = np.array([price * _weigh(term, demands.computed) for term, _ in live])
    sides, alarm = (wanted, spared), least / (1 - least)
    rows = [pack([*(mask & side for _, mask in live), side])[:-1] for side in sides]
    limits = _number_limits([term for term, _ in live])

    def grow(wanted: int, spared: int) -> Conjunction:
        if not wanted:
            return ()
        share = max(least, min(0.999, wanted.bit_count() / (wanted | spared).bit_count()))
        left = [pack([side & now, side])[0] for side, now in zip(sides, (wanted, spared), strict=True)]
        line = tuple(live[place][0] for place in _grow((rows[0], rows[1]), (left[0], left[1]), share, prices, limits))

        def tell(right: Numbers, wrong: Numbers) -> Numbers:
            return np.where(right >= FEWEST, _exponent(right, wrong, share), -np.inf)

        line = _move_limits(line, masks, wanted, spared, tell)
        shorter = _shorten(line, masks, wanted, spared, alarm, demands.sure)
        return line if shorter == line else _move_limits(shorter, masks, wanted, spared, tell)

    lines: list[Conjunction] = []
    held = 0
    while len(lines) < most and (line := grow(wanted & ~held, spared & ~held)):
        lines.append(line)
        held |= hold_together(masks, line)

    cost = partial(_cost, masks, wanted, spared, alarm)
    for place in range(len(lines) if len(lines) > 1 else 0):
        others = hold_any(masks, [*lines[:place], *lines[place + 1 :]])
        line = grow(wanted & ~others, spared & ~others)
        changed = [*lines[:place], line, *lines[place + 1 :]]
        if line and line not in lines and cost(changed) < cost(lines):
            lines = changed
    return lines


def refine(lines: Sequence[Conjunction], masks: Masks, wanted: int, spared: int, least: float) -> list[Conjunction]:
    """The lines with each limit where all together cost least, without the lines that mend nothing."""
    alarm = least / (1 - least)
    cost, kept = partial(_cost, masks, wanted, spared, alarm), list(lines)

    def mend(right: Numbers, wrong: Numbers) -> Numbers:
        return right - alarm * wrong

    for _ in range(ROUNDS):
        moved = list(kept)
        for place, line in enumerate(moved):
            others = hold_any(masks, [*moved[:place], *moved[place + 1 :]])
            moved[place] = _move_limits(line, masks, wanted & ~others, spared & ~others, mend)
        if moved == kept or cost(moved) > cost(kept):
            break
        kept = moved
    for line in kept[::-1]:
        others_alone = [each for each in kept if each is not line]
        if others_alone and cost(others_alone) <= cost(kept):
            kept = others_alone
    return kept


# Inside ------------------------------------------------------------------------------------------------------------------


def _cost(masks: Masks, wanted: int, spared: int, alarm: float, lines: Sequence[Conjunction]) -> float:
    """What the tickets cost that lines judge wrong, of which a spared one costs ``alarm`` wanted ones."""
    held = hold_any(masks, lines)
    return (wanted & ~held).bit_count() + alarm * (spared & held).bit_count()


def _move_limits(line: Conjunction, masks: Masks, wanted: int, spared: int, score: Score) -> Conjunction:
    """The line with each of its limits where it scores best beside the others, until none moves."""
    for _ in range(ROUNDS):
        before = line
        for place, term in enumerate(line):
            former = term.as_limit
            scale = masks.scales.of(former)
            if former is None or scale is None:
                continue
            others = hold_together(masks, (*line[:place], *line[place + 1 :]))
            if limit := scale.find_limit(former.side, wanted & others, spared & others, score):
                line = (*line[:place], replace(former, limit=limit), *line[place + 1 :])
        if line == before:
            break
    return line


def _number_limits(terms: Sequence[Expression]) -> NDArray[np.int64]:
    """For each term the number of its field and side, if it is a limit; others have numbers of their own."""
    first: dict[object, int] = {}
    keys = [(limit.of, limit.side) if (limit := each.as_limit) else each for each in terms]
    return np.array([first.setdefault(key, place) for place, key in enumerate(keys)])


def _grow(
    rows: tuple[Bits, Bits], left: tuple[Bits, Bits], share: float, prices: Numbers, limits: NDArray[np.int64]
) -> tuple[int, ...]:
    """The places of the terms of the line that tells most; none where none tells anything. It has one limit at most on each
    side of a field, which is moved afterwards: a second would only make up for the first one's place."""
    (of_wanted, of_spared), (wanted, spared) = rows, left
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    front: list[_Part] = [((), wanted, spared)]
    everyone = _count(wanted), _count(spared)
    for length in range(1, LONGEST + 1):
        found: list[tuple[float, _Part]] = []  # the best of each part, more than enough of them
        for line, right, wrong in front:
            before = _count(right), _count(wrong)
            if not before[1]:
                continue
            kept, broken = _count_each(of_wanted & right), _count_each(of_spared & wrong)
            is_better = (kept >= FEWEST) & (_gain(kept, broken, before) > LEAST_GAIN)
            is_better &= ~np.isin(limits, limits[list(line)])
            paid = prices + sum(prices[place] for place in line)
            tells = _exponent(kept, broken, share) - paid + lgamma(length + 1)
            tells[~is_better] = -np.inf
            place = int(np.argmax(tells))
            if tells[place] > best[0] + LEAST_GAIN:
                best = float(tells[place]), (*line, place)
            gains = np.where(is_better, _gain(kept, broken, everyone) - (paid - length * prices.min()), -np.inf)
            for place in map(int, np.argsort(-gains, kind="stable")[: 8 * BEAM]):
                if is_better[place]:
                    longer = (*line, place), of_wanted[place] & right, of_spared[place] & wrong
                    found.append((-float(gains[place]), longer))
        front = _distinct(found)[:BEAM]
    return best[1]


def _weigh(term: Expression, computed: float) -> float:
    """How many plain conditions it counts for."""
    return sum(computed if each.family == "computed" else 1.0 for each in term.conditions())


def _shorten(line: Conjunction, masks: Masks, wanted: int, spared: int, alarm: float, sure: float) -> Conjunction:
    """The line without the terms that mend too little beside its others, as long as it holds for more wanted tickets than
    spared ones, of which each counts ``alarm`` times."""

    def matters(term: Expression) -> float:
        held = hold_together(masks, tuple(each for each in line if each != term))
        counted = held, held & ~hold_together(masks, line)
        (right, broken), (wrong, mended) = ([(each & side).bit_count() for each in counted] for side in (wanted, spared))
        asked = broken + sure * sqrt(alarm**2 * mended + broken) if sure else 0
        return alarm * mended - asked if right > alarm * wrong else inf

    while len(line) > 1 and matters(least := min(line, key=matters)) <= 0:
        line = tuple(each for each in line if each != least)
    return line


def _distinct(found: Sequence[tuple[float, _Part]]) -> list[_Part]:
    """Lines by what they gain, of those that hold for the same tickets the first."""
    first: dict[tuple[bytes, bytes], _Part] = {}
    for _, part in sorted(found, key=lambda each: (each[0], each[1][0])):
        first.setdefault((part[1].tobytes(), part[2].tobytes()), part)
    return list(first.values())


def _count(bits: Bits) -> int:
    return int(np.bitwise_count(bits).sum())


def _count_each(rows: Bits) -> Numbers:
    counts: Numbers = np.bitwise_count(rows).sum(axis=1, dtype=np.int64).astype(np.float64)
    return counts


def _gain(right: Numbers, wrong: Numbers, before: tuple[int, int]) -> Numbers:
    """FOIL's measure: so many right tickets, times what is learnt of each."""
    share = right / np.maximum(1, right + wrong)
    gain: Numbers = right * (np.log(np.maximum(share, 1e-300)) - log(before[0] / sum(before)))
    return gain


def _exponent(right: Numbers, wrong: Numbers, share: float) -> Numbers:
    """Of Chernoff's bound on the chance of so many right ones where ``share`` are; minus infinity where they are no more."""
    n = np.maximum(1, right + wrong)
    tells: Numbers = right * np.log(np.maximum(right, 1) / (n * share)) + wrong * np.log(
        np.maximum(wrong, 1) / (n * (1 - share))
    )
    tells[right <= share * n] = -np.inf
    return tells
