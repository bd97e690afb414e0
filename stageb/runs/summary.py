"""What a command prints at its end, on standard output: plain text and tables, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

WIDTH = 120  # where it goes to a file


def make_console() -> Console:
    """Where it is printed, every text as it stands."""
    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def make_table(title: str, names: Sequence[str], figures: Sequence[str]) -> Table:
    """An empty table with columns of names, which may be cut, and of figures."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=32)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    return table
