"""Decimal marks of a table's numbers: a point or a comma, and columns in which it may be the other
one.

``0,1136`` is a number in half of the world's spreadsheets, and ``1,234`` is two. A wrong guess
would teach wrong numbers without a word, so a column of numbers alone is refused where one of them
holds the other mark.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from stageb.guidance.rules.fields import UNIT
from stageb.guidance.rules.row_keys import Memo
from stageb.guidance.rules.value_types import POWER
from stageb.guidance.words.column_names import Decimal
from stageb.untrusted.strict_json import FaultError, short

NAMES: Mapping[Decimal, str] = {".": "point", ",": "comma"}
_OTHER: Mapping[Decimal, Decimal] = {".": ",", ",": "."}


class Decimals:
    """Remembers where the numbers of a table may be others."""

    def __init__(self, mark: Decimal, columns: Iterable[str], missing: Collection[str]) -> None:
        """``missing``: cells that say nothing, in small letters."""
        self._missing = missing
        self._mark = mark
        own = re.escape(mark)
        other = re.escape(_OTHER[mark])
        self._plain = re.compile(rf"-?\d+(?:{own}\d+)?(?:{POWER}{UNIT}|-)")
        # with the other mark before decimals
        self._other = re.compile(rf"-?\d+{other}\d+(?:{POWER}{UNIT}|-)")
        # with it between thousands
        self._grouped = re.compile(rf"-?[1-9]\d{{0,2}}(?:{other}\d{{3}})+(?:{own}\d+)?(?:{UNIT}|-)")
        # Columns of numbers alone, with the line and the cell in which the other mark stands first.
        self._numeric: dict[str, tuple[int, str] | None] = dict.fromkeys(columns)
        # with the own mark between thousands, and the other one before decimals
        self._mixed = re.compile(rf"-?[1-9]\d{{0,2}}(?:{own}\d{{3}})+{other}\d+(?:{UNIT}|-)")
        self._doubts = Memo(self._is_doubtful)

    def watch(self, lines: Sequence[int], cells: Mapping[str, Sequence[str]]) -> None:
        """Look at the cells of rows that begin at these ``lines``, by column."""
        for name, doubt in list(self._numeric.items()):
            found = {self._doubts[cell] for cell in {*cells[name]}}
            if None in found:
                del self._numeric[name]
            elif True in found and doubt is None:
                self._numeric[name] = next(
                    (line, cell.strip())
                    for line, cell in zip(lines, cells[name], strict=True)
                    if self._doubts[cell]
                )

    def _is_doubtful(self, cell: str) -> bool | None:
        """Whether a cell may be another number than it seems; None where it is no number at all."""
        cell = cell.strip()
        if not cell or cell.lower() in self._missing or self._plain.fullmatch(cell):
            return False
        return (
            True
            if any(form.fullmatch(cell) for form in (self._other, self._grouped, self._mixed))
            else None
        )

    def check(self) -> None:
        """Raise ``FaultError``, once all rows were watched, where numbers may be others."""
        doubts = [(name, doubt) for name, doubt in self._numeric.items() if doubt]
        # first what no key mends
        doubts.sort(key=lambda each: not self._mixed.fullmatch(each[1][1]))
        if doubts:
            name, (line, cell) = doubts[0]
            more = f", as in {len(doubts) - 1} more columns" if doubts[1:] else ""
            what, remedy = self._explain(cell)
            raise FaultError(f"column {short(name)}: {short(cell)} {what}{more}", remedy, line)

    def _explain(self, cell: str) -> tuple[str, str]:
        """Explain a doubtful cell; returns what it may say, and the remedy."""
        mark, other = NAMES[self._mark], _OTHER[self._mark]
        if self._mixed.fullmatch(cell):
            return f"has a {mark} between thousands", "export the table without such marks"
        strange, bare = NAMES[other], cell.replace(other, "")
        if not self._other.fullmatch(cell):
            return f"has a {strange} between thousands", "export the table without such marks"
        what = f"has a decimal {strange}"
        if self._grouped.fullmatch(cell):
            what = (
                f"is {cell.replace(',', '.')} if the {strange} stands before decimals, "
                f"{bare} if between thousands"
            )
        remedy = f"export the table with a decimal {mark} and no marks between thousands"
        return what, f"{remedy}, or set columns.decimal: {short(other)}"
