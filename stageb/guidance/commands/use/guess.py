"""The columns of a table, guessed from its header and its cells: for ``stageb new``, and for
``stageb.fit`` where it is not told.

A wrong guess that nobody sees would teach wrong rules, so what is left out of the texts is told,
and what cannot be guessed is asked for, where a person sits at a terminal, or refused with the
option that says it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from stageb.errors import InputError
from stageb.guidance.commands.fit.cautions import FEWEST_NUMBERS, NUMBERS
from stageb.guidance.commands.use.guess_group import guess_group, guess_together, is_long
from stageb.guidance.commands.use.guess_label import divide_words, guess_label, list_names
from stageb.guidance.commands.use.guess_texts import find_others
from stageb.guidance.commands.use.table_words import MISSING, MISSIONS, REASONS
from stageb.guidance.rules.value_types import parse_quantity
from stageb.guidance.tickets.groups import find_repeats
from stageb.guidance.tickets.headers import hint_nearest
from stageb.guidance.tickets.tables import TableReader, table_lines
from stageb.guidance.tickets.tickets import (
    KIND,
    SPLIT_WORDS,
    describe_left_out,
    read_tickets,
    reporting,
)
from stageb.guidance.words.column_names import ColumnsConfig, Decimal, is_table
from stageb.guidance.words.types import Ticket
from stageb.untrusted.strict_json import FaultError, short

MOST_MARKS = 5  # cells of different words in a column of numbers that may stand for missing ones


class Told(NamedTuple):
    """Columns as a person names them."""

    label: str | None = None
    passes: Sequence[str] = ()
    fails: Sequence[str] = ()
    mission: str | None = None
    group: str | None = None  # "null" where there is none
    sheet: str | None = None
    unlabelled: Literal["refuse", "skip"] = "refuse"


class Guess(NamedTuple):
    """Columns as guessed, and what a person should know of them."""

    columns: ColumnsConfig
    notes: list[str]


def guess_columns(table: str, told: Told) -> Guess:
    """Guess what the columns of a table say. Raises ``InputError`` for what cannot be guessed."""
    with reporting(table, "ticket files"):
        cells, decimal = read_cells(table, told.sheet)
    names = list(cells)
    for option in ("label", "mission", "group"):
        name = getattr(told, option)
        if name is not None and name not in names and (option, name) != ("group", "null"):
            what = f"there is no column {short(name)}{hint_nearest(name, names)}"
            raise InputError(f"--{option}: {what}; there are {list_names(names)}")
    label, notes = (told.label, list[str]()) if told.label else guess_label(table, cells)
    labels = cells[label]
    passes, fails = divide_words(label, labels, told.passes, told.fails)
    mission = told.mission or next(
        (name for name in names if MISSIONS.fullmatch(name) and name != label), None
    )
    split = next((name for name in names if name != label and names_splits(cells[name])), None)
    reason = next((name for name in names if name != label and REASONS.fullmatch(name)), None)
    others = {
        name: own for name, own in cells.items() if name not in (label, mission, split, reason)
    }
    group = told.group or guess_group(others, labels)
    group = None if group == "null" else group
    others.pop(group or "", None)
    left_out = find_others(others, labels)
    texts = {name: own for name, own in others.items() if name not in left_out}
    together = guess_together(texts, labels)
    if together:
        said = (
            f"{len(labels):,} rows are of {len({*texts[together]}):,} different {short(together)}"
        )
        notes.append(f"{said}: columns.together keeps those of one in one split")
    for why in dict.fromkeys(left_out.values()):
        alike = list_names([name for name in left_out if left_out[name] == why])
        notes.append(f"no texts to judge by: {alike} ({why})")
    marks = find_marks(texts)
    missing = sorted({*chain(*marks.values())})
    if missing:
        where = f"{list_names(missing)}, which are no numbers, or of another unit, in {list_names([*marks])}"
        notes.append(f"cells that are read as missing: {where} (columns.missing)")
    columns = ColumnsConfig(
        mission=mission or ColumnsConfig.mission,
        mission_name=None if mission else Path(table).stem,
        group_id=group,
        together=together,
        split=split,
        reason=reason,
        label=label,
        unlabelled=told.unlabelled,
        passes=passes,
        fails=fails,
        texts=[name for name in texts if name != together or is_long(texts[name])],
        sheet=told.sheet,
        missing=missing,
        decimal=decimal,
    )
    return Guess(columns, notes)


def find_marks(columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Find the cells of each column of numbers that stand for a missing one: all that are no number
    and are spelled so, or all others where they are few and stand in no column of words, among
    these numbers in another unit than the rest."""
    split = {name: _split_numbers(cells) for name, cells in columns.items()}
    of_numbers = {
        name for name, (own, *others) in split.items() if _has_few(own, [*chain(*others)])
    }
    words = {
        cell.casefold()
        for name, cells in columns.items()
        if name not in of_numbers
        for cell in cells
    }
    spelled, unknown = dict[str, list[str]](), dict[str, list[str]]()
    for name, (numbers, in_other_units, strange) in split.items():
        marks = sorted({*strange})
        if marks and all(map(MISSING.fullmatch, marks)) and len(marks) < len({*numbers}):
            spelled[name] = marks
        marks = sorted({*strange, *in_other_units})
        if marks and name in of_numbers and words.isdisjoint(map(str.casefold, marks)):
            unknown[name] = marks
    says_nothing = {"", *chain(*spelled.values(), *unknown.values())}
    # a row that says nothing else would be refused
    are_empty = map(says_nothing.issuperset, zip(*columns.values(), strict=True))
    return spelled if any(are_empty) else spelled | unknown


def _split_numbers(cells: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Split a column's cells into numbers of its commonest unit or none, those of other units, and
    what is no number."""
    # with whichever mark before decimals
    read = {cell: parse_quantity(cell.replace(",", ".")) for cell in {*cells} - {""}}
    units = Counter(found.unit for cell in cells if cell and (found := read[cell]) and found.unit)
    usual = {"", *(unit for unit, _ in units.most_common(1))}
    numbers, in_other_units, strange = list[str](), list[str](), list[str]()
    for cell in filter(None, cells):
        found = read[cell]
        kind = strange if found is None else numbers if found.unit in usual else in_other_units
        kind.append(cell)
    return numbers, in_other_units, strange


def _has_few(numbers: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a column measures something, and hardly has another cell."""
    most = (1 - NUMBERS) * (len(others) + len(numbers))
    return (
        len({*numbers}) >= FEWEST_NUMBERS and len(others) <= most and len({*others}) <= MOST_MARKS
    )


def read_guessed(table: str, told: Told) -> tuple[Guess, list[Ticket]]:
    """The same, with the tickets as a run would read them, so that every line that does not fit is
    told. Raises ``InputError``."""
    columns, notes = guess_columns(table, told)
    tickets, left_out = read_tickets([table], "error", columns)
    if not columns.together and any(each.is_coarse for each in find_repeats(tickets)):
        columns = replace(columns, repeats="apart")
    return Guess(columns, [*notes, *describe_left_out(left_out)]), tickets


def lacks_names(path: str) -> bool:
    """Whether a file is a table without the columns that a config names by itself."""
    try:
        if is_table(path):
            TableReader(table_lines(path, KIND), ColumnsConfig(), path, labelled=True)
        return False
    except FaultError:
        return True


def read_cells(table: str, sheet: str | None = None) -> tuple[dict[str, list[str]], Decimal]:
    """The stripped cells of a table by column, and whichever decimal mark its numbers allow. Raises
    ``FaultError``."""
    if not is_table(table):
        other = "JSON Lines need no such config: stageb validate --config tickets --tickets FILE"
        raise FaultError(
            "no table by its name", f"name a table (.csv, .tsv, .xlsx, .parquet); {other}"
        )
    try:
        return _read_cells(table, sheet, "."), "."
    except FaultError as fault:
        try:
            return _read_cells(table, sheet, ","), ","
        except FaultError:
            raise fault from None


def _read_cells(
    table: str, sheet: str | None, decimal: Decimal, missing: Sequence[str] = ()
) -> dict[str, list[str]]:
    # so that none need be there
    roles = ColumnsConfig(
        mission_name="any", group_id=None, label="\0", decimal=decimal, missing=[*missing]
    )
    opened = TableReader(table_lines(table, KIND, sheet), roles, table, labelled=False)
    rows = [row.cells for row in opened.rows() if len(row.cells) == len(opened.header)]
    if not rows:
        raise FaultError("no rows below the header", "write a ticket per row")
    cells = {
        name: [row[place].strip() for row in rows]
        for place, name in enumerate(opened.header)
        if name
    }
    marks = {*chain(*find_marks(cells).values())}
    # beside such marks numbers have decimals, too
    return _read_cells(table, sheet, decimal, [*marks]) if marks.difference(missing) else cells


def names_splits(cells: Sequence[str]) -> bool:
    """Whether a column says which split each row is of."""
    words = {cell.casefold() for cell in cells}
    return "train" in words and len(words) > 1 and words <= SPLIT_WORDS.keys()
