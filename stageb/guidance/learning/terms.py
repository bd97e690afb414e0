"""The terms that may be said of a ticket: conditions, their denials, and counts of them, each with
the tickets for which it holds.

Sets of tickets are whole numbers, a bit for each ticket; where all terms are counted at once, they
are rows of an array. Terms with limits that are in no grid, and counts, get their tickets when they
are asked for.

A count ("at least two of these five") says in one term what would take a list a line for each pair
of the five. Counts are found greedily (ID2-of-3: Murphy and Pazzani, "Constructive induction of
M-of-N concepts", 1991): to the best pairs, the condition is added with which the count tells most
about the label: its mutual information with it, less the log of the number of conditions to choose
from, for each that it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, reduce
from math import lgamma, log
from operator import and_, or_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.scales import Scale
from stageb.guidance.rules.candidates import SearchSpace, find_conditions, find_numbers
from stageb.guidance.rules.conditions import AtLeast, Expression, Limit, Missing, Not
from stageb.guidance.rules.conditions.logic import count_held
from stageb.guidance.rules.value_types import OPERATORS, Computed, Reading, parse_quantity

FEWEST_HELD = 2  # tickets that a term must hold for
LEAST_DENIED = 5  # tickets that must meet a condition for its denial to be a term
RAREST_DENIED = 50  # a value may be denied if one in so many tickets with the field has it
COUNTED = ("plain", "joined", "limit")  # families of conditions on one field, which may be counted
BEAM = 5  # counts that are made longer at each step
TRIED = 40  # conditions that may be counted: those that tell most by themselves
MOST_COUNTED = 8  # conditions in one count

Bits = NDArray[np.uint64]
_Sums = NDArray[np.int64]


Conjunction = tuple[Expression, ...]
"""Literals that hold together: conditions, counts of them, and denials of either."""


class Scales:
    """The numbers of each field that has limits, in ascending order; those that two fields give are
    computed when asked for."""

    def __init__(self, numbers: Mapping[str, Mapping[int, tuple[float, str]]]) -> None:
        self._numbers = numbers
        self.fields = numbers.keys()  # the fields that have numbers
        self._found: dict[str | Computed, Scale] = {}
        self._beyond: dict[Limit, int] = {}

    def of(self, limit: Limit | None) -> Scale | None:
        """Return the scale on which a limit lies; None where there is none."""
        if limit is None:
            return None
        if limit.of not in self._found:
            numbers, sample = self._compute(limit.of)
            if not numbers:
                return None
            self._found[limit.of] = Scale.of(numbers, sample)
        return self._found[limit.of]

    def find_beyond(self, limit: Limit) -> int | None:
        """Return the tickets beyond a limit; None where it lies on no scale."""
        if limit not in self._beyond:
            scale, quantity = self.of(limit), parse_quantity(limit.limit)
            if scale is None or quantity is None:
                return None
            self._beyond[limit] = scale.find_beyond(limit.side, quantity.number)
        return self._beyond[limit]

    def turn(self, limit: Limit) -> Limit | None:
        """Return the limit on the other side that holds for all other numbers; None where there is
        none."""
        scale, quantity = self.of(limit), parse_quantity(limit.limit)
        text = scale.turn(limit.side, quantity.number) if scale and quantity else ""
        return replace(limit.turned, limit=text) if text else None

    def _compute(self, of: str | Computed) -> tuple[Mapping[int, float], str]:
        if isinstance(of, str):
            found = self._numbers.get(of, {})
            samples = sorted(text for _, text in found.values())
            return {place: number for place, (number, _) in found.items()}, samples[
                0
            ] if samples else ""
        one, two, compute = (
            self._numbers[of.first],
            self._numbers[of.second],
            OPERATORS[of.operator],
        )
        both = ((place, one[place][0], two[place][0]) for place in one if place in two)
        return {
            place: compute(left, right)
            for place, left, right in both
            if right or of.operator != "/"
        }, "0"


class Masks(dict[Expression, int]):
    """Terms that rules are made from, each with the bit mask of the tickets for which it is known
    to hold. Other limits, counts of these terms, and the absence of a field that has a guard can be
    looked up, too."""

    def __init__(self, known: Mapping[Expression, int], scales: Scales | None = None) -> None:
        super().__init__(known)
        self.scales = scales or Scales({})
        # What was learnt from these terms, by the arguments of the search: lines (lists.py), and
        # cards with how long they grew (compared_cards.py).
        self.grown_lines: dict[tuple[float, ...], Conjunction] = {}
        self.grown_cards: dict[tuple[object, ...], tuple[int, Any]] = {}

    def plus(self, others: Mapping[Expression, int]) -> Masks:
        """Return the masks with other terms added."""
        return Masks({**self, **others}, self.scales) if others else self

    def keep(self, terms: Iterable[Expression]) -> Masks:
        """Return the masks of these terms alone."""
        return Masks({term: self[term] for term in terms}, self.scales)

    @cached_property
    def plain(self) -> Masks:
        """The terms on single fields, and on words."""
        terms = [term for term in self if not term.is_compared]
        return self if len(terms) == len(self) else self.keep(terms)

    @cached_property
    def unguarded(self) -> Masks:
        """The terms that may stand in a line for what they tell, not as guards of others."""
        return self.keep(term for term in self if not is_guard(term))

    def __missing__(self, term: Expression) -> int:
        if term.absent and make_guard(term.absent) in self:
            return ~self[make_guard(term.absent)]
        beyond = self.scales.find_beyond(term.as_limit) if term.as_limit else None
        return term.hold(self.__getitem__) if beyond is None else beyond


def make_guard(field: str) -> Expression:
    """Make the condition that a field is present."""
    return Not(Missing(field))


def is_guard(term: Expression) -> bool:
    """Whether the term says that a field is present."""
    return bool(term.present)


def find_terms(readings: Sequence[Reading], space: SearchSpace) -> Masks:
    """Find every condition that ``FEWEST_HELD`` tickets or more meet, and the denials of some of
    them: that a field has a value, or that a word is mentioned. Of terms that the same tickets
    meet, keep the first, and one that says that something is present rather than how often. A
    condition on a field that a ticket lacks does not hold for it, denied or not."""
    masks = find_conditions(readings, space)
    # fields -> the tickets that have values in them
    having: dict[tuple[str, ...], int] = {(): (1 << len(readings)) - 1}
    deniable = {condition: mask for condition, mask in masks.items() if condition.may_be_denied}
    for condition, mask in deniable.items():
        having[condition.needed] = having.get(condition.needed, 0) | mask
    are_counted = any(each.is_counted for each in readings)
    first: dict[int, Expression] = {}
    for condition, mask in sorted(
        masks.items(), key=lambda each: are_counted and _is_number_of(each[0])
    ):
        first.setdefault(mask, condition)
    for condition, mask in deniable.items():
        there = having[condition.needed]
        is_rare = condition.needed and mask.bit_count() * RAREST_DENIED < there.bit_count()
        if mask.bit_count() >= LEAST_DENIED and not is_rare:
            first.setdefault(there & ~mask, Not(condition))
    found = {term: mask for mask, term in first.items() if mask.bit_count() >= FEWEST_HELD}
    return Masks(found, Scales(find_numbers(readings)))


def find_gaps(masks: Masks, readings: Sequence[Reading]) -> dict[str, int]:
    """Map each field of the terms that some tickets lack to these tickets: for them it is unknown
    whether a term on the field holds. A number that was not counted is 0."""
    having: dict[str, int] = dict.fromkeys((name for term in masks for name in term.needed), 0)
    for place, each in enumerate(readings):
        there = each.pairs.keys() | masks.scales.fields if each.is_counted else each.pairs.keys()
        for name in there & having.keys():
            having[name] |= 1 << place
    everything = (1 << len(readings)) - 1
    return {name: everything & ~mask for name, mask in having.items() if everything & ~mask}


def find_untold(term: Expression, gaps: Mapping[str, int]) -> int:
    """The tickets that lack a field the term needs, so it is unknown whether it holds."""
    return reduce(or_, (gaps.get(name, 0) for name in term.needed), 0)


def find_possible(term: Expression, masks: Masks, gaps: Mapping[str, int]) -> int:
    """The tickets for which the term holds, or might: they lack a field that it needs."""
    return gaps[term.absent] if term.absent in gaps else masks[term] | find_untold(term, gaps)


def list_guards(gaps: Mapping[str, int], among: int) -> dict[Expression, int]:
    """Map the condition "the field is present" to its tickets in ``among``, for each field of
    ``gaps``."""
    return {make_guard(name): among & ~gap for name, gap in gaps.items()}


def add_guards(line: Conjunction, masks: Masks, gaps: Mapping[str, int], among: int) -> Conjunction:
    """Prefix the line with "the field is present" for each field without which it would be unknown
    of some ticket in ``among``: one that lacks the field, and for which the rest of the line
    holds."""
    rest_of_line = {term: tuple(each for each in line if each != term) for term in line}
    unknown = (
        term
        for term in line
        if find_untold(term, gaps) & among & hold_together(masks, rest_of_line[term])
    )
    names = dict.fromkeys(name for term in unknown for name in term.needed)
    return (*(each for each in map(make_guard, names) if each in masks and each not in line), *line)


def drop_guards(lines: Sequence[Conjunction]) -> tuple[Conjunction, ...]:
    """Return the lines without guards that change no verdict: where the field is missing and the
    rest of the line holds, another line holds, too. All other guards are needed: without them, a
    ticket that lacks the field would have no verdict."""
    kept = [*lines]
    for place, line in enumerate(lines):
        for term in filter(is_guard, line):
            others = [each for each in kept[place] if each != term]
            beside = [each for each in others if not {*term.fields} & {*each.needed}]
            is_implied = any({term.affirmed, *beside}.issuperset(other) for other in kept)
            if is_implied and others:
                kept[place] = tuple(others)
    return tuple(kept)


def hold_together(masks: Masks, line: Conjunction) -> int:
    """Return the tickets for which a line holds. The result is a negative integer (all bits above
    the tickets set) if the line is empty or all its masks are complements; ``&`` it with the
    tickets that count."""
    return reduce(and_, (masks[term] for term in line), -1)


def hold_any(masks: Masks, lines: Sequence[Conjunction]) -> int:
    """Return the tickets for which at least one of the lines holds."""
    return reduce(or_, (hold_together(masks, line) for line in lines), 0)


def pack(masks: Sequence[int]) -> Bits:
    """Return a row of bits for each mask; none may be negative."""
    words = max(1, max(-(-mask.bit_length() // 64) for mask in masks))
    return np.frombuffer(
        b"".join(mask.to_bytes(8 * words, "little") for mask in masks), "<u8"
    ).reshape(len(masks), words)


def unpack(masks: Sequence[int], among: int) -> NDArray[np.uint8]:
    """Return a row of 0 and 1 for each mask: a column for each ticket in ``among``, 1 where the
    mask holds it."""
    rows = pack([among, *masks]).view(np.uint8)
    flags = np.unpackbits(rows, axis=1, bitorder="little")
    return flags[1:, flags[0] == 1]


def repack(flags: NDArray[np.bool_], among: int) -> int:
    """Return the tickets in ``among`` whose flag is set, given one flag for each of them: the
    inverse of ``unpack``."""
    every = np.unpackbits(pack([among]).view(np.uint8), bitorder="little")
    every[every == 1] = flags
    return int.from_bytes(np.packbits(every, bitorder="little").tobytes(), "little")


class Contingency(NamedTuple):
    """The contingency table of each term: for how many of all counted tickets it holds, and for how
    many of the wanted ones."""

    terms: Sequence[Expression]
    held: NDArray[np.float64]  # by term
    right: NDArray[np.float64]  # the wanted ones among them, by term
    tickets: int  # all that are counted
    wanted: int

    @classmethod
    def of(
        cls, terms: Sequence[Expression], masks: Sequence[int], wanted: int, among: int
    ) -> Contingency:
        """Count the tickets in ``among``, to which ``masks`` are cut."""
        held, right = (
            [(mask & side).bit_count() for mask in masks] for side in (among, wanted & among)
        )
        counts = among.bit_count(), (wanted & among).bit_count()
        return cls(terms, np.array(held, np.float64), np.array(right, np.float64), *counts)

    @property
    def turned(self) -> Contingency:
        """The table with all other tickets as the wanted ones."""
        return self._replace(right=self.held - self.right, wanted=self.tickets - self.wanted)


def find_counts(
    masks: Masks, gaps: Mapping[str, int], fails: int, passes: int
) -> dict[Expression, int]:
    """Find the terms "at least so many of these conditions", and their denials, for the conditions
    whose count tells most whether a ticket is in ``fails`` or in ``passes``; nothing where no count
    tells anything. Conditions that are unknown for some tickets are not counted."""
    among = fails | passes
    single = (term for term in masks if not term.parts and term.needed and term.family in COUNTED)
    plain = [term for term in single if not find_untold(term, gaps)]
    if len(plain) < 3:
        return {}
    rows = unpack([masks[term] for term in plain], among).astype(np.float32)
    is_fail = unpack([fails], among)[0].astype(bool)
    alone = _information(np.zeros(len(is_fail), np.int64), rows, is_fail)
    tried = sorted(np.argsort(-alone, kind="stable")[:TRIED].tolist())
    rows, names = rows[tried], [plain[place].fields for place in tried]
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    front: list[tuple[int, ...]] = [(place,) for place in range(len(tried))]
    for size in range(2, MOST_COUNTED + 1):
        scores: dict[tuple[int, ...], float] = {}
        for places in front:
            tells = _information(rows[list(places)].sum(axis=0).astype(np.int64), rows, is_fail)
            for place, told in enumerate(tells.tolist()):
                if names[place] not in {names[other] for other in places}:
                    scores[tuple(sorted((*places, place)))] = told
        price = size * log(len(plain)) - lgamma(size + 1)
        front = sorted(scores, key=lambda places: (-round(scores[places], 6), places))[:BEAM]
        if size > 2 and front and scores[front[0]] - price > best[0]:
            best = scores[front[0]] - price, front[0]
    parts = tuple(plain[tried[place]] for place in best[1])
    held = count_held([masks[term] for term in parts])
    found: dict[Expression, int] = {}
    for count in range(2, len(parts)):
        condition = AtLeast(count, parts)
        found[condition] = held[count - 1] & among
        found[Not(condition)] = among & ~held[count - 1]
    return found


# Inside -------------------------------------------------------------------------------------------


def _is_number_of(condition: Expression) -> bool:
    """Whether the condition says how many of something there are, at least one."""
    values = [value for each in condition.conditions() for field, value in each.named if field]
    return len(values) == 1 and values[0].isdigit() and values != ["0"]


def _information(
    sums: _Sums, rows: NDArray[np.float32], is_fail: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return, for each row, how much the ``sums`` tell about the label once the row's ones are
    added: nats, over all tickets."""
    levels = int(sums.max(initial=0)) + 1
    places = sums + levels * is_fail
    everyone = np.bincount(places, minlength=2 * levels).astype(np.float64).reshape(2, levels)
    held = (
        (rows @ np.eye(2 * levels, dtype=np.float32)[places])
        .astype(np.float64)
        .reshape(-1, 2, levels)
    )
    counts = np.zeros((len(rows), 2, levels + 1))
    counts[:, :, :-1] += everyone - held
    counts[:, :, 1:] += held
    joint, alone = _entropy(counts.sum(axis=1)), _entropy(everyone.sum(axis=1))
    return joint + alone - _entropy(counts.reshape(len(rows), -1))


def _entropy(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the entropy of the shares in the last axis, times the number of tickets."""
    total = counts.sum(axis=-1)
    each: NDArray[np.float64] = total * np.log(np.maximum(total, 1)) - (
        counts * np.log(np.maximum(counts, 1))
    ).sum(axis=-1)
    return each
