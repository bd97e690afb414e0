"""Rows of a table sorted by what rules see of them, so that of those that they cannot tell apart
one is judged for all.

What a rule says hangs on its conditions, and a condition on the values of the fields that it names.
So each is asked once for each value that differs, or each pair where it compares fields, and no row
is read as a whole but the first of a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import TypeAlias, TypeVar

from stageb.guidance.rules.conditions import compile_expression
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.value_types import Reading

MOST_KEPT = 1 << 17  # answers of one memo

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(dict[K, V]):
    """The values of a function by its argument, each computed once; all are forgotten where they
    get too many."""

    def __init__(self, function: Callable[[K], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, argument: K) -> V:
        if len(self) >= MOST_KEPT:
            self.clear()
        value = self[argument] = self._function(argument)
        return value


Sort: TypeAlias = Callable[[Mapping[str, Sequence[str]]], Iterable[Hashable]]
"""Gives each row of a table a key, by its columns."""


def make_sorter(rules: CodedRules, columns: Sequence[str], named: Iterable[str] = ()) -> Sort:
    """What gives each row of a table with these ``columns`` a key: rows of equal keys get the same
    ruling, for the same reason, and lack the same of the fields that rules, or ``named``, name. A
    row that lacks a field has an empty text there.
    """
    codes = [rule.code for rule in rules.each if not isinstance(rule.code, OutOfReach)]
    conditions = dict.fromkeys(each for code in codes for each in code.expression.conditions())
    tests: dict[tuple[str, ...], list[Callable[[Reading], bool | None]]] = {
        (name,): [] for name in named
    }
    for each in conditions:
        # One that names no field holds where any text of the ticket says so.
        for fields in [each.fields] if each.fields else [(name,) for name in columns]:
            tests.setdefault(fields, []).append(compile_expression(each))
        for name in each.fields:
            tests.setdefault((name,), [])
    # others are alike in all rows
    known = {fields: tests[fields] for fields in tests if not {*columns}.isdisjoint(fields)}
    asked = {fields: Memo(_make_asker(fields, of)) for fields, of in known.items()}

    def sort(rows: Mapping[str, Sequence[str]]) -> Iterable[Hashable]:
        # whether they say anything
        parts: list[Iterable[Hashable]] = [map(any, zip(*rows.values(), strict=True))]
        for fields, answers in asked.items():
            values = (rows.get(name, repeat("")) for name in fields)
            parts.append(map(answers.__getitem__, zip(*values, strict=False)))
        return zip(*parts, strict=True)

    return sort


def _make_asker(
    fields: tuple[str, ...], tests: Sequence[Callable[[Reading], bool | None]]
) -> Callable[[tuple[str, ...]], int]:
    """What numbers values of the ``fields`` by what the ``tests`` say of them, and by which of them
    are there."""
    numbers: dict[Hashable, int] = {}

    def ask(values: tuple[str, ...]) -> int:
        there = {name: value for name, value in zip(fields, values, strict=True) if value}
        reading = Reading(there, frozenset())
        said = (tuple(there), *(test(reading) for test in tests))
        return numbers.setdefault(said, len(numbers))

    return ask
