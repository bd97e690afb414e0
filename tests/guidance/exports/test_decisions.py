"""Rules as a list of decisions: what decides there is what decides by code."""

from __future__ import annotations

from typing import Any

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.typed import TYPED_KINDS, compare
from times import TIMES

from stageb.guidance.exports.decisions import Compare, Decisions, Every, Formula, Given, OneOf, PointSum, Same
from stageb.guidance.rules.value_types import OPERATORS, Computed, clean_value, fold_value

SIGNS = {">": float.__gt__, "<": float.__lt__, ">=": float.__ge__, "<=": float.__le__, "=": float.__eq__, "<>": float.__ne__}


def is_so(formula: Formula, row: Cells, is_counted: bool) -> bool:
    """The formula's meaning, as its docstrings say it."""

    def number(of: float | str | Computed) -> float | None:
        if isinstance(of, float):
            return of
        if isinstance(of, str):
            found = row.get(of)
            return (0.0 if is_counted else None) if found in (None, "") else float(found)
        one, other = number(of.first), number(of.second)
        if one is None or other is None or (of.operator == "/" and other == 0):
            return None
        return OPERATORS[of.operator](one, other)

    def text(name: str) -> str | None:
        return None if row.get(name) in (None, "") else fold_value(clean_value(str(row[name])))

    if isinstance(formula, Compare):
        left, right = number(formula.left), number(formula.right)
        return left is not None and right is not None and SIGNS[formula.sign](left, right)
    if isinstance(formula, OneOf):
        return text(formula.field) is not None and (text(formula.field) in formula.values) == formula.is_in
    if isinstance(formula, Same):
        one, other = text(formula.one), text(formula.other)
        return one is not None and other is not None and (one == other) == formula.is_same
    if isinstance(formula, Given):
        return (row.get(formula.field) not in (None, "")) == formula.is_given
    if isinstance(formula, PointSum):
        total = sum(points for points, part in formula.parts if is_so(part, row, is_counted))
        return (total >= formula.least) == formula.is_reached
    found = [is_so(part, row, is_counted) for part in formula.parts]
    return all(found) if isinstance(formula, Every) else any(found)


def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    def decide(row: Cells) -> tuple[str | None, str]:
        case = next(case for case in decisions.cases if is_so(case.when, row, decisions.is_counted))
        return case.verdict, case.rule

    return [decide(row) for row in rows]


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_the_first_case_that_is_so_decides_as_code_does(name: str) -> None:
    assert compare(judge, name, 10 * TIMES) > 500
