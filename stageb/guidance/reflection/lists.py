"""Lists of lines: which tickets have one verdict, by sequential covering to the end.

The next line is sought among the tickets that those before it leave (Fürnkranz, "Separate-and-conquer rule learning", 1999):
from each of the ``BEAM`` best parts, the condition that adds most information is joined (FOIL: Quinlan 1990), and of all
that were met, the line counts that tells most. Sets of tickets are bit masks, and all that is counted is whole numbers:
equal tickets give equal lists on every machine.

A line tells the more, the less likely chance is to bring so many tickets of its verdict: Chernoff's exponent, as in
``evidence.py``, less ``PRICE`` of the log of how many conditions there were to choose from, for each. That price is low,
since how many lines are kept is decided elsewhere, on tickets that taught none of them (``whole.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf, lgamma, log
from operator import and_, or_

from stageb.guidance.reflection.conditions import Condition, Forms, find_conditions
from stageb.guidance.rules.reading import OPERATORS, Reading

BEAM = 5  # lines that are made longer
LONGEST = 4  # conditions of a line
LINES = 12  # of a list
FEWEST = 2  # tickets of its verdict that a line must hold for
MOST_TERMS = 4096  # that are looked at: long texts hold many more phrases, most of which few tickets have
LEAST_DENIED = 5  # tickets that meet a condition which may be denied
PRICE = 0.25
_OPERATOR = re.compile(f" [{re.escape(''.join(OPERATORS))}] ")


@dataclass(frozen=True, slots=True)
class Term:
    """A condition, or that it does not hold."""

    condition: Condition
    is_denied: bool = False


Line = tuple[Term, ...]
"""Terms that hold together."""

Masks = Mapping[Term, int]
"""Every term with the bit mask of the tickets for which it is known to hold."""


def find_terms(readings: Sequence[Reading], forms: Forms) -> dict[Term, int]:
    """Every condition that ``FEWEST`` tickets or more meet, and what some of them deny: that a field has a value, or that a
    word is mentioned; of more than ``MOST_TERMS`` those that part the tickets most evenly. Of those that say the same of all
    tickets, the first. A condition on a field that a ticket lacks does not hold for it, denied or not."""
    masks = find_conditions(readings, forms)
    having: dict[str, int] = {}
    for condition, mask in masks.items():
        if condition.kind == "is":
            having[condition.name] = having.get(condition.name, 0) | mask
    everything = (1 << len(readings)) - 1
    first: dict[int, Term] = {}
    for condition, mask in masks.items():
        first.setdefault(mask, Term(condition))
    for condition, mask in masks.items():
        if mask.bit_count() < LEAST_DENIED:
            continue
        if condition.kind == "is":
            first.setdefault(having[condition.name] & ~mask, Term(condition, True))
        elif condition.kind == "mentions" and " " not in condition.value:
            first.setdefault(everything & ~mask, Term(condition, True))
    balance = {mask: min(mask.bit_count(), len(readings) - mask.bit_count()) for mask in first}
    kept = sorted((mask for mask in first if mask.bit_count() >= FEWEST), key=lambda mask: -balance[mask])[:MOST_TERMS]
    chosen = set(kept)
    return {term: mask for mask, term in first.items() if mask in chosen}


def find_gaps(terms: Iterable[Term], readings: Sequence[Reading]) -> dict[Term, int]:
    """The tickets of which terms do not tell whether they hold, since they lack a field; terms without such tickets are left
    out."""
    having: dict[str, int] = {}
    for place, each in enumerate(readings):
        for name in each.pairs:
            having[name] = having.get(name, 0) | 1 << place
    everything = (1 << len(readings)) - 1
    gaps = {
        term: everything & ~reduce(and_, (having.get(name, everything) for name in _fields(term.condition)), everything)
        for term in terms
    }
    return {term: mask for term, mask in gaps.items() if mask}


def cover(masks: Masks, wanted: int, spared: int, least: float, most: int = LINES) -> list[Line]:
    """At most ``most`` lines that together hold for many ``wanted`` tickets and for few ``spared`` ones, the most telling
    first. Of the tickets of a line, a share above ``least`` is wanted."""
    live = [(term, mask) for term, mask in masks.items() if (mask & wanted).bit_count() >= FEWEST]
    price = PRICE * log(max(2, len(live)))
    lines: list[Line] = []
    while wanted and len(lines) < most:
        share = max(least, min(0.999, wanted.bit_count() / (wanted | spared).bit_count()))
        line = _grow(live, wanted, spared, share, price)
        if not line:
            break
        lines.append(line)
        held = hold_together(masks, line)
        wanted, spared = wanted & ~held, spared & ~held
    return lines


def hold_together(masks: Masks, line: Line) -> int:
    """The tickets for which a line holds."""
    return reduce(and_, (masks[term] for term in line))


def hold_any(masks: Masks, lines: Sequence[Line]) -> int:
    """The tickets for which one of the lines holds."""
    return reduce(or_, (hold_together(masks, line) for line in lines), 0)


# Inside ------------------------------------------------------------------------------------------------------------------


def _fields(condition: Condition) -> list[str]:
    """The fields that a condition compares."""
    sides = (
        [condition.name, condition.value] if condition.kind in ("equals", "differs", "over", "under") else [condition.name]
    )
    return [field for side in sides for field in (_OPERATOR.split(side) if condition.is_computed else [side])]


def _grow(terms: Sequence[tuple[Term, int]], wanted: int, spared: int, share: float, price: float) -> Line:
    """The line that tells most; empty where none tells anything."""
    live = [(place, mask & wanted, mask & spared) for place, (_, mask) in enumerate(terms)]
    live = [each for each in live if each[1].bit_count() >= FEWEST]
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    front: list[tuple[tuple[int, ...], int, int]] = [((), wanted, spared)]
    everyone = wanted.bit_count(), spared.bit_count()
    pure = -log(everyone[0] / sum(everyone))  # what is learnt of each ticket, at most; and of its verdict, likewise
    surely = -log(share)
    for length in range(1, LONGEST + 1):
        cost = length * price - lgamma(length + 1)
        found: list[tuple[float, tuple[int, ...], int, int]] = []  # the best so far, more than enough of them
        worst = -inf
        for line, right, wrong in front:
            before = right.bit_count(), wrong.bit_count()
            if not before[1]:
                continue
            for place, of_right, of_wrong in live:
                count = (kept := of_right & right).bit_count()
                if count < FEWEST or (count * pure <= worst and count * surely - cost <= best[0]):
                    continue  # not even without a wrong ticket
                broken = of_wrong & wrong
                counts = count, broken.bit_count()
                if _gain(*counts, before) <= 0:
                    continue
                longer = (*line, place)
                tells = _exponent(*counts, share) - cost
                if tells > best[0] + 1e-9:
                    best = tells, longer
                gain = _gain(*counts, everyone)
                if gain > worst:
                    found.append((-gain, longer, kept, broken))
                    if len(found) >= 8 * BEAM:
                        found = _distinct(found)[:BEAM]
                        worst = -found[-1][0] if len(found) == BEAM else -inf
        front = [(line, right, wrong) for _, line, right, wrong in _distinct(found)[:BEAM]]
    return tuple(terms[place][0] for place in best[1])


def _distinct(found: Sequence[tuple[float, tuple[int, ...], int, int]]) -> list[tuple[float, tuple[int, ...], int, int]]:
    """Lines by what they gain, of those that hold for the same tickets the first."""
    first: dict[tuple[int, int], tuple[float, tuple[int, ...], int, int]] = {}
    for each in sorted(found, key=lambda each: each[:2]):
        first.setdefault(each[2:], each)
    return list(first.values())


def _gain(right: int, wrong: int, before: tuple[int, int]) -> float:
    """FOIL's measure: so many right tickets, times what is learnt of each."""
    return right * (log(right / (right + wrong)) - log(before[0] / sum(before)))


def _exponent(right: int, wrong: int, share: float) -> float:
    """Of Chernoff's bound on the chance of so many right ones where ``share`` are; minus infinity where they are no more."""
    n = right + wrong
    if right <= share * n:
        return -inf
    return right * log(right / (n * share)) + (wrong * log(wrong / (n * (1 - share))) if wrong else 0.0)
