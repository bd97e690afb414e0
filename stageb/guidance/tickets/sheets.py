"""Spreadsheets and Parquet files, as the lines of a table whose cells are parted by tabs (``tables.py``).

Numbers and dates come as such, not as they are shown: ``0.25`` of a cell that shows 25 %, ``2024-03-01`` of any date.
"""

from __future__ import annotations

import csv
import io
import math
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

from stageb.guidance.words.columns import SHEETS, is_sheet
from stageb.untrusted.strict_json import FaultError, lines, open_named, reading, short

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
