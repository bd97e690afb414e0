"""Rules as a workbook that judges rows as they are typed: formulas of Excel and LibreOffice,
without macros.

The sheet Judge has a column for each field, then verdict, rule and why. The sheet Steps says of
each row which rules hold; Rules has their texts.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import xlsxwriter  # type: ignore[import-untyped]
from xlsxwriter.utility import xl_col_to_name  # type: ignore[import-untyped]

from stageb.errors import InputError, shown
from stageb.guidance.exports.decisions import (
    DecisionCase,
    DecisionExporter,
    Decisions,
    DecisionWriter,
    Number,
    Sign,
    list_divisors,
    name_person,
)

ROWS = 1000  # that can be typed
LONGEST = 8000  # characters of a formula; Excel takes 8,192
MOST_CHARS = 255  # of a cell with a text, of which the full stops behind it go
_ROW = "\0"  # stands for the number of a row


class SheetExporter(DecisionExporter):
    """A workbook of one mission."""

    form = "a workbook"

    def write_decisions(self, decisions: Decisions) -> bytes:
        return write_workbook(decisions)


def write_workbook(decisions: Decisions, rows: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """The workbook, with these ``rows`` typed, at most ``ROWS``."""
    person, formulas = name_person(decisions.mission.coded.labels), _Formulas(decisions)
    steps = {name: formulas.fold(name) for name in decisions.values}
    listed = [
        *((test, "", person, why) for test, why in formulas.list_faults()),
        *(
            (formulas.write_test(case), case.rule, case.verdict or person, case.said)
            for case in decisions.cases
        ),
    ]
    tests = [test for test, *_ in listed]
    written = io.BytesIO()
    with xlsxwriter.Workbook(
        written, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    ) as book:
        bold = book.add_format({"bold": True})
        wrapped = book.add_format({"text_wrap": True, "valign": "top"})
        judge, step, rule = (book.add_worksheet(name) for name in ("Judge", "Steps", "Rules"))
        for sheet in (judge, step, rule):
            sheet.freeze_panes(1, 0)
        rule.set_column(0, 1, 12)
        rule.set_column(2, 2, 100)
        rule.write_row(0, 0, ["rule", "verdict", "text"], bold)
        for place, (_, *told) in enumerate(listed, 1):
            rule.write_row(place, 0, told, wrapped)
        names, keys = [*decisions.kinds], [key or person for _, key, _, _ in listed]
        judge.write_row(0, 0, [*names, "verdict", "rule", "why"], bold)
        step.write_row(0, 0, [*(f"{name}, folded" for name in steps), *keys], bold)
        first, last = (
            xl_col_to_name(place) for place in (len(steps), len(steps) + len(listed) - 1)
        )
        for place, name in enumerate(names):
            _check_cells(judge, place, decisions.kinds[name])
        for number in range(ROWS):
            row = number + 2
            judge.write_row(
                number + 1,
                0,
                [rows[number].get(name) for name in names] if number < len(rows) else [],
            )
            for place, formula in enumerate([*steps.values(), *tests]):
                step.write_formula(
                    number + 1, place, "=" + formula.replace(_ROW, str(row)), None, ""
                )
            inputs = f"A{row}:{xl_col_to_name(len(names) - 1)}{row}" if names else f"A{row}"
            for place, column in enumerate("BAC", len(names)):
                of_rules = f"Rules!${column}$2:${column}${len(listed) + 1}"
                chosen = f"INDEX({of_rules},MATCH(TRUE,Steps!{first}{row}:{last}{row},0))"
                shown_ = f'=IF(COUNTA({inputs})=0,"",{chosen}&"")'
                judge.write_formula(number + 1, place, shown_, None, "")
    return written.getvalue()


def _check_cells(sheet: Any, place: int, kind: str) -> None:
    """Have the program refuse what is typed into a column of numbers or flags and is none."""
    if kind == "number":
        sheet.data_validation(
            1, place, ROWS, place, {"validate": "decimal", "criteria": ">=", "value": -1e300}
        )
    if kind == "flag":
        sheet.data_validation(
            1, place, ROWS, place, {"validate": "list", "source": ["TRUE", "FALSE"]}
        )


class _Formulas(DecisionWriter[str]):
    """Formulas of one row."""

    def __init__(self, decisions: Decisions) -> None:
        super().__init__(decisions)
        self._cells = {
            name: f"Judge!${xl_col_to_name(place)}{_ROW}"
            for place, name in enumerate(decisions.kinds)
        }
        self._folded = {
            name: f"${xl_col_to_name(place)}{_ROW}" for place, name in enumerate(decisions.values)
        }

    def fold(self, name: str) -> str:
        """A text as values are compared: in small letters, single blanks, without a full stop
        behind it."""
        text, places = f"LOWER(TRIM({self._cells[name]}))", f"ROW($1:${MOST_CHARS})"
        letter = f"MID({text},{places},1)"
        kept = f'({places}<=LEN({text}))*({letter}<>".")*({letter}<>" ")*{places}'
        return f"LEFT({text},SUMPRODUCT(MAX({kept})))"

    def list_faults(self) -> list[tuple[str, str]]:
        """Tests of what rules cannot read, with why: a cell that is no number or flag where it must
        be, or a long text."""
        found = []
        for name, kind in self.decisions.kinds.items():
            cell, check = self._cells[name], {"number": "ISNUMBER", "flag": "ISLOGICAL"}.get(kind)
            if check:
                found.append(
                    (f"AND(NOT(ISBLANK({cell})),NOT({check}({cell})))", f"{name} is no {kind}")
                )
            else:
                found.append((f"LEN({cell})>{MOST_CHARS}", f"{name} is too long"))
        return found

    def write_test(self, case: DecisionCase) -> str:
        """The formula of a case. Raises ``InputError`` where it is too long."""
        written = case.when.accept(self)
        if len(written) > LONGEST:
            name = self.decisions.mission.name
            raise InputError(
                shown(
                    f"{name}: {case.rule or case.said} makes a formula of {len(written):,} "
                    f"characters",
                    400,
                )
            )
        return written

    def write_comparison(self, left: Number, sign: Sign, right: Number | float) -> str:
        return self._guard(f"{self._write_cell(left)}{sign}{self._write_cell(right)}", left, right)

    def write_one_of(self, field: str, values: tuple[str, ...], is_in: bool) -> str:
        cell, is_flag = self._write_cell(field), self.decisions.kinds[field] == "flag"
        said = [
            value.upper() if is_flag else '"' + value.replace('"', '""') + '"' for value in values
        ]
        found = self.join([f"{cell}={value}" for value in said], is_all=False)
        if is_in and not is_flag:
            return found
        return self._guard(found if is_in else f"NOT({found})", field)  # an empty cell is FALSE

    def write_given(self, field: str, is_given: bool) -> str:
        if folded := self._folded.get(field):
            return f'{folded}{"<>" if is_given else "="}""'
        is_blank = f"ISBLANK({self._cells[field]})"
        return f"NOT({is_blank})" if is_given else is_blank

    def write_sum(self, scored: Sequence[tuple[int, str]], least: int, is_reached: bool) -> str:
        total = "+".join(f"IF({part},{points},0)" for points, part in scored)
        return f"({total}){'>=' if is_reached else '<'}{least}"

    def join(self, parts: Sequence[str], is_all: bool) -> str:
        if len(parts) > 1:
            return f"{'AND' if is_all else 'OR'}({','.join(parts)})"
        return parts[0] if parts else str(is_all).upper()

    def _guard(self, said: str, *compared: Number | float) -> str:
        """The same, untrue where a cell is empty, or a number is divided by 0."""
        for name in list_divisors(*compared):
            said = f"IF({self._cells[name]}=0,FALSE,{said})"
        return self.join(
            [
                *(self.write_given(name, True) for name in self.decisions.list_needed(*compared)),
                said,
            ],
            True,
        )

    def _write_cell(self, of: Number | float) -> str:
        if isinstance(of, float):
            return repr(of).removesuffix(".0")
        if isinstance(of, str):
            return self._folded.get(of, self._cells[of])
        return f"({self._cells[of.first]}{of.operator.replace('×', '*')}{self._cells[of.second]})"
