"""A ticket file written anew, which equals the old one but for the words of some labels."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

from stageb.guidance.tickets.tables import TableReader, table_lines
from stageb.guidance.tickets.tickets import KIND, reporting
from stageb.guidance.words.column_names import ColumnsConfig, is_sheet, is_table
from stageb.store import disk
from stageb.untrusted.strict_json import FaultError
from stageb.untrusted.workbook import replace_cells

WORKBOOKS = (".xlsx", ".xlsm")


def write_corrected(
    path: str, columns: ColumnsConfig, words: Mapping[int, str], output: Path
) -> None:
    """Write the ticket file ``path`` to ``output``, of a kind that ``list_suffixes`` lists, with
    other ``words`` for the labels of the tickets that begin at some lines. Raises
    ``BadInputError``."""
    is_workbook = output.suffix.lower() in WORKBOOKS
    (write_workbook if is_workbook else _write_text)(path, columns, words, output)


def list_suffixes(path: str) -> list[str]:
    """List the kinds of file that a ticket file can be written as, first what is nearest to it."""
    own = Path(path).suffix.lower()
    return [*([own] if own in WORKBOOKS else []), ".csv", ".tsv"] if is_sheet(path) else [own]


def write_workbook(
    path: str, columns: ColumnsConfig, words: Mapping[int, str], output: Path
) -> None:
    """Write a workbook anew with other words for the labels in some rows; all else stays. Raises
    ``BadInputError`` where not just these rows would be read otherwise then."""
    with reporting(path):
        rows = [raw for _, raw in table_lines(path, KIND, columns.sheet)]
        place = TableReader(iter(enumerate(rows, 1)), columns, path, labelled=True).header.index(
            columns.label
        )
        data = replace_cells(
            path, columns.sheet, {(line - 1, place): word for line, word in words.items()}
        )
        wanted = {number: raw for number, raw in enumerate(rows, 1) if number not in words}

        def write(beside: Path) -> None:
            beside.write_bytes(data)
            found = dict(table_lines(str(beside), KIND, columns.sheet))
            labels = {
                line: next(csv.reader([found[line].decode()], "excel-tab"))[place]
                for line in words.keys() & found.keys()
            }
            if {
                number: raw for number, raw in found.items() if number not in words
            } != wanted or labels != words:
                raise FaultError(
                    "its labels cannot be replaced alone (merged cells?)",
                    "name a .csv file with --output",
                )

        disk.write(output, write, "nothing else")


def _write_text(path: str, columns: ColumnsConfig, words: Mapping[int, str], output: Path) -> None:
    data = b"".join(_write_lines(path, columns, words))
    if is_sheet(path) and output.suffix.lower() == ".csv":
        text = io.StringIO(newline="")
        csv.writer(text).writerows(
            csv.reader(io.StringIO(data.decode(), newline=""), delimiter="\t")
        )
        data = text.getvalue().encode()
    disk.write(output, lambda beside: beside.write_bytes(data), "nothing else")


def _write_lines(path: str, columns: ColumnsConfig, words: Mapping[int, str]) -> list[bytes]:
    """Return the lines of a ticket file, with other words for the labels of those that begin at
    some lines."""
    lines = (
        [raw for _, raw in table_lines(path, KIND, columns.sheet)]
        if is_sheet(path)
        else [*io.BytesIO(Path(path).read_bytes())]
    )
    if is_table(path):
        table = TableReader(table_lines(path, KIND, columns.sheet), columns, path, labelled=True)
        for row in table.rows():
            if row.line in words:
                cells = [*row.cells]
                cells[table.header.index(columns.label)] = words[row.line]
                _replace(lines, row.line, row.raw.count(b"\n") + 1, table.write_row(cells))
    else:
        for line, word in words.items():
            said = json.loads(lines[line - 1].removeprefix(codecs.BOM_UTF8))
            _replace(lines, line, 1, json.dumps({**said, "label": word}, ensure_ascii=False))
    return lines


def _replace(lines: list[bytes], line: int, count: int, text: str) -> None:
    """Put ``text`` in the place of so many lines from ``line`` on; the others keep theirs."""
    last = lines[line + count - 2]
    end = last[len(last.rstrip(b"\r\n")) :]
    lines[line - 1 : line - 1 + count] = [disk.encode(text) + end, *[b""] * (count - 1)]
