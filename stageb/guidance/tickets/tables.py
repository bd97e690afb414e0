"""Tickets in tables, whose first row names the columns, as rows of the kind that JSON Lines hold, and the numbers in their
cells.

Cells are parted by commas, by semicolons where the header has those and no comma (as spreadsheets write where the comma is
the decimal point), or by tabs in a ``.tsv`` and in what is made here of a spreadsheet. Texts in quotes may hold any
of these, and line breaks.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from stageb.errors import write_option
from stageb.guidance.rules.fields import UNIT, Columns, is_image_column, read_row
from stageb.guidance.rules.value_types import POWER, clean_value, fold_text
from stageb.guidance.words.column_names import SHEETS, TABBED, ColumnsConfig, Decimal, is_sheet
from stageb.guidance.words.texts import ALIKE, find_nearest, find_renamed
from stageb.guidance.words.types import Content
from stageb.store import disk
from stageb.untrusted.strict_json import FaultError, lines, open_named, reading, short

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
        self._plain = re.compile(rf"-?\d+(?:{own}\d+)?{POWER}{UNIT}")
        self._other = re.compile(rf"-?\d+{other}\d+{POWER}{UNIT}")  # with the other mark before decimals
        self._grouped = re.compile(rf"-?[1-9]\d{{0,2}}(?:{other}\d{{3}})+(?:{own}\d+)?{UNIT}")  # with it between thousands
        # Columns of numbers alone, with the line and the cell in which the other mark stands first.
        self._numeric: dict[str, tuple[int, str] | None] = dict.fromkeys(columns)

    def watch(self, line: int, cells: Mapping[str, str]) -> None:
        """Look at a row's cells, by column."""
        for name, doubt in list(self._numeric.items()):
            cell = cells[name].strip()
            if not cell or self._plain.fullmatch(cell):
                continue
            if not self._other.fullmatch(cell) and not self._grouped.fullmatch(cell):
                del self._numeric[name]
            elif doubt is None:
                self._numeric[name] = line, cell

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
        if not self._other.fullmatch(cell):
            return f"has a {strange} between thousands", "export the table without such marks"
        what = f"has a decimal {strange}"
        if self._grouped.fullmatch(cell):
            what = f"is {cell.replace(',', '.')} if the {strange} stands before decimals, {bare} if between thousands"
        remedy = f"export the table with a decimal {mark} and no marks between thousands"
        return what, f"{remedy}, or set columns.decimal: {short(other)}"


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
    return _hint(find_nearest(wrong, filter(None, names), cutoff))


def _hint(near: str) -> str:
    return f", did you mean {short(near)}?" if near else ""


def list_roles(columns: ColumnsConfig) -> Columns:
    """What the columns of a table say, as rules written as code read its rows."""
    mission = columns.mission if columns.mission_name is None else None
    others = (mission, columns.label, columns.group_id, columns.together, columns.split, columns.reason)
    named = tuple(name for name in others if name is not None)
    return Columns(named, tuple(columns.texts), columns.decimal, tuple(columns.rename.items()))


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
        self._repeats: Counter[tuple[str, ...]] = Counter()
        texts = self._decode(lines)
        first = next(texts, "")
        self.delimiter = "	" if path.lower().endswith(TABBED) else ";" if ";" in first and "," not in first else ","
        self._reader = csv.reader(chain([first] if first else [], texts), delimiter=self.delimiter, strict=True)
        header = next(self._rows(), None)
        if header is None:
            raise FaultError("empty", "leave it out, or write a header and a ticket per row")
        self.header = [columns.rename.get(name.strip(), name.strip()) for name in header.cells]
        _check_parted(self.header, header.line)
        self._whole, self._seen = self._find_columns(header.line)  # by what they say of a ticket, and by their names
        self._together = self.header.index(columns.together) if columns.together in self.header else None
        self._roles = list_roles(columns)._replace(texts=tuple(self._seen), renamed=())
        self._decimals = Decimals(columns.decimal, self._seen)

    def rows(self) -> Iterator[TableRow]:
        """The rows below the header that are not blank."""
        for row in self._rows():
            if len(row.cells) == len(self.header):
                self._decimals.watch(row.line, {name: row.cells[place] for name, place in self._seen.items()})
                if self.columns.group_id is None:  # counted here, since not every row has to be read
                    said = tuple(row.cells[place] for place in (*self._whole.values(), *self._seen.values()))
                    self._repeats[said] += 1
                    row = replace(row, repeat=self._repeats[said])
            yield row
        self._decimals.check()

    def _rows(self) -> Iterator[TableRow]:
        """The rows from where the last one was read that are not blank."""
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
        """What a ticket's line of JSON would say. Raises ``FaultError``."""
        columns, cells = self.columns, row.cells
        if len(cells) != len(self.header):
            what = f"{len(cells)} cells where the header names {len(self.header)}"
            raise FaultError(what, "give every row as many, and put a text that holds the separator in quotes")
        said: dict[str, Any] = {name: cells[place].strip() for name, place in self._whole.items()}
        if columns.mission_name is not None:
            said["mission"] = columns.mission_name
        if columns.group_id is None:
            said["group_id"] = self._name_row(row)
        if "label" in said:
            said["label"] = find_verdict(said["label"], columns) or said["label"] or None
        said["together"] = cells[self._together].strip() if self._together is not None else ""
        said["per_image"], said["content"] = self._read_texts(cells)
        used = {*self._whole.values(), *self._seen.values()}
        rest = {name: cells[place] for place, name in enumerate(self.header) if name and place not in used}
        return {**rest, **said}

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
        twice = sorted(name for name, count in Counter(self.header).items() if name and count > 1)
        if twice:
            raise FaultError(f"two columns {short(twice[0])}", "give every column a name of its own", line)
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
        missing = [(key, name) for key, name in named if name not in header]
        if missing or not texts:
            taken = {*found.values(), columns.together, *columns.texts}
            free = [name for name in header if name and name not in taken]  # one may be what is missing
            near = {name: find_renamed(name, free) for _, name in missing}
            told = [f"{short(name)} (columns.{key}){_hint(near[name])}" for key, name in missing]
            what = ", ".join(told) or "for the text"
            keys = dict.fromkeys([key for key, _ in missing] if missing else ["texts"])
            remedy = advise_columns(list(keys))
            if renamed := {near[name]: name for key, name in missing if near[name] and key == "texts"}:
                remedy += f"; where it is the same column: {write_option('columns.rename', renamed)}"
            raise FaultError(f"no column {what}; there are {self._describe_header(free)}", remedy, line)
        _check_apart([name for name in texts if not is_image_column(name)], line)
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


def _check_parted(header: Sequence[str], line: int) -> None:
    """Raise ``FaultError`` where a header that was not parted into cells shows why."""
    if len(header) == 1 and "\t" in header[0]:
        raise FaultError("tabs between the cells", "give the file a name that ends in .tsv", line)
    if header[0].casefold().startswith("sep="):
        raise FaultError(f"{short(header[0])}, a line for a spreadsheet alone", "take it out", line)


def _check_apart(names: Sequence[str], line: int) -> None:
    """Raise ``FaultError`` where rules cannot tell two columns apart."""
    column_of: dict[str, str] = {}
    for name in names:
        other = column_of.setdefault(fold_text(clean_value(name)), name)
        if other is not name:
            what = f"columns {short(other)} and {short(name)}, which rules cannot tell apart"
            raise FaultError(what, "rename one, or name others in columns.texts", line)


def _explain(error: csv.Error, line: int, raw: bytes) -> tuple[str, str]:
    """What is wrong with the row that begins at ``line``, and the remedy; ``csv`` tells that by its words alone."""
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
# Numbers and dates come as such, not as they are shown: ``0.25`` of a cell that shows 25 %, ``2024-03-01`` of any date.

UNREADABLE = (OSError, ValueError, OverflowError, NotImplementedError)  # what readers raise beside errors of their own
MOST = 1 << 30  # bytes of a workbook, unpacked
AS_CSV = "save it as CSV (UTF-8), and name that file"
INSTALL = f"python -m pip install 'stageb[tables]', or {AS_CSV}"


def table_lines(path: str, kind: str) -> Iterator[tuple[int, bytes]]:
    """The lines of the table in the file ``path``, with their numbers from 1; of a sheet, its rows."""
    if not is_sheet(path):
        return lines(path, kind)
    with reading(kind), open_named(path):
        return _write_rows(_read_sheet(path) if path.lower().endswith(SHEETS) else _read_parquet(path))


def _read_sheet(path: str) -> Iterator[Iterable[Any]]:
    try:
        import python_calamine
    except ImportError:
        raise FaultError("a spreadsheet, which python-calamine reads", INSTALL) from None
    try:
        if _measure(path) > MOST:
            raise FaultError(f"a workbook of more than {MOST >> 20} MiB, unpacked", AS_CSV)
        with python_calamine.CalamineWorkbook.from_path(path) as book:
            sheets = {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in book.sheet_names}
    except (*UNREADABLE, zipfile.BadZipFile, python_calamine.CalamineError) as error:
        what = f"cannot be read as a spreadsheet: damaged, or not of the kind that its name says ({error})"
        raise FaultError(what, f"open it and save it again, or {AS_CSV}") from error
    filled = [name for name, rows in sheets.items() if rows]
    if len(filled) > 1:
        what = f"{len(filled)} sheets with something in them: {', '.join(map(short, filled))}"
        raise FaultError(what, f"keep one, or {AS_CSV}")
    return iter(sheets[filled[0]] if filled else [])


def _measure(path: str) -> int:
    """The bytes of a workbook, unpacked, of those that are archives."""
    if not zipfile.is_zipfile(path):
        return 0
    with zipfile.ZipFile(path) as archive:
        return sum(each.file_size for each in archive.infolist())


def _read_parquet(path: str) -> Iterator[Iterable[Any]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FaultError("a Parquet file, which pyarrow reads", INSTALL) from None
    try:
        with parquet.ParquetFile(path) as opened:
            names = opened.schema_arrow.names
            yield names
            for batch in opened.iter_batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except (*UNREADABLE, pyarrow.ArrowException) as error:
        raise FaultError(f"cannot be read as Parquet: {error}", AS_CSV) from error


def _write_rows(rows: Iterable[Iterable[Any]]) -> Iterator[tuple[int, bytes]]:
    for number, row in enumerate(rows, 1):
        line = io.StringIO()
        csv.writer(line, "excel-tab", lineterminator="\n").writerow([_write_cell(cell, number) for cell in row])
        yield number, line.getvalue().encode("utf-8", "surrogatepass")


def _write_cell(cell: Any, number: int) -> str:
    """How a table says what a cell holds."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return ""
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() else repr(cell)
    if isinstance(cell, list | dict | bytes):
        what = f"a cell that holds a {type(cell).__name__}: {short(str(cell))}"
        raise FaultError(what, "give it texts and numbers alone", number)
    return str(cell)
