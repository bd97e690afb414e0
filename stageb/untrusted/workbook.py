"""Spreadsheets and Parquet files that others made, as rows of texts.

Numbers and dates come as such, not as they are shown: ``0.25`` of a cell that shows 25 %,
``2024-03-01`` of any date, and a length of time in hours. Every cell of a merged range says what
the range shows.

A spreadsheet of a few bytes may name a cell in row 4,000,000,000, for which its reader makes room,
or a text that it does not hold, at which the reader panics, as no ``Exception`` of Python's. So
this file is also a program, which reads a spreadsheet in a process of its own with limits, and
writes a row a line.

What such a process could read may be written anew with other texts in some cells, and all else as
it was.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import resource
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from stageb.untrusted.strict_json import FaultError, short

# what readers raise beside errors of their own
UNREADABLE = (OSError, ValueError, OverflowError, NotImplementedError)
MOST_BYTES = 1 << 30  # bytes of a workbook, unpacked
MOST_MEMORY = 4 << 30  # bytes of the process that reads it
MOST_SECONDS = 300  # that this computes
AS_CSV = "save it as CSV (UTF-8), and name that file"
INSTALL = f"python -m pip install 'stageb[tables]', or {AS_CSV}"
DAMAGED = "cannot be read as a spreadsheet: damaged, or not of the kind that its name says"
SAVE = f"open it and save it again, or {AS_CSV}"
# no character of Unicode's: begins a cell that cannot be read, before what it holds and the remedy
MARK = "\ufdd0"
SHOWN = 8  # names of sheets in a message
MOST_ROWS = 1 << 14  # that are read at once

Rows = list[list[Any]]
# the first and the last cell of a merged range, by row and column from 0
Area = tuple[tuple[int, int], tuple[int, int]]


def read_workbook(path: str, sheet: str | None) -> Iterator[list[str]]:
    """The rows of the ``sheet`` of that name; with None, of the only one that is filled and not
    hidden. Raises ``FaultError``."""
    command = [sys.executable, "-P", "-m", __name__, path, *([sheet] if sheet is not None else [])]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=found
    ) as reader:
        assert reader.stdout is not None
        for line in reader.stdout:
            said = json.loads(line)
            if isinstance(said, dict):
                raise FaultError(said["what"], said["remedy"], said["line"])
            yield said
    if reader.returncode:
        limits = f"more than {MOST_MEMORY >> 30} GiB of memory or {MOST_SECONDS // 60} minutes"
        raise FaultError(f"{DAMAGED} (its reader gave up, or needs {limits})", SAVE)


def replace_cells(path: str, sheet: str | None, texts: Mapping[tuple[int, int], str]) -> bytes:
    """An ``.xlsx`` workbook that ``read_workbook`` has read, with other ``texts`` in some cells of
    the sheet, by row and column from 0; formats, formulas and other sheets stay. Raises
    ``FaultError``."""
    import python_calamine as calamine

    with calamine.CalamineWorkbook.from_path(path) as book:
        name = _choose_sheet(book, sheet, calamine)
    written = io.BytesIO()
    with (
        zipfile.ZipFile(path) as archive,
        zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as copy,
    ):
        part = _find_part(archive, name or "")
        for entry in archive.infolist():
            data = archive.read(entry)
            copy.writestr(entry, _put_texts(data, texts) if entry.filename == part else data)
    return written.getvalue()


def read_parquet(path: str) -> Iterator[Sequence[Sequence[str]]]:
    """The columns of a Parquet file, ``MOST_ROWS`` of its rows at a time at most, behind the names
    of all. Raises ``FaultError``."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FaultError("a Parquet file, which pyarrow reads", INSTALL) from None
    try:
        with parquet.ParquetFile(path) as opened:
            yield [[name] for name in opened.schema_arrow.names]
            for batch in opened.iter_batches(MOST_ROWS):
                yield [_write_column(column, pyarrow) for column in batch.columns]
    except (*UNREADABLE, pyarrow.ArrowException) as error:
        raise FaultError(f"cannot be read as Parquet: {error}", AS_CSV) from error


def _write_column(column: Any, pyarrow: Any) -> Sequence[str]:
    """What the cells of a column hold, each value that differs written once."""
    try:
        values = column.dictionary_encode()
    except pyarrow.ArrowNotImplementedError:  # of lists and objects
        return list(map(write_value, column.to_pylist()))
    texts = [*map(write_value, values.dictionary.to_pylist()), write_value(None)]
    return [texts[place] for place in values.indices.fill_null(len(texts) - 1).to_pylist()]


def write_value(value: Any) -> str:
    """How a table says what a cell holds."""
    if type(value) is str:
        return value.removeprefix(MARK)
    if value is None or value != value:  # NaN
        return ""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, datetime.timedelta):
        return write_value(value / datetime.timedelta(hours=1))
    if isinstance(value, list | dict | bytes):
        return mark_unreadable(
            f"a {type(value).__name__}: {short(str(value))}", "give it texts and numbers alone"
        )
    return str(value).removeprefix(MARK)


def mark_unreadable(what: str, remedy: str) -> str:
    """The cell that stands for one which cannot be read, a fault only where its column is asked
    for."""
    return f"{MARK}{what}{MARK}{remedy}"


# In a process of its own --------------------------------------------------------------------------


def _serve(path: str, sheet: str | None = None) -> None:
    """Write the rows of a sheet, or what is wrong, to standard output."""
    with suppress(ValueError, OSError):  # where a system has no such limits
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    try:
        rows: Iterable[Any] = _read_sheet(path, sheet)
    except FaultError as fault:
        rows = [{"what": fault.what, "remedy": fault.remedy, "line": fault.line}]
    sys.stdout.writelines(f"{json.dumps(row)}\n" for row in rows)


def _read_sheet(path: str, sheet: str | None) -> Rows:
    try:
        import python_calamine as calamine
    except ImportError:
        raise FaultError("a spreadsheet, which python-calamine reads", INSTALL) from None
    try:
        if zipfile.is_zipfile(path) and _measure(path) > MOST_BYTES:
            raise FaultError(f"a workbook of more than {MOST_BYTES >> 20} MiB, unpacked", AS_CSV)
        with calamine.CalamineWorkbook.from_path(path) as book:
            name = _choose_sheet(book, sheet, calamine)
            if name is None:
                return []
            found = book.get_sheet_by_name(name)
            rows: Rows = found.to_python(skip_empty_area=False)
            merged: Sequence[Area] = found.merged_cell_ranges or ()
        for row, column in _find_uncomputed(path, name):
            if row < len(rows) and column < len(rows[row]) and rows[row][column] == "":
                rows[row][column] = mark_unreadable(
                    "a formula that was never computed", f"in a spreadsheet, {SAVE}"
                )
    except (
        *UNREADABLE,
        zipfile.BadZipFile,
        ElementTree.ParseError,
        calamine.CalamineError,
    ) as error:
        raise FaultError(f"{DAMAGED} ({error})", SAVE) from error
    _check_header(rows, merged)
    _fill_merged(rows, merged)
    return [
        [
            cell if isinstance(cell, str) and cell.startswith(MARK) else write_value(cell)
            for cell in row
        ]
        for row in rows
    ]


def _measure(path: str) -> int:
    """The bytes of an archive, unpacked."""
    with zipfile.ZipFile(path) as archive:
        return sum(each.file_size for each in archive.infolist())


def _choose_sheet(book: Any, wanted: str | None, calamine: Any) -> str | None:
    """The name of the sheet that is wanted, or else of the only one that is filled and not hidden;
    None where none is filled at all."""
    sheet = calamine.SheetTypeEnum.WorkSheet
    kinds: dict[str, Any] = {each.name: each for each in book.sheets_metadata if each.typ == sheet}
    if wanted in kinds:
        return wanted
    if wanted is None and len(kinds) == 1:
        return next(iter(kinds))
    filled = [name for name in kinds if book.get_sheet_by_name(name).to_python(nrows=1)]
    shown = [name for name in filled if kinds[name].visible == calamine.SheetVisibleEnum.Visible]
    if wanted is None and (len(shown) == 1 or not filled):
        return shown[0] if shown else None
    told = [f"{short(name)}{' (hidden)' * (name not in shown)}" for name in filled or kinds]
    listed = ", ".join(told[:SHOWN]) + f" and {len(told) - SHOWN} more" * (len(told) > SHOWN)
    what = f"{len(filled)} sheets with something in them: {listed}"
    if wanted is not None:
        what = f"no sheet {short(wanted)}; there {'are' if len(told) > 1 else 'is'} {listed}"
    elif len(filled) == 1:
        what = f"its only sheet with something in it is hidden: {listed}"
    raise FaultError(what, f"name one by columns.sheet (stageb new: --sheet), or {AS_CSV}")


def _check_header(rows: Rows, merged: Sequence[Area]) -> None:
    """Raise ``FaultError`` for a first row in which one cell of several is merged: one name stands
    for many columns, or names go on below."""
    first = next((number for number, row in enumerate(rows) if any(cell != "" for cell in row)), 0)
    for (top, left), last in merged:
        if (
            top == first < len(rows)
            and left < len(rows[first])
            and len({cell for cell in rows[first] if cell != ""}) > 1
        ):
            what = f"the header has merged cells, such as {short(str(rows[first][left]))}"
            what += f", which reaches down to row {last[0] + 1}" * (last[0] > top)
            raise FaultError(what, "give each column a name of its own in one row", first + 1)


def _fill_merged(rows: Rows, merged: Sequence[Area]) -> None:
    """Give every cell of a merged range what the first one holds. Raises ``FaultError``."""
    room = sum(map(len, rows))
    for (top, left), (bottom, right) in merged:
        inside = rows[top : bottom + 1]
        width = min(right + 1, len(inside[0]) if inside else 0) - left
        room -= len(inside) * max(0, width)
        if room < 0:  # each of a million may be as large as the sheet
            raise FaultError(f"{DAMAGED} (merged cells overlap)", SAVE)
        for row in inside if width > 0 else ():
            row[left : left + width] = [inside[0][left]] * width


_CELL = re.compile(  # of a formula without a result; a text that it made may be empty
    rb"<(?:\w+:)?c\b([^>]*)>\s*<(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>\s*|<(?:\w+:)?v>\s*</(?:\w+:)?v>\s*)?</(?:\w+:)?c>"
)
_PLACE = re.compile(rb'\br="([A-Z]{1,3})(\d{1,7})"')
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


def _find_uncomputed(path: str, sheet: str) -> Iterator[tuple[int, int]]:
    """The rows and columns, from 0, of formulas that no program has computed yet, as programs that
    write sheets leave them: their cells would count as empty."""
    if not path.lower().endswith((".xlsx", ".xlsm")):
        return
    with zipfile.ZipFile(path) as archive:
        part = _find_part(archive, sheet)
        text = archive.read(part) if part else b""
    for found in _CELL.finditer(text):
        place = _read_place(found[1])
        if place and b't="str"' not in found[1]:
            yield place


def _find_part(archive: zipfile.ZipFile, sheet: str) -> str:
    """The name of the file that holds a sheet's cells; empty where a workbook is laid out in
    another way."""
    try:
        book, links = (ElementTree.fromstring(archive.read(f"xl/{part}")) for part in _PARTS)
        link = next(
            each.get(_RELATION)
            for each in book.iter()
            if each.get("name") == sheet and each.get(_RELATION)
        )
        target = next(each.get("Target", "") for each in links.iter() if each.get("Id") == link)
        return archive.getinfo(str(PurePosixPath("/xl", target)).removeprefix("/")).filename
    except (KeyError, StopIteration):
        return ""


def _read_place(attributes: bytes) -> tuple[int, int] | None:
    """The row and column, from 0, that a cell says it is in, if it does."""
    place = _PLACE.search(attributes)
    if not place:
        return None
    column = 0
    for letter in place[1]:
        column = 26 * column + letter - 64
    return int(place[2]) - 1, column - 1


_ROW_OR_CELL = re.compile(
    rb"<(?:\w+:)?row\b([^>]*)>|<(?P<prefix>(?:\w+:)?)c\b(?P<said>[^>]*?)(?:/>|>.*?</(?P=prefix)c>)",
    re.DOTALL,
)


def _put_texts(data: bytes, texts: Mapping[tuple[int, int], str]) -> bytes:
    """The cells of a sheet with ``texts`` in the place of what some of them hold."""
    row, column = -1, -1

    def put(found: re.Match[bytes]) -> bytes:
        nonlocal row, column
        if found["said"] is None:
            number = re.search(rb'\br="(\d{1,7})"', found[1])
            row, column = int(number[1]) - 1 if number else row + 1, -1
            return found[0]
        row, column = _read_place(found["said"]) or (row, column + 1)
        if (row, column) not in texts:
            return found[0]
        kept = re.sub(rb'\s+t="\w*"', b"", found["said"]).rstrip()
        text, colon = escape(texts[row, column]).encode(), found["prefix"]
        inside = b'<%bis><%bt xml:space="preserve">%b</%bt></%bis>' % (
            colon,
            colon,
            text,
            colon,
            colon,
        )
        return b'<%bc%b t="inlineStr">%b</%bc>' % (colon, kept, inside, colon)

    return _ROW_OR_CELL.sub(put, data)


_PARTS = ("workbook.xml", "_rels/workbook.xml.rels")

if __name__ == "__main__":
    _serve(*sys.argv[1:])
