"""Limits on the numbers of fields, and on those computed from two fields."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from stageb.guidance.rules import predicates
from stageb.guidance.rules.conditions.base import (
    Call,
    ColumnForm,
    Condition,
    Expression,
    Family,
    Found,
    Marks,
    OutOfReach,
    Read,
    Side,
    T,
    find_mark,
)
from stageb.guidance.rules.conditions.logic import All, Not
from stageb.guidance.rules.conditions.values import MOST_VALUES, OneOf
from stageb.guidance.rules.limits import find_beyond, spread_limits, write_computed, write_limit
from stageb.guidance.rules.value_types import NUMBER, Computed, parse_number, parse_quantity

if TYPE_CHECKING:
    from stageb.guidance.rules.candidates import Table
    from stageb.guidance.rules.parse import RuleReader
    from stageb.guidance.rules.wordings import Grammar

WITHIN = 12  # limits on each side, at most, to pair into "between", where limits are fine
# tickets for each of these, at least: with few tickets, pairs of limits fit by chance
TICKETS_PER_LIMIT = 250

SIDES: Marks = {  # the words -> the side, and whether it is denied
    "en": {
        " is above ": ("above", False),
        " is below ": ("below", False),
        " is at least ": ("below", True),
        " is at most ": ("above", True),
        " is not above ": ("above", True),
        " is not below ": ("below", True),
        **dict.fromkeys(
            (" is over ", " is more than ", " is greater than ", " > "), ("above", False)
        ),
        **dict.fromkeys((" is under ", " is less than ", " < "), ("below", False)),
        **dict.fromkeys((" is no more than ", " <= "), ("above", True)),
        **dict.fromkeys((" is no less than ", " >= "), ("below", True)),
    },
    "zh": {
        "大于": ("above", False),
        "不大于": ("above", True),
        "小于": ("below", False),
        "不小于": ("below", True),
        "至少": ("below", True),
        "至多": ("above", True),
    },
}
# the words between a name and its lower limit, and those between that and the upper one
BETWEEN: Mapping[str, tuple[str, str]] = {
    "en": (" is above ", " and below "),
    "zh": ("大于", "且小于"),
}


@dataclass(frozen=True, slots=True)
class Limit(Condition):
    """A number is above a limit, or below it."""

    of: str | Computed  # the field, or a number computed from two
    side: Side
    limit: str

    @property
    def call(self) -> Call:
        return (predicates.is_above if self.side == "above" else predicates.is_below), (
            self.of,
            self.limit,
        )

    @property
    def fields(self) -> tuple[str, ...]:
        return list_fields(self.of)

    @property
    def numbers(self) -> tuple[str | Computed, ...]:
        return (self.of,)

    @property
    def family(self) -> Family:
        return "limit" if isinstance(self.of, str) else "computed"

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.side, str(self.of), self.limit, ""

    @property
    def as_limit(self) -> Limit | None:
        return self

    @property
    def turned(self) -> Limit:
        """The limit on the other side: the number is beyond the same limit there."""
        return replace(self, side="below" if self.side == "above" else "above")

    def is_below(self, other: Limit) -> bool:
        """Whether this is a lower limit and ``other`` an upper one, on the same field."""
        return (self.of, self.side, other.side) == (other.of, "above", "below") and isinstance(
            self.of, str
        )

    def join(self, other: Expression) -> Expression | None:
        """Join it with the value at its limit: it then includes that."""
        if not isinstance(other, OneOf) or (other.field, other.values) != (self.of, (self.limit,)):
            return None
        return Not(self.turned)

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        name, mark = (
            name_number(self.of, grammar),
            find_mark(SIDES, grammar, (self.side, is_denied)),
        )
        return (
            grammar.write_count(self.side, str(self.of), self.limit, is_denied)
            or f"{name}{mark}{self.limit}"
        )

    def write_between(self, other: Limit, grammar: Grammar) -> str:
        """Write that a field is above this limit and below the other one."""
        above, below = BETWEEN[grammar.language]
        return f"{name_number(self.of, grammar)}{above}{self.limit}{below}{other.limit}"

    @staticmethod
    def split_between(text: str, grammar: Grammar) -> tuple[str, str, str]:
        """Split a text into a field, its lower and its upper limit; empty where it has none."""
        above, below = BETWEEN[grammar.language]
        name, _, limits = text.partition(above)
        low, _, high = limits.partition(below)
        return name, low, high

    @classmethod
    def read_side(cls, of: str | Computed, side: Side, value: str, reader: RuleReader) -> Read:
        """Read a number beyond the limit ``value``; or say why that is no limit on it."""
        known, limit = reader.vocabulary, parse_quantity(value)
        if isinstance(of, Computed):
            fault = f"{value!r} is no number that {str(of)!r} is compared with"
            if limit and limit.unit:
                fault = f"{str(of)!r} has no unit; write the number alone, without {limit.unit!r}"
            return cls(of, side, value) if re.fullmatch(NUMBER, value) else OutOfReach(fault)
        if limit is None:
            why = f"{value!r} is neither a number nor a field"
            point = value.replace(",", ".")  # rules have it, whatever tables have
            near = (lambda: point) if parse_quantity(point) else partial(known.nearest_name, value)
            return OutOfReach(why, "field", nearest=near)
        if limit.unit and limit.unit not in known.units[of]:
            return OutOfReach(f"no ticket has {of!r} in {limit.unit!r}")
        return cls(of, side, value)

    def to_plain(self) -> Mapping[str, Any]:
        return {**write_plain(self.of), self.side: parse_number(self.limit)}

    def put(self, columns: ColumnForm[T]) -> T:
        return columns.limit(self.of, self.side, self.limit)


def list_fields(of: str | Computed) -> tuple[str, ...]:
    """List the fields that a number is made of."""
    return (of,) if isinstance(of, str) else (of.first, of.second)


def name_number(of: str | Computed, grammar: Grammar) -> str:
    """Name a number as rules call it."""
    return grammar.call(of) if isinstance(of, str) else str(of)


def write_plain(of: str | Computed) -> Mapping[str, Any]:
    """Write a number as JSON."""
    return (
        {"field": of}
        if isinstance(of, str)
        else {"compute": of.operator, "fields": [of.first, of.second]}
    )


# What tickets suggest -----------------------------------------------------------------------------


def find_limits(table: Table, found: Found) -> Found:
    """Find numbers above and below limits for each column, and between two limits where most of
    them are."""
    masks: Found = {}
    for name, numbers in table.numeric.items():
        limits = _find_limits(table, name)
        masks |= dict(limits.items())
        if table.space.wide and len(set(numbers.values())) > MOST_VALUES:
            masks |= _find_between(limits, len(numbers))
    return masks


def _find_limits(table: Table, name: str) -> dict[Limit, int]:
    """Find the limits on a column, written as a ticket has them, or, where they are fine, as short
    as they may be."""
    column, numbers, fine = table.columns[name], table.numeric[name], table.space.wide
    written = {
        numbers[position]: column[position] for position in sorted(numbers, key=column.__getitem__)
    }
    ordered = sorted(written)
    limits = spread_limits(ordered, numbers, table.wrong, fine, len(numbers))
    found: dict[Limit, int] = {}
    for (side, limit), mask in zip(limits, find_beyond(limits, numbers), strict=True):
        text = written[limit]
        low = bisect_left(ordered, limit) - (side == "below")
        if fine and 0 <= low < len(ordered) - 1:
            text = write_limit(side, ordered[low], ordered[low + 1], text) or text
        found.setdefault(Limit(name, side, text), mask)
    return found


def _find_between(limits: Mapping[Limit, int], tickets: int) -> Found:
    """Find pairs of limits, above one and below the other, between which most tickets are: those
    outside may be rare and alike."""
    count, sides = min(WITHIN, tickets // TICKETS_PER_LIMIT), list[list[Limit]]()
    for side in ("above", "below"):
        ordered = sorted(
            (each for each in limits if each.side == side),
            key=lambda each: limits[each].bit_count(),
        )
        sides.append([ordered[len(ordered) * place // count] for place in range(count)])
    pairs = {(low, high): limits[low] & limits[high] for low, high in product(*sides)}
    return {
        All(pair): mask
        for pair, mask in pairs.items()
        if 2 * mask.bit_count() > tickets and mask not in (limits[pair[0]], limits[pair[1]])
    }


def find_computed_limits(of: Computed, numbers: Mapping[int, float], table: Table) -> Found:
    """Find computed numbers above and below round limits."""
    spread = spread_limits(sorted(numbers.values()), numbers, table.wrong, table.space.wide)
    limits = [(side, write_computed(limit)) for side, limit in spread]
    masks = find_beyond([(side, float(text)) for side, text in limits], numbers)
    return {Limit(of, side, text): mask for (side, text), mask in zip(limits, masks, strict=True)}
