"""The column of groups, guessed: rows that belong together, which one split keeps.

Rows belong together where they are several judgements of one case, as labelling programs write
them: a row for each person who judged it. Their name for the case, or else the text that comes
again, makes them a group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from stageb.guidance.commands.use.table_words import GROUPS, ROWS

LONG = 5  # words of a text, in the mean, from which on it hardly comes twice by chance
# rows for each text, in the mean, from and up to which these are judgements of it, not forms of
# words
REPEATED = 1.5, 20
FEWEST_CASES = 10  # that come again
_DIGIT = re.compile(r"\d")


def is_long(cells: Sequence[str]) -> bool:
    """Whether a column holds texts that are hardly ever written twice."""
    return sum(len(cell.split()) for cell in cells) >= LONG * len(cells)


def guess_together(columns: Mapping[str, Sequence[str]], labels: Sequence[str]) -> str | None:
    """The column whose rows are judgements of one case, where they come again: a name of cases that
    tells each its long text, or all that is said of it, or such a text itself; or the name of cases
    where some rows are copies but for their numbers; None where there is none."""
    rows = len(next(iter(columns.values()), ()))
    repeated = [name for name, cells in columns.items() if _comes_again(cells, rows)]
    long = [name for name in repeated if is_long(columns[name])]

    def tells(name: str, other: str) -> bool:
        return len({*zip(columns[name], columns[other], strict=True)}) == len({*columns[name]})

    for name in filter(GROUPS.fullmatch, repeated):
        others = [other for other in columns if other != name]
        if any(tells(name, text) for text in long) or (
            others and all(tells(name, other) for other in others)
        ):
            return name
    if long:
        return long[0]
    copied = _find_cases(columns, labels)
    return None if copied is None or _differ(columns[copied]) else copied


def _comes_again(cells: Sequence[str], rows: int) -> bool:
    least, most = REPEATED
    different = len({*cells})
    return (
        all(cells) and different >= FEWEST_CASES and least * different <= rows <= most * different
    )


def guess_group(columns: Mapping[str, Sequence[str]], labels: Sequence[str]) -> str | None:
    """The column that names what was inspected: one that is called like it, or the first of all if
    it says something else in each row, exact copies of rows aside; None where there is none. A case
    comes at most once with each label, so a machine's name is none. The number of a row names a
    case only where no column of codes tells each row."""
    cases = {name: cells for name, cells in columns.items() if not counts_rows(name, cells)}
    found = _find_cases(cases, labels)
    has_codes = found and all(map(_DIGIT.search, columns[found]))
    if len(cases) == len(columns) or (found and has_codes and _differ(columns[found])):
        return found
    return _find_cases(columns, labels)


def _differ(cells: Sequence[str]) -> bool:
    return len({*cells}) == len(cells)


def counts_rows(name: str, cells: Sequence[str]) -> bool:
    """Whether a column numbers the rows of its table."""
    return ROWS.fullmatch(name) is not None and any(
        all(cell == str(n) for n, cell in enumerate(cells, start)) for start in (0, 1, 2)
    )


def _find_cases(columns: Mapping[str, Sequence[str]], labels: Sequence[str]) -> str | None:
    rows = [*dict.fromkeys(zip(labels, *columns.values(), strict=True))]
    # so many copies are tickets that say few different things
    if len(rows) == len(labels) or 2 * len(rows) < len(labels):
        rows = [*zip(labels, *columns.values(), strict=True)]
    for place, name in enumerate(columns):
        is_called = GROUPS.fullmatch(name)
        cells = [row[place + 1] for row in rows]
        names_cases = all(cells) and len({(row[0], row[place + 1]) for row in rows}) == len(cells)
        single_words = all(
            len(cell.split()) == 1 and not re.fullmatch(r"-?\d+[.,]\d+", cell) for cell in cells
        )
        may_copy = (
            is_called or len(rows) == len(labels) or not all(cell.isdecimal() for cell in cells)
        )
        if (
            names_cases
            and single_words
            and may_copy
            and len(columns) > 1
            and (place == 0 or is_called)
        ):
            return name
    return None
