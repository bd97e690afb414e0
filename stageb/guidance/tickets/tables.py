"""Tickets in tables, whose first row names the columns, as rows of the kind that JSON Lines hold, and the numbers in their
cells.

Cells are parted by what stands most often in the header, outside quotes: commas, semicolons (as spreadsheets write where the
comma is the decimal point), tabs or bars; in a ``.tsv``, and in what is made here of a spreadsheet, by tabs. Texts in quotes
may hold any of these, and line breaks.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from stageb.errors import write_option
from stageb.guidance.rules.fields import UNIT, Columns, is_image_column, read_row
from stageb.guidance.rules.value_types import POWER, clean_value, fold_text, parse_number
from stageb.guidance.tickets.groups import RepeatCounter
from stageb.guidance.words.column_names import SHEETS, TABBED, ColumnsConfig, Decimal, is_sheet
from stageb.guidance.words.texts import ALIKE, find_nearest, find_renamed
from stageb.guidance.words.types import Content
from stageb.store import disk
from stageb.untrusted.strict_json import FaultError, lines, open_named, reading, short
from stageb.untrusted.workbook import MARK, read_parquet, read_workbook, write_value

# The numbers of a table: the mark before their decimals, and columns in which it may be the other one.
#
# ``0,1136`` is a number in half of the world's spreadsheets, and ``1,234`` is two. A wrong guess would teach wrong numbers
# without a word, so a column of numbers alone is refused where one of them holds the other mark.

NAMES: Mapping[Decimal, str] = {".": "point", ",": "comma"}
_OTHER: Mapping[Decimal, Decimal] = {".": ",", ",": "."}


class Decimals:
    """Remembers where the numbers of a table may be others."""

    def __init__(self, mark: Decimal, columns: Iterable[str]) -> None:
        self._mark, own, other = mark, re.escape(mark), re.escape(_OTHER[mark])
        self._plain = re.compile(rf"-?\d+(?:{own}\d+)?(?:{POWER}{UNIT}|-)")
        self._other = re.compile(rf"-?\d+{other}\d+(?:{POWER}{UNIT}|-)")  # with the other mark before decimals
        # with it between thousands
        self._grouped = re.compile(rf"-?[1-9]\d{{0,2}}(?:{other}\d{{3}})+(?:{own}\d+)?(?:{UNIT}|-)")
        # Columns of numbers alone, with the line and the cell in which the other mark stands first.
        self._numeric: dict[str, tuple[int, str] | None] = dict.fromkeys(columns)
        # with the own mark between thousands, and the other one before decimals
        self._mixed = re.compile(rf"-?[1-9]\d{{0,2}}(?:{own}\d{{3}})+{other}\d+(?:{UNIT}|-)")

    def watch(self, line: int, cells: Mapping[str, str]) -> None:
        """Look at a row's cells, by column."""
        for name, doubt in list(self._numeric.items()):
            cell = cells[name].strip()
            if not cell or self._plain.fullmatch(cell):
                continue
            if not any(form.fullmatch(cell) for form in (self._other, self._grouped, self._mixed)):
                del self._numeric[name]
            elif doubt is None:
                self._numeric[name] = line, cell

    def check(self) -> None:
        """Raise ``FaultError``, once all rows were watched, where numbers may be others."""
        doubts = [(name, doubt) for name, doubt in self._numeric.items() if doubt]
        doubts.sort(key=lambda each: not self._mixed.fullmatch(each[1][1]))  # first what no key mends
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
            what = f"is {cell.replace(',', '.')} if the {strange} stands before decimals, {bare} if between thousands"
        remedy = f"export the table with a decimal {mark} and no marks between thousands"
        return what, f"{remedy}, or set columns.decimal: {short(other)}"


SEPARATORS = ",;\t|"
AHEAD = 20  # rows that are looked at before the first is read
MARKED = MARK.encode()
SHOWN = 4  # names of columns at either end


def advise_words() -> str:
    """Where a user says which words mean pass and fail."""
    return f"columns.passes and columns.fails in the config: {write_option('columns', {'passes': 'WORD', 'fails': 'WORD'})}"


def advise_columns(keys: Sequence[str]) -> str:
    """How to name the columns that ``keys`` of the config's columns mean, and what they may say else."""
    named = write_option("columns", dict.fromkeys(keys, "NAME"))
    hints = {
        "mission": f"{write_option('columns.mission_name', 'TEXT')} where all rows are of one mission",
        "group_id": f"{write_option('columns.group_id', None)} where every row is a group of its own",
        "together": "or leave together out",
        "texts": "texts are those that say what is seen, one or several",
    }
    return "; ".join([f"name it in the config's columns, or by {named}", *filter(None, map(hints.get, keys))])


def hint_nearest(wrong: str, names: Iterable[str], cutoff: float = ALIKE) -> str:
    """The name that is most like one that is not there, if any is."""
    return _write_hint(find_nearest(wrong, filter(None, names), cutoff))


def _write_hint(near: str) -> str:
    return f", did you mean {short(near)}?" if near else ""


def list_roles(columns: ColumnsConfig) -> Columns:
    """Return the roles of a table's columns, for rules written as code that read its rows."""
    mission = columns.mission if columns.mission_name is None else None
    others = (mission, columns.label, columns.group_id, columns.together, columns.split, columns.reason)
    named = tuple(name for name in others if name is not None)
    return Columns(named, tuple(columns.texts), columns.decimal, tuple(columns.rename.items()))


def read_object(said: Mapping[str, Any], roles: Columns) -> tuple[dict[str, str], Content]:
    """The summaries of a row that a program hands over as an object, whose values are texts, numbers, booleans or null, and
    what it says: as ``Table`` reads the same row of a Parquet file. Raises ``FaultError``."""
    for name, value in said.items():
        if isinstance(value, list | dict):
            raise FaultError(f"{short(name)}: {short(value)}", "give it one text or number, or null")
    check_apart(said)
    shown, content = read_row({name: write_value(value) for name, value in said.items()}, roles)
    return dict(shown) or {"image_1": ""}, content


def find_verdict(word: str, columns: ColumnsConfig) -> str | None:
    """The label that ``word`` stands for, if any."""
    words = {"pass": columns.passes, "fail": columns.fails}
    return next((label for label, meant in words.items() if word.casefold() in (each.casefold() for each in meant)), None)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a table."""

    line: int  # of the file, from 1, at which it begins
    raw: bytes  # as it came
    cells: Sequence[str]
    repeat: int = 1  # of the rows that say the same so far, this one included; counted where they have no names


class Table:
    """One file: ``header`` names its columns, ``rows`` gives its rows, ``read_row`` what one of them says.

    Raises ``FaultError`` as it is made, where the header does not name what a ticket needs, and from ``rows`` where the
    file is no table from some line on, or, behind the last row, where a column's numbers may be others.
    """

    def __init__(self, lines: Iterator[tuple[int, bytes]], columns: ColumnsConfig, path: str, labelled: bool) -> None:
        """``labelled``: whether the column of labels has to be there, and a text in every row."""
        self.columns, self._labelled = columns, labelled
        self._taken: list[tuple[int, bytes]] = []  # lines of the row that is being read
        self._repeats = RepeatCounter()
        texts = self._decode(lines)
        first = next(texts, "")
        self.delimiter = "\t" if path.lower().endswith(TABBED) else _find_separator(first)
        self._reader = csv.reader(chain([first] if first else [], texts), delimiter=self.delimiter, strict=True)
        self._ahead: list[TableRow] = []  # rows that were looked at with the header
        self._fault: FaultError | None = None  # that stands behind them
        header = next(self._rows(), None)
        if header is None:
            raise FaultError("empty", "leave it out, or write a header and a ticket per row")
        self.header = [columns.rename.get(name.strip(), name.strip()) for name in header.cells]
        if self.header[0].casefold().startswith("sep="):
            raise FaultError(f"{short(self.header[0])}, a line for a spreadsheet alone", "take it out", header.line)
        try:
            self._ahead += islice(self._rows(), AHEAD)
        except FaultError as fault:
            self._fault = fault
        _check_title([header, *self._ahead])
        self._whole, self._seen = self._find_columns(header.line)  # by what they say of a ticket, and by their names
        used = {*self._whole.values(), *self._seen.values()}
        self._rest = [(place, name) for place, name in enumerate(self.header) if place not in used]
        self._together = self.header.index(columns.together) if columns.together in self.header else None
        self._roles = list_roles(columns)._replace(texts=tuple(self._seen), renamed=())
        self._decimals = Decimals(columns.decimal, self._seen)

    def rows(self) -> Iterator[TableRow]:
        """The rows below the header that are not blank."""
        for row in chain(self._ahead, self._rows()):
            if len(row.cells) == len(self.header):
                self._decimals.watch(row.line, {name: row.cells[place] for name, place in self._seen.items()})
                if self.columns.group_id is None:  # counted here, since not every row has to be read
                    said = [row.cells[place] for place in (*self._whole.values(), *self._seen.values())]
                    row = TableRow(row.line, row.raw, row.cells, self._repeats.add("\0".join(said)))
            yield row
        self._decimals.check()

    def has_no_label(self, row: TableRow) -> bool:
        """Whether the cell of its label is empty."""
        place = self._whole.get("label")
        return place is not None and len(row.cells) == len(self.header) and not row.cells[place].strip()

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
            if any(cell.strip() for cell in cells):
                yield TableRow(line, raw.rstrip(b"\r\n"), cells)

    def read_row(self, row: TableRow) -> dict[str, Any]:
        """Return the row as a ticket's line of JSON would give it. Raises ``FaultError``."""
        columns, cells = self.columns, row.cells
        if len(cells) != len(self.header):
            what = f"{len(cells)} cells where the header names {len(self.header)}"
            raise FaultError(what, "give every row as many, and put a text that holds the separator in quotes")
        if MARKED in row.raw:
            self._check_readable(cells)
        said: dict[str, Any] = {name: cells[place].strip() for name, place in self._whole.items()}
        if columns.mission_name is not None:
            said["mission"] = columns.mission_name
        if columns.group_id is None:
            said["group_id"] = self._name_row(row)
        if "label" in said:
            said["label"] = find_verdict(said["label"], columns) or said["label"] or None
        said["together"] = cells[self._together].strip() if self._together is not None else ""
        said["per_image"], said["content"] = self._read_texts(cells)
        return {name: cells[place] for place, name in self._rest if name or cells[place]} | said

    def _check_readable(self, cells: Sequence[str]) -> None:
        """Raise ``FaultError`` where a cell that is asked for cannot be read; others may hold anything."""
        places = [*self._whole.values(), *self._seen.values(), *([] if self._together is None else [self._together])]
        for place in places:
            if cells[place].startswith(MARK):
                _, what, remedy = cells[place].split(MARK)
                raise FaultError(f"column {short(self.header[place])}: {what}", f"{remedy}, or leave the column out")

    def _name_row(self, row: TableRow) -> str:
        """A name for a row by all that it says beside its label, so that rows keep theirs where others are added."""
        said = [row.cells[place] for place in self._seen.values()]
        digest = disk.digest(json.dumps(said), 8)
        return f"row {digest}" if row.repeat == 1 else f"row {digest} ({row.repeat})"

    def _decode(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[str]:
        for number, raw in lines:
            self._taken.append((number, raw))
            try:
                yield raw.decode("utf-8")
            except UnicodeDecodeError as error:
                what = f"not UTF-8 at byte {error.start} of the line"
                raise FaultError(what, "save the file as UTF-8 (in a spreadsheet: CSV UTF-8)", number) from None

    def _find_columns(self, line: int) -> tuple[dict[str, int], dict[str, int]]:
        """Where mission, group_id and label stand; and where the texts do, by their columns' names: those that the config
        names, or all that say nothing else. A label need not be there, unless it is needed. Raises ``FaultError``."""
        columns, header = self.columns, {name: place for place, name in enumerate(self.header)}
        wanted = {"mission": columns.mission if columns.mission_name is None else None, "group_id": columns.group_id}
        if columns.label in header or self._labelled:
            wanted["label"] = columns.label
        found = {key: name for key, name in wanted.items() if name is not None}
        texts = columns.texts or [
            name
            for name in header
            if name and name not in (*found.values(), columns.together, columns.split, columns.reason)
        ]
        together = [("together", columns.together)] if columns.together is not None else []
        named = [*found.items(), *together, *(("texts", name) for name in texts)]
        asked = {columns.split, columns.reason, *(name for _, name in named)}
        twice = sorted(name for name, count in Counter(self.header).items() if name in asked and count > 1)
        if twice:
            raise FaultError(f"two columns {short(twice[0])}", "give every column a name of its own", line)
        missing = [(key, name) for key, name in named if name not in header]
        if missing or not texts:
            taken = {*found.values(), columns.together, *columns.texts}
            free = [name for name in header if name and name not in taken]  # one may be what is missing
            near = {name: find_renamed(name, free) for _, name in missing}
            told = [f"{short(name)} (columns.{key}){_write_hint(near[name])}" for key, name in missing]
            what = ", ".join(told) or "for the text"
            keys = dict.fromkeys([key for key, _ in missing] if missing else ["texts"])
            remedy = advise_columns(list(keys))
            if renamed := {near[name]: name for key, name in missing if near[name] and key == "texts"}:
                remedy += f"; where it is the same column: {write_option('columns.rename', renamed)}"
            raise FaultError(f"no column {what}; there are {self._describe_header(free)}", remedy, line)
        check_apart([name for name in texts if not is_image_column(name)], line)
        return {key: header[name] for key, name in found.items()}, {name: header[name] for name in texts}

    def _describe_header(self, free: Sequence[str]) -> str:
        """The names of the columns; of many, those that the config does not name, the first and the last of them, among
        which people look for a label."""
        names, more = [name for name in self.header if name], list[str]()
        if len(names) > 2 * SHOWN + 1 and free:
            more = [f"{len(names) - len(free)} that the config names"] if len(free) < len(names) else []
            names = [*free]
        if len(names) > 2 * SHOWN + 1:
            names = [*names[:SHOWN], f"{len(names) - 2 * SHOWN} more", *names[-SHOWN:]]
        return ", ".join([*names, *more])

    def _read_texts(self, cells: Sequence[str]) -> tuple[dict[str, str], Content]:
        """The summaries of a row, and what it says. Raises ``FaultError``."""
        said = {name: cells[place] for name, place in self._seen.items()}
        shown, content = read_row(said, self._roles)
        if not shown and not self._labelled:
            return {"image_1": ""}, content
        if not shown:
            remedy = f"say what is seen in {', '.join(map(short, self._seen))}, or leave the row out"
            raise FaultError("no text: every cell for it is empty", remedy)
        return dict(shown), content


def _find_separator(header: str) -> str:
    """Find the separator of the cells in a table's first line."""
    bare = re.sub(r'"[^"]*("|$)', "", header)
    return max(SEPARATORS, key=bare.count)  # of equals the first


def _check_title(rows: Sequence[TableRow]) -> None:
    """Raise ``FaultError`` where the first row is a title, rather than the names of the columns below."""
    said = [[cell.strip() for cell in row.cells] for row in rows]
    if all(len(cells) == 1 for cells in said):  # a title tells no separator
        mark = _find_separator(rows[-1].raw.decode())
        said = [next(csv.reader([cells[0]], delimiter=mark)) for cells in said if cells[0]]
    counts = [len({*filter(None, cells)}) for cells in said]
    place = next(n for n, count in enumerate(counts) if 2 * count >= max(counts))
    names, *below = said[place:]
    is_table = below and all(len(cells) == len(names) for cells in below) and not any(map(parse_number, names))
    if place and is_table:
        what = f"row {rows[0].line} is a title, {short(said[0][0])}; the header seems to stand in row {rows[place].line}"
        raise FaultError(what, "take out the rows above the header", rows[0].line)
    if len(below) > 1 and is_table and _goes_on(names, below):
        what = f"the header goes on in row {rows[1].line}, which names columns that have no name in row {rows[0].line}"
        raise FaultError(what, "give each column a name of its own in one row", rows[0].line)


def _goes_on(names: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether the row below the ``names`` names what these leave nameless, and leaves out what all rows after it tell."""
    second, *rows = below
    nameless = [place for place, name in enumerate(names) if not name and any(row[place] for row in below)]
    told = [place for place, name in enumerate(names) if name and all(row[place] for row in rows)]
    is_second = all(second[place] and parse_number(second[place]) is None for place in nameless)
    return bool(nameless) and is_second and not all(second[place] for place in told)


def check_apart(names: Iterable[str], line: int = 0) -> None:
    """Raise ``FaultError`` where rules cannot tell two columns apart."""
    column_of: dict[str, str] = {}
    for name in names:
        other = column_of.setdefault(fold_text(clean_value(name)), name)
        if other is not name:
            what = f"columns {short(other)} and {short(name)}, which rules cannot tell apart"
            raise FaultError(what, "rename one, or name others in columns.texts", line)


def _explain(error: csv.Error, line: int, raw: bytes) -> tuple[str, str]:
    """Explain what is wrong with the row that begins at ``line``, and return the remedy, too; ``csv`` tells that by its
    words alone."""
    if "field limit" in str(error):
        what = f"a cell of more than {csv.field_size_limit():,} characters in the row that begins here"
        return what, "shorten it, or close its quote, if it was to end before"
    if "new-line character" in str(error):
        whole = line == 1 and b"\n" not in raw
        what = "lines that end with a carriage return alone" if whole else "a carriage return amid the line"
        return what, "save the file with the line breaks of Unix or Windows, and put a text that holds one in quotes"
    remedy = 'close every quote, and write a quote within a quoted text twice: "he said ""no"""'
    return f"no row of a table begins here: {error}", remedy


# Spreadsheets and Parquet files, as the lines of a table whose cells are parted by tabs.


def table_lines(path: str, kind: str, sheet: str | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines of the table in the file ``path``, with their numbers from 1; of the ``sheet`` of a workbook, its rows."""
    if not is_sheet(path):
        return lines(path, kind)
    with reading(kind), open_named(path):
        return _write_rows(read_workbook(path, sheet) if path.lower().endswith(SHEETS) else read_parquet(path))


def _write_rows(rows: Iterable[Sequence[str]]) -> Iterator[tuple[int, bytes]]:
    for number, row in enumerate(rows, 1):
        line = "\t".join(row)
        if len(row) < 2 or line.count("\t") >= len(row) or any(mark in line for mark in '"\r\n'):  # it takes quotes
            csv.writer(written := io.StringIO(), "excel-tab", lineterminator="\n").writerow(row)
            line = written.getvalue().removesuffix("\n")
        yield number, f"{line}\n".encode("utf-8", "surrogatepass")
