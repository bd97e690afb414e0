"""Columns that are no texts to judge by: who judged, and when, dates, and what alone tells the label
under a label's name, as a second label does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stageb.guidance.commands.fit.cautions import DATES, FEWEST_TICKETS, tells_label
from stageb.guidance.commands.use.guess_group import counts_rows
from stageb.guidance.commands.use.table_words import (
    FAILS,
    FAULTS,
    LABELS,
    MERITS,
    MISSING,
    PASSES,
    PEOPLE,
    TIMES,
)
from stageb.untrusted.workbook import MARK


def find_others(columns: Mapping[str, Sequence[str]], labels: Sequence[str]) -> dict[str, str]:
    """The columns that are no texts to judge by, with the reason: dates go without saying in an
    empty one."""
    found: dict[str, str] = {}
    # so lead times are of people, not of deliveries
    is_judged = any(map(PEOPLE.fullmatch, columns))
    for name, cells in columns.items():
        if any(cell.startswith(MARK) for cell in cells):
            found[name] = "cells that are no text or number"
        elif PEOPLE.fullmatch(name) or (is_judged and TIMES.fullmatch(name)):
            found[name] = "who judged a row, and when"
        elif counts_rows(name, cells):
            found[name] = "it numbers the rows"
        elif holds_dates(cells):
            found[name] = "dates alone, of which rules read nothing, or no value at all"
        elif is_second_label(name, cells, labels):
            found[name] = "it alone tells the label of every row, as a second label does"
    return found


def is_second_label(name: str, cells: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether a column tells the label of every row, and is called like a label or holds words of
    verdicts."""
    words = {cell.casefold() for cell in cells}
    is_named = (
        LABELS.search(name)
        or FAULTS.search(name)
        or MERITS.search(name)
        or (words <= PASSES | FAILS)
    )
    if not is_named or min(Counter(labels).values()) < FEWEST_TICKETS or "" in words:
        return False
    return tells_label(dict(enumerate(cells)), labels, len(labels))


def holds_dates(cells: Sequence[str]) -> bool:
    """Whether a column holds dates alone, of which rules make no condition, or nothing at all, by
    whichever mark."""
    return all(DATES.fullmatch(cell) or MISSING.fullmatch(cell) for cell in cells if cell)
