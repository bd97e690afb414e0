"""Gives rows of a table equal keys if rules cannot tell them apart, so that one of them is judged
for all.

A rule's verdict depends on its conditions, and a condition on the values of the fields that it
names. So each condition is asked once for each different value, or each pair where it compares
fields, and of rows with equal keys only the first is read as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias, TypeVar

from stageb.guidance.rules.conditions import Condition, OutOfReach, compile_expression
from stageb.guidance.rules.fields import Columns, place_columns, read_cell
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.value_types import Reading, clean_value

MOST_KEPT = 1 << 17  # values in one memo, at most

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(dict[K, V]):
    """The values of a function by its argument, each computed once; all are forgotten when there
    are too many."""

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, argument: K) -> V:
        if len(self) >= MOST_KEPT:
            self.clear()
        value = self[argument] = self._function(argument)
        return value


def make_reader(
    roles: Columns,
) -> Callable[[Mapping[str, Sequence[str]]], dict[str, Sequence[str]]]:
    """Return a function that reads the cells of columns as the fields that ``fields.read_row``
    reads in their rows, if no column is an image; a field that a row lacks is empty there."""
    read = Memo[str, str](lambda cell: clean_value(read_cell(cell, roles))).__getitem__

    def read_fields(cells: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
        places, _ = place_columns(tuple(cells), roles)
        return {name: [*map(read, cells[column])] for name, column, _ in places}

    return read_fields


RowKeys: TypeAlias = Callable[[Mapping[str, Sequence[str]]], Iterable[Hashable]]
"""Gives each row of a table a key, by its columns."""


def make_row_keys(rules: CodedRules, columns: Sequence[str], named: Iterable[str] = ()) -> RowKeys:
    """Return a function that gives each row of a table with these ``columns`` a key: rows with
    equal keys get the same ruling, for the same reason, and lack the same fields, of those that the
    rules or ``named`` mention. A row that lacks a field has an empty text there."""
    conditions = dict.fromkeys(_list_conditions(rules))
    tests: dict[tuple[str, ...], list[Callable[[Reading], bool | None]]] = {
        (name,): [] for name in named
    }
    for each in conditions:
        # A condition that names no field depends on every text of the ticket.
        for fields in [each.fields] if each.fields else [(name,) for name in columns]:
            tests.setdefault(fields, []).append(compile_expression(each))
    # a test of fields that the table lacks has the same result in every row
    known = {fields: tests[fields] for fields in tests if not {*columns}.isdisjoint(fields)}
    numberers = {fields: Memo(_make_numberer(fields, of)) for fields, of in known.items()}

    def key_rows(rows: Mapping[str, Sequence[str]]) -> Iterable[Hashable]:
        # whether the rows say anything
        parts: list[Iterable[Hashable]] = [map(any, zip(*rows.values(), strict=True))]
        for fields, numberer in numberers.items():
            values = (rows.get(name, repeat("")) for name in fields)
            parts.append(map(numberer.__getitem__, zip(*values, strict=False)))
        return zip(*parts, strict=True)

    return key_rows


def reads_all_texts(rules: CodedRules) -> bool:
    """Whether a rule searches a ticket's whole text, and so depends on every column."""
    return not all(each.fields for each in _list_conditions(rules))


def _list_conditions(rules: CodedRules) -> Iterator[Condition]:
    for rule in rules.each:
        if not isinstance(rule.code, OutOfReach):
            yield from rule.code.expression.conditions()


def judge_once_per_key(
    keys: Iterable[Hashable], judge: Callable[[int], V], known: dict[Hashable, V]
) -> list[V]:
    """Judge each row by its place: ``judge`` is asked only about the first of those with equal
    ``keys``, and only if no answer is ``known`` yet."""
    judged: list[V] = []
    for place, key in enumerate(keys):
        if key not in known:
            known[key] = judge(place)
        judged.append(known[key])
    return judged


def _make_numberer(
    fields: tuple[str, ...], tests: Sequence[Callable[[Reading], bool | None]]
) -> Callable[[tuple[str, ...]], int]:
    """Return a function that numbers tuples of values: equal numbers where all tests agree and the
    same fields are present."""
    numbers: dict[Hashable, int] = {}

    def number(values: tuple[str, ...]) -> int:
        there = {name: value for name, value in zip(fields, values, strict=True) if value}
        reading = Reading(there, frozenset())
        said = (tuple(there), *(test(reading) for test in tests))
        return numbers.setdefault(said, len(numbers))

    return number
