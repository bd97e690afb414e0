"""Tables of tickets by their columns, many rows at a time, for who judges millions.

Nothing here tells what is wrong with a row: whoever meets a ``FaultError`` reads the tickets one by
one, and tells them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from csv import field_size_limit
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import Any

from stageb.guidance.rules.fields import read_images
from stageb.guidance.rules.row_keys import Memo
from stageb.guidance.tickets.tables import TableReader, table_lines, write_rows
from stageb.guidance.tickets.tickets import KIND, check_name
from stageb.guidance.words.column_names import PARQUET, ColumnsConfig
from stageb.guidance.words.texts import label_fault
from stageb.guidance.words.types import UNKNOWN, Ticket
from stageb.untrusted.strict_json import FaultError, open_named, reading
from stageb.untrusted.workbook import MOST_ROWS, read_parquet

Cells = Sequence[Sequence[str]]
"""The cells of rows by column."""


@dataclass(frozen=True, slots=True)
class ColumnarBatch:
    """Rows of one table, each at its place in all of these."""

    file: str  # as the user named it
    lines: Sequence[int]  # from 1
    missions: Sequence[str]
    group_ids: Sequence[str]  # empty where nobody asked for the names of rows
    labels: Sequence[str | None]  # where the file tells
    fields: Mapping[str, Sequence[str]]  # by the names that rules know; empty where a row lacks one

    def __getitem__(self, rows: slice) -> ColumnarBatch:
        return ColumnarBatch(
            self.file,
            self.lines[rows],
            self.missions[rows],
            self.group_ids[rows],
            self.labels[rows],
            {name: values[rows] for name, values in self.fields.items()},
        )

    def name_all(self) -> Iterator[dict[str, Any]]:
        """Name each row, and where it stands."""
        file = self.file
        for line, mission, name, label in zip(
            self.lines, self.missions, self.group_ids, self.labels, strict=True
        ):
            yield {"file": file, "line": line, "mission": mission, "group_id": name, "label": label}

    def ticket(self, place: int) -> Ticket:
        """The ticket in one of its rows, without its name and its label."""
        shown, content = read_images(
            [], {name: values[place] for name, values in self.fields.items()}
        )
        return Ticket(
            self.missions[place], "", UNKNOWN, tuple(shown) or (("image_1", ""),), content=content
        )


def has_columns(files: Sequence[str], columns: ColumnsConfig) -> bool:
    """Whether all ``files`` are tables of many rows whose columns are fields each, as far as their
    headers tell."""
    try:
        return all(
            file.lower().endswith((".csv", ".tsv", *PARQUET))
            and not _open_table(file, columns)[0].has_images
            for file in files
        )
    except FaultError:
        return False


def read_batches(
    files: Sequence[str], columns: ColumnsConfig, is_named: bool = True
) -> Iterator[ColumnarBatch]:
    """The rows of tables that have something in them, in order; ``is_named``: with the names of
    those that no column names, which takes time. Raises ``FaultError`` where anything is wrong."""
    for file in files:
        table, parts = _open_table(file, columns)
        is_empty = True
        for lines, cells in parts:
            is_empty = False
            said, fields = table.read_columns(cells)
            names = table.watch(lines, cells, is_named)
            for mission in {*said["mission"]}:
                check_name(mission, "mission")
            for name in {*said["group_id"]} if "group_id" in said else ():
                check_name(name, "group_id")
            labels = said.get("label", [None] * len(lines))
            if any(label is not None and label_fault(label) for label in {*labels}):
                raise FaultError("a label", "")
            yield ColumnarBatch(
                file, lines, said["mission"], said.get("group_id", names), labels, fields
            )
        if is_empty:
            raise FaultError("no rows", "")
        table.check()


def _open_table(
    path: str, columns: ColumnsConfig
) -> tuple[TableReader, Iterator[tuple[Sequence[int], Cells]]]:
    """A table, its header read, and its rows by column, each part with its lines. Raises
    ``FaultError``."""
    if not path.lower().endswith(PARQUET):
        table = TableReader(table_lines(path, KIND, columns.sheet), columns, path, labelled=False)
        return table, _gather_rows(table)
    with reading(KIND), open_named(path):
        batches = read_parquet(path)
    head = [*islice(batches, 2)]  # the header, and rows below it
    lines = write_rows(chain.from_iterable(zip(*some, strict=True) for some in head))
    return TableReader(lines, columns, path, labelled=False), _number_rows(chain(head[1:], batches))


def _gather_rows(table: TableReader) -> Iterator[tuple[Sequence[int], Cells]]:
    for rows in table.parts(MOST_ROWS):
        if any(len(row.cells) != len(table.header) for row in rows):
            raise FaultError("rows of different lengths", "")
        yield [row.line for row in rows], [*zip(*(row.cells for row in rows), strict=True)]


def _number_rows(parts: Iterable[Cells]) -> Iterator[tuple[Sequence[int], Cells]]:
    """Parts of a Parquet file without rows in which nothing stands, with their lines: its header is
    line 1."""
    line, has_text = 2, Memo[str, str](str.strip)
    for cells in parts:
        lines: Sequence[int] = range(line, line := line + len(cells[0]))
        if any(len(cell) > field_size_limit() for column in cells for cell in {*column}):
            raise FaultError("a long cell", "")
        if not any(all(map(has_text.__getitem__, column)) for column in cells):
            filled = [
                *map(
                    any, zip(*(map(has_text.__getitem__, column) for column in cells), strict=True)
                )
            ]
            lines = [*compress(lines, filled)]
            cells = [[*compress(column, filled)] for column in cells]
        if lines:
            yield lines, cells
