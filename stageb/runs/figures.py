"""Numbers as records hold them and as people read them: in words, in tables that commands print, as
curves."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

Z = 1.959964  # 97.5 % of a standard normal distribution lie below


def rounded(value: float | None) -> float | None:
    """Six significant digits, which are enough for a record; None for a value that is not
    finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def short(number: float) -> str:
    """Three digits and a unit: 1.23 M."""
    number = float(f"{number:.3g}")  # first, since 999.9 rounds to the next unit
    for limit, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g}"


def clock(seconds: float) -> str:
    """Hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """Wilson's 95 % interval for a share; all of it where nothing was tried.

    E. B. Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if not trials:
        return 0.0, 1.0
    share, scale = successes / trials, 1 + Z**2 / trials
    middle = (share + Z**2 / (2 * trials)) / scale
    half = Z * math.sqrt(share * (1 - share) / trials + Z**2 / (4 * trials**2)) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean of independent values, and half the width of its 95 % interval by Student's
    distribution.

    Its quantile by the expansion of Abramowitz & Stegun 1964, 26.7.5: good to 0.3 % from five
    values on. One value says nothing of it: infinite.
    """
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, math.inf
    freedom = count - 1
    quantile = Z + (Z**3 + Z) / (4 * freedom) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)
    quantile += (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * freedom**3)
    variance = sum((value - mean) ** 2 for value in values) / freedom
    return mean, quantile * math.sqrt(variance / count)


# What a command prints at its end, on standard output: plain text and tables, as wide as the
# terminal.
#
# A table is never cut: where the terminal is too narrow for its headings and figures, each row is
# told in words instead.

WIDTH = 1000  # where it goes to a file: as wide as it takes
GAP = 2  # between two columns


def make_console() -> Console:
    """Where it is printed, every text as it stands."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def make_table(title: str, names: Sequence[str], figures: Sequence[str], text: str = "") -> Table:
    """An empty table with columns of names, which may be cut, of figures, and perhaps one of
    ``text``, which may wrap."""
    from rich.table import Table

    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold"
    )
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=32)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    if text:
        table.add_column(text)
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table of ``make_table``, or in words where there is no room for it."""
    if sum(map(_find_least_width, table.columns)) + GAP * (len(table.columns) - 1) <= console.width:
        console.print(table)
        return
    for line in _tell_rows(table, console.width):
        console.print(line)


def _find_least_width(column: Column) -> int:
    """Cells that a column takes at least: all of its text, or the longest word where that wraps."""
    from rich.cells import cell_len

    texts = [str(cell) for cell in (column.header, *column.cells)]
    words = texts if column.no_wrap else [word for text in texts for word in text.split()]
    return min(max(map(cell_len, words), default=0), column.max_width or WIDTH)


def _tell_rows(table: Table, width: int) -> Iterator[str]:
    """The title; then for each row its names, and below them its figures, each behind its
    heading."""
    if table.title:
        yield str(table.title)
    named = next(place for place, column in enumerate(table.columns) if column.justify == "right")
    for cells in zip(*(column.cells for column in table.columns), strict=True):
        texts = [" ".join(str(cell).split()) for cell in cells]
        yield ", ".join(texts[:named])
        figures = [
            f"{column.header} {text}"
            for column, text in zip(table.columns, texts, strict=True)
            if text
        ][named:]
        yield from textwrap.wrap(
            ", ".join(figures), width, initial_indent="  ", subsequent_indent="  "
        )


# Learning curves: the rows of metrics.jsonl as a picture.

ACROSS = 3  # panels beside each other

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Curves:
    """The columns of a loop's rows that are drawn."""

    step: str  # the column that counts
    axis: str  # what it counts, for people
    panels: Sequence[tuple[str, str]]  # a column, and what it is for people
    # a panel's column -> that of the same apart from learning
    tested: Mapping[str, str] = field(default_factory=dict)
    apart: str = ""  # what "apart from learning" means here


def draw(runs: Sequence[Rows], curves: Curves, path: Path) -> None:
    """Draw a panel for each of ``curves``, as a PNG file: of a run, or of runs that counted alike
    their mean, in a band from the least to the most."""
    from matplotlib.figure import Figure

    down = -(-len(curves.panels) // ACROSS)
    figure = Figure(figsize=(12, 3.25 * down), layout="constrained")
    for place, (name, label) in enumerate(curves.panels, start=1):
        axes = figure.add_subplot(down, ACROSS, place)
        known = _list_known(runs, curves.step, name)
        axes.plot(
            list(known),
            [sum(values) / len(values) for values in known.values()],
            linewidth=1,
            label="while learning",
        )
        if len(runs) > 1:
            axes.fill_between(
                list(known),
                list(map(min, known.values())),
                list(map(max, known.values())),
                alpha=0.2,
            )
        if name in curves.tested:
            tested = _list_known(runs, curves.step, curves.tested[name])
            steps, values = (
                [at for at, each in tested.items() for _ in each],
                [one for each in tested.values() for one in each],
            )
            axes.plot(steps, values, "o", markersize=4, label=curves.apart)
            axes.legend(frameon=False, fontsize=8)
        axes.set_ylabel(label)
        axes.set_xlabel(curves.axis)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100, metadata={"Software": None})


def _list_known(runs: Sequence[Rows], step: str, name: str) -> dict[int, list[float]]:
    """The figures of runs in a column, by when they are known."""
    known = dict[int, list[float]]()
    for row in sorted(
        (row for rows in runs for row in rows if row.get(name) is not None),
        key=lambda row: int(row[step]),
    ):
        known.setdefault(row[step], []).append(row[name])
    return known
