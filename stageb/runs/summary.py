"""What a command prints at its end, on standard output: plain text and tables, as wide as the terminal.

A table is never cut: where the terminal is too narrow for its headings and figures, each row is told in words instead.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table

WIDTH = 1000  # where it goes to a file: as wide as it takes
GAP = 2  # between two columns


def make_console() -> Console:
    """Where it is printed, every text as it stands."""
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def make_table(title: str, names: Sequence[str], figures: Sequence[str], text: str = "") -> Table:
    """An empty table with columns of names, which may be cut, of figures, and perhaps one of ``text``, which may wrap."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=32)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    if text:
        table.add_column(text)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table of ``make_table``, or in words where there is no room for it."""
    if sum(map(_least_width, table.columns)) + GAP * (len(table.columns) - 1) <= console.width:
        console.print(table)
        return
    for line in _tell_rows(table, console.width):
        console.print(line)


def _least_width(column: Column) -> int:
    """Cells that a column takes at least: all of its text, or the longest word where that wraps."""
    texts = [str(cell) for cell in (column.header, *column.cells)]
    words = texts if column.no_wrap else [word for text in texts for word in text.split()]
    return min(max(map(cell_len, words), default=0), column.max_width or WIDTH)


def _tell_rows(table: Table, width: int) -> Iterator[str]:
    """The title; then for each row its names, and below them its figures, each behind its heading."""
    if table.title:
        yield str(table.title)
    named = next(place for place, column in enumerate(table.columns) if column.justify == "right")
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        texts = [" ".join(str(cell).split()) for cell in cells]
        yield ", ".join(texts[:named])
        figures = [f"{column.header} {text}" for column, text in zip(table.columns, texts, strict=True) if text][named:]
        yield from textwrap.wrap(", ".join(figures), width, initial_indent="  ", subsequent_indent="  ")
