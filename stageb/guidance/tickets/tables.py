"""Tickets in tables, whose first row names the columns, as rows of the kind that JSON Lines hold.

Cells are parted by what stands most often in the header, outside quotes: commas, semicolons (as
spreadsheets write where the comma is the decimal point), tabs or bars; in a ``.tsv``, and in what
is made here of a spreadsheet, by tabs. Texts in quotes may hold any of these, and line breaks.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

from stageb.guidance.rules.fields import Columns, is_image_column, read_row
from stageb.guidance.rules.row_keys import Memo, make_reader
from stageb.guidance.rules.value_types import parse_number
from stageb.guidance.tickets.decimal_marks import Decimals
from stageb.guidance.tickets.groups import RepeatCounter
from stageb.guidance.tickets.headers import check_renamed, find_columns, list_roles
from stageb.guidance.words.column_names import SHEETS, TABBED, ColumnsConfig, is_sheet
from stageb.guidance.words.types import Content
from stageb.store import disk
from stageb.untrusted.strict_json import FaultError, lines, open_named, reading, short
from stageb.untrusted.workbook import MARK, read_parquet, read_workbook, write_value

SEPARATORS = ",;\t|"
AHEAD = 20  # rows that are looked at before the first is read
AHEAD_OF_ONE = 64  # rows that are looked at together, where they are read one by one
MARKED = MARK.encode()
DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d?([./])\d\d?\1\d\d")


def read_object(said: Mapping[str, Any], roles: Columns) -> tuple[dict[str, str], Content]:
    """The summaries of a row that a program hands over as an object, whose values are texts,
    numbers, booleans or null, and what it says: as ``TableReader`` reads the same row of a Parquet
    file. Raises ``FaultError``."""
    for name, value in said.items():
        if isinstance(value, list | dict):
            raise FaultError(
                f"{short(name)}: {short(value)}", "give it one text or number, or null"
            )
    shown, content = read_row({name: write_value(value) for name, value in said.items()}, roles)
    return dict(shown) or {"image_1": ""}, content


class TableRow(NamedTuple):
    """One row of a table."""

    line: int  # of the file, from 1, at which it begins
    raw: bytes  # as it came
    cells: Sequence[str]
    name: str = ""  # where its table names rows by what they say


class TableReader:
    """One file: ``header`` names its columns, ``rows`` gives its rows, ``read_row`` what one of
    them says.

    Raises ``FaultError`` as it is made, where the header does not name what a ticket needs, and
    from ``rows`` where the file is no table from some line on, or, behind the last row, where a
    column's numbers may be others.
    """

    def __init__(
        self, lines: Iterator[tuple[int, bytes]], columns: ColumnsConfig, path: str, labelled: bool
    ) -> None:
        """``labelled``: whether the column of labels has to be there, and a text in every row."""
        self.columns, self._labelled = columns, labelled
        self._taken: list[tuple[int, bytes]] = []  # lines of the row that is being read
        self._repeats, self._quoted = RepeatCounter(), Memo(json.dumps)
        texts = self._decode(lines)
        first = next(texts, "")
        self.delimiter = "\t" if path.lower().endswith(TABBED) else _find_separator(first)
        self._reader = csv.reader(
            chain([first] if first else [], texts), delimiter=self.delimiter, strict=True
        )
        self._ahead: list[TableRow] = []  # rows that were looked at with the header
        self._fault: FaultError | None = None  # that stands behind them
        self._header_cells: Sequence[str] = ()  # as the file has them
        header = next(self._rows(), None)
        if header is None:
            raise FaultError("empty", "leave it out, or write a header and a ticket per row")
        self._header_cells = header.cells
        names = [name.strip() for name in header.cells]
        self.header = [columns.rename.get(name, name) for name in names]
        if self.header[0].casefold().startswith("sep="):
            raise FaultError(
                f"{short(self.header[0])}, a line for a spreadsheet alone",
                "take it out",
                header.line,
            )
        try:
            self._ahead += islice(self._rows(), AHEAD)
        except FaultError as fault:
            self._fault = fault
        _check_title([header, *self._ahead])
        check_renamed(names, columns, header.line)
        # by what they say of a ticket, and by their names
        self._whole, self._seen = find_columns(self.header, columns, labelled, header.line)
        used = {*self._whole.values(), *self._seen.values()}
        self._rest = [(place, name) for place, name in enumerate(self.header) if place not in used]
        self._together = (
            self.header.index(columns.together) if columns.together in self.header else None
        )
        self._asked = [*used, *([] if self._together is None else [self._together])]
        self._roles = list_roles(columns)._replace(texts=tuple(self._seen), renamed=())
        self._decimals = Decimals(columns.decimal, self._seen, self._roles.missing)
        self._read_fields = make_reader(self._roles)

    @property
    def has_images(self) -> bool:
        """Whether columns hold summaries of images, in which fields may be."""
        return any(map(is_image_column, self._seen))

    def rows(self) -> Iterator[TableRow]:
        """The rows below the header that are not blank."""
        for some in self.parts(AHEAD_OF_ONE):
            even = [row for row in some if len(row.cells) == len(self.header)]
            cells = [*zip(*(row.cells for row in even), strict=True)]
            # not every row has to be read
            names = iter(self.watch([row.line for row in even], cells) if even else ())
            yield from (
                row._replace(name=next(names)) if len(row.cells) == len(self.header) else row
                for row in some
            )
        self.check()

    def parts(self, most: int) -> Iterator[Sequence[TableRow]]:
        """The same that nobody has watched, so many at a time. Raises ``FaultError`` behind the
        last that can be read."""
        rows, fault = chain(self._ahead, self._rows()), None
        while fault is None:
            some: list[TableRow] = []
            try:
                some.extend(islice(rows, most))  # which keeps those before a fault
            except FaultError as error:
                fault = error
            if some:
                yield some
            elif fault is None:
                return
        raise fault

    def watch(
        self, lines: Sequence[int], cells: Sequence[Sequence[str]], is_named: bool = True
    ) -> Sequence[str]:
        """Look at rows that begin at these ``lines``, by the ``cells`` of each column. If they
        shall be ``is_named`` and no column does it, name each by all that it says beside its label,
        so that rows keep theirs where others are added."""
        seen = {name: cells[place] for name, place in self._seen.items()}
        self._decimals.watch(lines, seen)
        if self.columns.group_id is not None or not is_named:
            return [""] * len(lines)
        said = zip(
            *(map(self._quoted.__getitem__, column) for column in seen.values()), strict=True
        )
        texts = [f"[{', '.join(row)}]" for row in said]
        others = (
            zip(*(cells[place] for place in self._whole.values()), strict=True)
            if self._whole
            else repeat(())
        )
        return [self._name(text, other) for text, other in zip(texts, others, strict=False)]

    def check(self) -> None:
        """Raise ``FaultError``, once all rows were watched, where the numbers of a column may be
        others."""
        self._decimals.check()

    def has_no_label(self, row: TableRow) -> bool:
        """Whether the cell of its label is empty, where there has to be one."""
        is_even = len(row.cells) == len(self.header)
        return is_even and not row.cells[self._whole["label"]].strip()

    def _rows(self) -> Iterator[TableRow]:
        """The rows from where the last one was read that are not blank."""
        if self._fault:
            raise self._fault
        while True:
            try:
                cells = next(self._reader, None)
            except csv.Error as error:
                line, raw = self._taken[0]
                raise FaultError(*_explain(error, line, raw), line) from None
            if cells is None:
                return
            line, raw = self._taken[0][0], b"".join(raw for _, raw in self._taken)
            self._taken.clear()
            if cells == self._header_cells:  # as exports of several pages have it
                raise FaultError("the header again", "take out every row that repeats it", line)
            if any(cell.strip() for cell in cells):
                yield TableRow(line, raw.rstrip(b"\r\n"), cells)

    def read_row(self, row: TableRow) -> dict[str, Any]:
        """Return the row as a ticket's line of JSON would give it. Raises ``FaultError``."""
        columns, cells = self.columns, row.cells
        if len(cells) != len(self.header):
            what = f"{len(cells)} cells where the header names {len(self.header)}"
            raise FaultError(
                what, "give every row as many, and put a text that holds the separator in quotes"
            )
        if MARKED in row.raw:
            self._check_readable(cells)
        said: dict[str, Any] = {
            name: self._whole_value(name, cells[place]) for name, place in self._whole.items()
        }
        if columns.mission_name is not None:
            said["mission"] = columns.mission_name
        if columns.group_id is None:
            said["group_id"] = row.name
        said["together"] = cells[self._together].strip() if self._together is not None else ""
        said["per_image"], said["content"] = self._read_texts(cells)
        return {name: cells[place] for place, name in self._rest if name or cells[place]} | said

    def write_row(self, cells: Sequence[str]) -> str:
        """The line of a row of this file, without its end."""
        return disk.csv_line(cells, self.delimiter)

    def read_columns(
        self, cells: Sequence[Sequence[str]]
    ) -> tuple[dict[str, Sequence[Any]], Mapping[str, Sequence[str]]]:
        """What ``read_row`` reads in many rows, by the ``cells`` of each column: what columns say
        of tickets as wholes, and their fields. Raises ``FaultError`` where a cell that is asked for
        cannot be read, but does not tell which."""
        if any(cell.startswith(MARK) for place in self._asked for cell in {*cells[place]}):
            raise FaultError("a cell that cannot be read", "")
        ask = {name: Memo(partial(self._whole_value, name)).__getitem__ for name in self._whole}
        said: dict[str, Sequence[Any]] = {
            name: [*map(ask[name], cells[place])] for name, place in self._whole.items()
        }
        if self.columns.mission_name is not None:
            said["mission"] = [self.columns.mission_name] * len(cells[0])
        return said, self._read_fields({name: cells[place] for name, place in self._seen.items()})

    def _whole_value(self, name: str, cell: str) -> str | None:
        """Read the cell of a mission, a group_id or a label."""
        said = cell.strip()
        return self.columns.find_verdict(said) or said or None if name == "label" else said

    def _check_readable(self, cells: Sequence[str]) -> None:
        """Raise ``FaultError`` where a cell that is asked for cannot be read; others may hold
        anything."""
        for place in self._asked:
            if cells[place].startswith(MARK):
                _, what, remedy = cells[place].split(MARK)
                raise FaultError(
                    f"column {short(self.header[place])}: {what}",
                    f"{remedy}, or leave the column out",
                )

    def _name(self, text: str, others: Sequence[str]) -> str:
        """A name for a row that says ``text``, and this of ``others``, as its label, by which alone
        it is no copy."""
        digest = disk.digest(text, 8)
        count = self._repeats.add(disk.digest("\0".join((text, *others)), 8) if others else digest)
        return f"row {digest}" if count == 1 else f"row {digest} ({count})"

    def _decode(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[str]:
        for number, raw in lines:
            self._taken.append((number, raw))
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError as error:
                what = f"not UTF-8 at byte {error.start} of the line"
                raise FaultError(
                    what, "save the file as UTF-8 (in a spreadsheet: CSV UTF-8)", number
                ) from None

    def _read_texts(self, cells: Sequence[str]) -> tuple[dict[str, str], Content]:
        """The summaries of a row, and what it says. Raises ``FaultError``."""
        said = {name: cells[place] for name, place in self._seen.items()}
        shown, content = read_row(said, self._roles)
        if not shown and not self._labelled:
            return {"image_1": ""}, content
        if not shown:
            remedy = (
                f"say what is seen in {', '.join(map(short, self._seen))}, or leave the row out"
            )
            raise FaultError("no text: every cell for it is empty", remedy)
        return dict(shown), content


def _find_separator(header: str) -> str:
    """Find the separator of the cells in a table's first line."""
    bare = re.sub(r'"[^"]*("|$)', "", header)
    return max(SEPARATORS, key=bare.count)  # of equals the first


def _check_title(rows: Sequence[TableRow]) -> None:
    """Raise ``FaultError`` where the first row is a title, rather than the names of the columns
    below."""
    said = [[cell.strip() for cell in row.cells] for row in rows]
    if all(len(cells) == 1 for cells in said):  # a title tells no separator
        mark = _find_separator(rows[-1].raw.decode())
        said = [next(csv.reader([cells[0]], delimiter=mark)) for cells in said]
    counts = [len({*filter(None, cells)}) for cells in said]
    wide = [n for n, count in enumerate(counts) if 2 * count >= max(counts)]
    # below a title, what it is of and when it was written may stand in a row of their own
    named = [n for n in wide if not any(map(_is_value, said[n]))] if wide[0] else wide
    place = next(iter(named or wide))
    names, *below = said[place:]
    is_table = (
        below
        and all(len(cells) == len(names) for cells in below)
        and not any(map(parse_number, names))
    )
    if place and is_table:
        what = (
            f"row {rows[0].line} is a title, {short(said[0][0])}; the header seems to stand "
            f"in row {rows[place].line}"
        )
        raise FaultError(what, "take out the rows above the header", rows[0].line)
    if len(below) > 1 and is_table and _goes_on(names, below):
        what = (
            f"the header goes on in row {rows[1].line}, which names columns that have no "
            f"name in row {rows[0].line}"
        )
        raise FaultError(what, "give each column a name of its own in one row", rows[0].line)


def _is_value(cell: str) -> bool:
    """Whether a cell is a number or begins with a date, which few columns are called."""
    return parse_number(cell) is not None or bool(DATE.match(cell))


def _goes_on(names: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether the row below the ``names`` names what these leave nameless, and leaves out what all
    rows after it tell."""
    second, *rows = below
    nameless = [
        place for place, name in enumerate(names) if not name and any(row[place] for row in below)
    ]
    told = [place for place, name in enumerate(names) if name and all(row[place] for row in rows)]
    is_second = all(second[place] and parse_number(second[place]) is None for place in nameless)
    return bool(nameless) and is_second and not all(second[place] for place in told)


def _explain(error: csv.Error, line: int, raw: bytes) -> tuple[str, str]:
    """Explain what is wrong with the row that begins at ``line``, and return the remedy, too;
    ``csv`` tells that by its words alone."""
    if "field limit" in str(error):
        what = (
            f"a cell of more than {csv.field_size_limit():,} characters in the row that begins here"
        )
        return what, "shorten it, or close its quote, if it was to end before"
    if "new-line character" in str(error):
        whole = line == 1 and b"\n" not in raw
        what = (
            "lines that end with a carriage return alone"
            if whole
            else "a carriage return amid the line"
        )
        return (
            what,
            "save the file with the line breaks of Unix or Windows, and put a text that holds "
            "one in quotes",
        )
    remedy = 'close every quote, and write a quote within a quoted text twice: "he said ""no"""'
    return f"no row of a table begins here: {error}", remedy


# Spreadsheets and Parquet files, as the lines of a table whose cells are parted by tabs.


def table_lines(path: str, kind: str, sheet: str | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of the table in the file ``path``, with their numbers from 1; of the ``sheet`` of a
    workbook, its rows."""
    if not is_sheet(path):
        return lines(path, kind)
    with reading(kind), open_named(path):
        if path.lower().endswith(SHEETS):
            return write_rows(read_workbook(path, sheet))
        return write_rows(
            chain.from_iterable(zip(*some, strict=True) for some in read_parquet(path))
        )


def write_rows(rows: Iterable[Sequence[str]]) -> Iterator[tuple[int, bytes]]:
    """Rows as numbered lines of a table whose cells are parted by tabs."""
    for number, row in enumerate(rows, 1):
        line = "\t".join(row)
        # it takes quotes
        if len(row) < 2 or line.count("\t") >= len(row) or any(mark in line for mark in '"\r\n'):
            line = disk.csv_line(row, "\t")
        yield number, f"{line}\n".encode("utf-8", "surrogatepass")
