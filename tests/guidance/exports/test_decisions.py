"""Rules as a list of decisions: what decides there is what decides by code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.typed import TYPED_KINDS, compare
from times import TIMES

from stageb.guidance.exports.decisions import Decisions, DecisionWriter, Number, Sign
from stageb.guidance.rules.value_types import OPERATORS, clean_value
from stageb.untrusted.clean_text import fold_value

SIGNS = {
    ">": float.__gt__,
    "<": float.__lt__,
    ">=": float.__ge__,
    "<=": float.__le__,
    "=": float.__eq__,
    "<>": float.__ne__,
}


class Truth(DecisionWriter[bool]):
    """Whether expressions are true of a row, as the docstrings of ``DecisionWriter`` say it."""

    def __init__(self, decisions: Decisions, row: Cells) -> None:
        super().__init__(decisions)
        self._row = row

    def write_comparison(self, left: Number, sign: Sign, right: Number | float) -> bool:
        if isinstance(right, str) and self.decisions.kinds[right] != "number":
            texts = [self._text(str(name)) for name in (left, right)]
            return None not in texts and (texts[0] == texts[1]) == (sign == "=")
        one, other = self._number(left), self._number(right)
        return one is not None and other is not None and SIGNS[sign](one, other)

    def write_one_of(self, field: str, values: tuple[str, ...], is_in: bool) -> bool:
        return (text := self._text(field)) is not None and (text in values) == is_in

    def write_given(self, field: str, is_given: bool) -> bool:
        return (self._row.get(field) not in (None, "")) == is_given

    def write_sum(self, scored: Sequence[tuple[int, bool]], least: int, is_reached: bool) -> bool:
        return (sum(points for points, is_so in scored if is_so) >= least) == is_reached

    def join(self, parts: Sequence[bool], is_all: bool) -> bool:
        return all(parts) if is_all else any(parts)

    def _number(self, of: Number | float) -> float | None:
        if isinstance(of, float):
            return of
        if isinstance(of, str):
            found = self._row.get(of)
            return (
                (0.0 if self.decisions.has_count(of) else None)
                if found in (None, "")
                else float(found)
            )
        one, other = self._number(of.first), self._number(of.second)
        if one is None or other is None or (of.operator == "/" and other == 0):
            return None
        return OPERATORS[of.operator](one, other)

    def _text(self, name: str) -> str | None:
        return (
            None
            if self._row.get(name) in (None, "")
            else fold_value(clean_value(str(self._row[name])))
        )


def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    def decide(row: Cells) -> tuple[str | None, str]:
        case = next(case for case in decisions.cases if case.when.accept(Truth(decisions, row)))
        return case.verdict, case.rule

    return [decide(row) for row in rows]


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_the_first_case_that_is_so_decides_as_code_does(name: str) -> None:
    assert compare(judge, name, 10 * TIMES) > 500
