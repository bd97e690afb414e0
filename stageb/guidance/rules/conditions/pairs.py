"""Conditions on two fields, or on numbers computed from two: which of them is above the other, and
whether they are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

from stageb.guidance.rules import predicates
from stageb.guidance.rules.conditions.base import (
    Call,
    ColumnForm,
    Condition,
    Family,
    Found,
    Marks,
    OutOfReach,
    Read,
    Side,
    T,
    find_mark,
)
from stageb.guidance.rules.conditions.logic import negate
from stageb.guidance.rules.conditions.numbers import (
    SIDES,
    Limit,
    find_computed_limits,
    list_fields,
    name_number,
    write_plain,
)
from stageb.guidance.rules.conditions.values import OneOf
from stageb.guidance.rules.limits import to_mask
from stageb.guidance.rules.value_types import OPERATORS, Computed
from stageb.untrusted.clean_text import fold_value

if TYPE_CHECKING:
    from stageb.guidance.rules.candidates import Table
    from stageb.guidance.rules.parse import RuleReader
    from stageb.guidance.rules.wordings import Grammar

MOST_COMPUTED = 6  # columns to compute with, at most: those that most tickets have
_RELATIONS: Mapping[Side, str] = {"above": "over", "below": "under"}


@dataclass(frozen=True, slots=True)
class Order(Condition):
    """A number is above or below that of another field; or one computed from two fields, above or
    below one computed from two others. It is read where a limit may stand."""

    of: str | Computed
    side: Side
    other: str | Computed

    marks: ClassVar[Marks] = SIDES

    @property
    def call(self) -> Call:
        return (predicates.is_over if self.side == "above" else predicates.is_under), (
            self.of,
            self.other,
        )

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*list_fields(self.of), *list_fields(self.other))))

    @property
    def numbers(self) -> tuple[str | Computed, ...]:
        return self.of, self.other

    @property
    def family(self) -> Family:
        return "compared" if isinstance(self.of, str) else "computed"

    @property
    def key(self) -> tuple[str, str, str, str]:
        return _RELATIONS[self.side], str(self.of), str(self.other), ""

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        of, other = (name_number(each, grammar) for each in self.numbers)
        return f"{of}{find_mark(self.marks, grammar, (self.side, is_denied))}{other}"

    @classmethod
    def read(cls, name: str, meaning: Any, value: str, reader: RuleReader) -> Read:
        subject, (side, is_denied), known = reader.find_subject(name), meaning, reader.vocabulary
        if isinstance(subject, OutOfReach):
            return subject
        if isinstance(subject, str) and subject not in known.units:
            if subject in known.scales:
                return OneOf.read_rank(subject, side == "above", is_denied, value, reader)
            return OutOfReach(f"{subject!r} is no number in any ticket", "field", subject)
        other = reader.look_up(value) if isinstance(subject, str) else reader.read_computed(value)
        found = (
            cls(subject, side, other) if other else Limit.read_side(subject, side, value, reader)
        )
        return negate(found) if is_denied and not isinstance(found, OutOfReach) else found

    @classmethod
    def read_whole(cls, text: str, reader: RuleReader) -> Iterator[Read]:
        name, *limits = Limit.split_between(text, reader.grammar)
        if name and all(limits):
            sides: tuple[Side, Side] = ("above", "below")
            yield reader.conjoin(
                [
                    cls.read(name, (s, False), each, reader)
                    for s, each in zip(sides, limits, strict=True)
                ]
            )

    def to_plain(self) -> Mapping[str, Any]:
        return {**write_plain(self.of), _RELATIONS[self.side]: write_plain(self.other)}

    def put(self, columns: ColumnForm[T]) -> T:
        return columns.order(self.of, self.side, self.other)


@dataclass(frozen=True, slots=True)
class Same(Condition):
    """Two fields have the same value, as ``fold_value`` compares them, or values that differ."""

    one: str
    other: str
    is_same: bool = True

    marks: ClassVar[Marks] = {
        "en": {" equals ": True, " differs from ": False},
        "zh": {"等于": True, "不等于": False},
    }

    @property
    def call(self) -> Call:
        if self.is_same:
            return predicates.equals, (self.one, self.other)
        return predicates.deny, (Same(self.one, self.other),)

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.one, self.other)))

    @property
    def family(self) -> Family:
        return "compared"

    @property
    def key(self) -> tuple[str, str, str, str]:
        return "equals" if self.is_same else "differs", self.one, self.other, ""

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        mark = find_mark(self.marks, grammar, self.is_same != is_denied)
        return f"{grammar.call(self.one)}{mark}{grammar.call(self.other)}"

    @classmethod
    def read(cls, name: str, meaning: Any, value: str, reader: RuleReader) -> Read:
        if isinstance(subject := reader.find_field(name), OutOfReach):
            return subject
        if other := reader.look_up(value):
            return cls(subject, other, meaning)
        return OutOfReach(
            f"no ticket has {value!r}",
            "field",
            value,
            nearest=partial(reader.vocabulary.nearest_name, value),
        )

    def to_plain(self) -> Mapping[str, Any]:
        return {"field": self.one, "equals" if self.is_same else "differs": {"field": self.other}}

    def put(self, columns: ColumnForm[T]) -> T:
        return columns.same(self.one, self.other, self.is_same)


# What tickets suggest -----------------------------------------------------------------------------


def find_compared(table: Table, found: Found) -> Found:
    """Find how two columns with values in common compare."""
    masks: Found = {}
    untold = {place: "0" for place, each in enumerate(table.readings) if each.is_counted}
    for one, other in table.alike:
        column, beside = table.columns[one], table.columns[other]
        if len({*column.values()} & {*beside.values()}) < 2:
            continue
        column, beside = untold | column, untold | beside
        both = [position for position in column if position in beside]
        are_numbers = table.are_numbers(one, other)
        # two counts are equal by chance, above all where both are 0
        if not (are_numbers and table.are_counted):
            alike = to_mask(p for p in both if fold_value(column[p]) == fold_value(beside[p]))
            masks |= {Same(one, other): alike, Same(one, other, False): to_mask(both) ^ alike}
        if are_numbers:
            masks |= _find_order(one, table.numeric[one], other, table.numeric[other])
    return masks


def _find_order(
    one: str | Computed,
    left: Mapping[int, float],
    other: str | Computed,
    right: Mapping[int, float],
) -> Found:
    both = [place for place in left if place in right]
    return {
        Order(one, "above", other): to_mask(p for p in both if left[p] > right[p]),
        Order(one, "below", other): to_mask(p for p in both if left[p] < right[p]),
    }


def find_computed(table: Table, found: Found) -> Found:
    """Find limits on sums, differences, products and quotients of columns that are alike, and how
    products of different columns compare; for the numbers that most tickets have."""
    masks: Found = {}
    if not table.space.arithmetic:
        return masks
    products: dict[Computed, dict[int, float]] = {}
    named = [
        name
        for name in table.common
        if name in table.numeric and any(name in pair for pair in table.alike)
    ]
    for one, other in (
        pair for pair in combinations(named[:MOST_COMPUTED], 2) if pair in table.alike
    ):
        left, right = table.numeric[one], table.numeric[other]
        for sign, compute in OPERATORS.items():
            of, sides = (
                Computed(one, sign, other),
                ((p, value, right[p]) for p, value in left.items() if p in right),
            )
            numbers = {p: compute(mine, its) for p, mine, its in sides if its or sign != "/"}
            if sign == "×":
                products[of] = numbers
            if len(set(numbers.values())) > 2:
                masks |= find_computed_limits(of, numbers, table)
    for (first, left), (second, right) in combinations(products.items(), 2):
        if not {*list_fields(first)} & {*list_fields(second)}:
            masks |= _find_order(first, left, second, right)
    return masks
