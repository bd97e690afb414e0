"""Candidate conditions for rules: which ones the columns and words of given tickets suggest
(``conditions/``), for evidence and for learning by code."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from stageb.guidance.rules.conditions import FINDERS, Expression
from stageb.guidance.rules.conditions.words import find_whole_words
from stageb.guidance.rules.fields import OF_ONE_IMAGE
from stageb.guidance.rules.value_types import (
    Quantity,
    Reading,
    find_mentioned,
    fold_unit,
    is_text,
    parse_quantity,
    read_content,
)
from stageb.guidance.words.types import Content, Ticket
from stageb.untrusted.clean_text import fold_value

MOST_COMPARED = 20  # columns that are compared with each other: those that most tickets have


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """The conditions to look for beside plain ones: more to choose from costs each of them some
    weight."""

    arithmetic: bool = False  # limits on numbers computed from two names
    # phrases of two or three words; beginnings of words; mentions in the one column of texts;
    # missing fields that most tickets have; and more limits on the numbers of one name, denser at
    # both ends, with the fewest digits, or two at once
    wide: bool = False
    # names, any two of which may be compared or computed with, whatever they are
    comparable: frozenset[str] = frozenset()


PLAIN = SearchSpace()
# behind a column's name: Torque [Nm], Air K
_UNIT = re.compile(r"[\[(]([^\[\]()\d]+)[\])]$| ([^\W\d_]{1,3}|%|°C|°F)$")


def reading(ticket: Ticket) -> Reading:
    """Read a ticket."""
    return read_content(
        ticket.content or Content((), tuple(summary for _, summary in ticket.per_image))
    )


class Table:
    """The fields of tickets as columns, in which conditions are looked for."""

    def __init__(
        self, readings: Sequence[Reading], space: SearchSpace = PLAIN, wrong: int = 0
    ) -> None:
        self.readings, self.space = readings, space
        # so many tickets, the first ones, are to be set apart from the others: limits lie at their
        # numbers, too
        self.wrong = wrong
        self.are_counted = any(each.is_counted for each in readings)
        # the values of each field by ticket, each in one spelling; what was not counted is 0
        self.columns: dict[str, dict[int, str]] = {}
        for position, each in enumerate(readings):
            for name, value in each.pairs.items():
                # images come in any order, so their sums tell more
                if not (each.is_counted and OF_ONE_IMAGE.match(name)):
                    self.columns.setdefault(name, {})[position] = value
        self.columns = {name: _join_spellings(column) for name, column in self.columns.items()}
        self.quantities = {
            name: found for name, column in self.columns.items() if (found := _read_numbers(column))
        }
        counted = [position for position, each in enumerate(readings) if each.is_counted]
        for name, found in self.quantities.items():
            for position in counted:
                found.setdefault(position, Quantity(0.0, ""))
                self.columns[name].setdefault(position, "0")
        # the names that most tickets have first
        self.common = sorted(self.columns, key=lambda name: (-len(self.columns[name]), name))
        self.numeric = {
            name: numbers
            for name, each in self.quantities.items()
            if (numbers := self._read_comparable(each))
        }

    @cached_property
    def texts(self) -> frozenset[str]:
        """The columns of texts: each value is read as free text, even if some are as short as a
        name's."""
        texts = (name for name in self.columns if name not in self.quantities)
        return frozenset(
            name for name in texts if any(map(is_text, set(self.columns[name].values())))
        )

    @cached_property
    def whole_words(self) -> frozenset[str]:
        """The words that free text and fields mention, as they stand there."""
        return find_whole_words(self.readings)

    @cached_property
    def only_text(self) -> str:
        """The one column of texts that holds all free text, if rules may name it; empty where there
        are several, or prose."""
        name = next(iter(self.texts)) if self.space.wide and len(self.texts) == 1 else ""
        has_all = name and all(
            each.words <= find_mentioned(each.pairs.get(name, "")) for each in self.readings
        )
        return name if has_all else ""

    @cached_property
    def alike(self) -> dict[tuple[str, str], None]:
        """The pairs of columns that may be compared."""
        pairs = combinations(self.common[:MOST_COMPARED], 2)
        return dict.fromkeys(
            pair
            for pair in pairs
            if self.space.comparable.issuperset(pair) or self._are_alike(*pair)
        )

    def are_numbers(self, one: str, other: str) -> bool:
        """Whether both columns hold numbers of one unit."""
        if one not in self.numeric or other not in self.numeric:
            return False
        return len(_list_units(self.quantities[one]) | _list_units(self.quantities[other])) <= 1

    def _read_comparable(self, quantities: Mapping[int, Quantity]) -> dict[int, float]:
        """Return numbers that can be compared; nothing if they have several units, or so few values
        that these say as much."""
        numbers = {position: found.number for position, found in quantities.items()}
        return (
            numbers
            if len(_list_units(quantities)) <= 1 and len({*numbers.values()}) > 2 - self.are_counted
            else {}
        )

    def _are_alike(self, one: str, other: str) -> bool:
        """Whether two columns have one unit, or none and mostly the same values."""
        units = [self._find_units(name) for name in (one, other)]
        if any(units):
            return units[0] == units[1]
        values, others = (set(self.columns[name].values()) for name in (one, other))
        return 2 * len(values & others) >= len(values | others)

    def _find_units(self, name: str) -> set[str]:
        """Find the units of a column's numbers, or else the one behind its name, as in ``Torque
        [Nm]`` and ``TSH (µU/ml)``."""
        quantities = self.quantities.get(name, {})
        told = _UNIT.search(name) if quantities else None
        return _list_units(quantities) or ({fold_unit(told[1] or told[2])} if told else set())


def find_conditions(
    readings: Sequence[Reading], space: SearchSpace = PLAIN, wrong: int = 0
) -> dict[Expression, int]:
    """Find every condition that tickets suggest, with the bit mask of those that meet it; but no
    counts of them. The first ``wrong`` tickets are to be set apart from the others: limits lie at
    their numbers, too."""
    table, found = Table(readings, space, wrong), dict[Expression, int]()
    for find in FINDERS:
        found |= find(table, found)
    return found


def find_numbers(readings: Sequence[Reading]) -> dict[str, dict[int, tuple[float, str]]]:
    """Return field -> the tickets that have a number in it -> that number, and how they write it;
    for the fields on which ``find_conditions`` gives limits."""
    table = Table(readings)
    return {
        name: {
            position: (number, table.columns[name][position])
            for position, number in numbers.items()
        }
        for name, numbers in table.numeric.items()
    }


# Inside -------------------------------------------------------------------------------------------


def _join_spellings(column: dict[int, str]) -> dict[int, str]:
    """Return the column with each value as most tickets spell it: rules compare it in all
    spellings, and what is learnt about one would not hold for it as code."""
    folded = {value: fold_value(value) for value in {*column.values()}}
    if len({*folded.values()}) == len(folded):
        return column
    counts, chosen = Counter(column.values()), dict[str, str]()
    for value in sorted(counts, key=lambda value: (-counts[value], value)):
        chosen.setdefault(folded[value], value)
    return {position: chosen[folded[value]] for position, value in column.items()}


def _read_numbers(column: Mapping[int, str]) -> dict[int, Quantity]:
    """Return the numbers of a column with their units; nothing if one of its values is no
    number."""
    found: dict[int, Quantity] = {}
    for position, value in column.items():
        quantity = parse_quantity(value)
        if quantity is None:
            return {}
        found[position] = quantity
    return found


def _list_units(quantities: Mapping[int, Quantity]) -> set[str]:
    """Return the units that numbers have; a number without one may have any."""
    return {found.unit for found in quantities.values()} - {""}
