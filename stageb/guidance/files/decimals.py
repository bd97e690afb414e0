"""The numbers of a table: the mark before their decimals, and columns in which it may be the other one.

``0,1136`` is a number in half of the world's spreadsheets, and ``1,234`` is two. A wrong guess would teach wrong numbers
without a word, so a column of numbers alone is refused where one of them holds the other mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stageb.guidance.columns import Decimal
from stageb.guidance.rules.fields import UNIT
from stageb.guidance.rules.reading import POWER
from stageb.untrusted.json_lines import FaultError, short

NAMES: Mapping[Decimal, str] = {".": "point", ",": "comma"}
_OTHER: Mapping[Decimal, Decimal] = {".": ",", ",": "."}


class _Forms:
    """How numbers look whose decimals stand behind a mark."""

    def __init__(self, mark: Decimal) -> None:
        own, other = re.escape(mark), re.escape(_OTHER[mark])
        self.plain = re.compile(rf"-?\d+(?:{own}\d+)?{POWER}{UNIT}")
        self.other = re.compile(rf"-?\d+{other}\d+{POWER}{UNIT}")  # with the other mark before decimals
        self.grouped = re.compile(rf"-?[1-9]\d{{0,2}}(?:{other}\d{{3}})+(?:{own}\d+)?{UNIT}")  # with it between thousands


_FORMS: Mapping[Decimal, _Forms] = {mark: _Forms(mark) for mark in NAMES}


class _Doubt(NamedTuple):
    """A cell with the other mark."""

    line: int
    cell: str


class Decimals:
    """Remembers where the numbers of a table may be others."""

    def __init__(self, mark: Decimal, columns: Iterable[str]) -> None:
        self._mark, self._forms = mark, _FORMS[mark]
        self._numeric: dict[str, _Doubt | None] = dict.fromkeys(columns)  # columns of numbers alone, with their first doubt

    def watch(self, line: int, cells: Mapping[str, str]) -> None:
        """Look at a row's cells, by column."""
        for name, doubt in list(self._numeric.items()):
            cell = cells[name].strip()
            if not cell or self._forms.plain.fullmatch(cell):
                continue
            if not self._forms.other.fullmatch(cell) and not self._forms.grouped.fullmatch(cell):
                del self._numeric[name]
            elif doubt is None:
                self._numeric[name] = _Doubt(line, cell)

    def check(self) -> None:
        """Raise ``FaultError``, once all rows were watched, where numbers may be others."""
        doubts = [(name, doubt) for name, doubt in self._numeric.items() if doubt]
        if doubts:
            name, (line, cell) = doubts[0]
            more = f", as in {len(doubts) - 1} more columns" if doubts[1:] else ""
            what, remedy = self._explain(cell)
            raise FaultError(f"column {short(name)}: {short(cell)} {what}{more}", remedy, line)

    def _explain(self, cell: str) -> tuple[str, str]:
        """What a doubtful cell may say, and the remedy."""
        mark, other = NAMES[self._mark], _OTHER[self._mark]
        strange, bare = NAMES[other], cell.replace(other, "")
        if not self._forms.other.fullmatch(cell):
            return f"has a {strange} between thousands", "export the table without such marks"
        what = f"has a decimal {strange}"
        if self._forms.grouped.fullmatch(cell):
            what = f"is {cell.replace(',', '.')} if the {strange} stands before decimals, {bare} if between thousands"
        remedy = f"export the table with a decimal {mark} and no marks between thousands"
        return what, f"{remedy}, or set columns.decimal: {short(other)}"
