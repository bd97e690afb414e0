"""What a person sees while tickets are judged, or images looked at: a bar on a terminal, a line now and then elsewhere. On
standard error, rank 0 alone."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from stageb.runs.progress import console

EVERY_S = 10.0  # between two lines where there is no terminal


class ItemProgress:
    """Counts the items that one output is of."""

    def __init__(self, what: str, unit: str, total: int, done: int, begun: int = 0) -> None:
        """``unit`` is what items are called, in the plural; ``begun`` of them are done beside ``done``, of the round in
        progress."""
        self._console = console()
        self._what, self._unit, self._total, self._done, self._first = what, unit, total, done, done + begun
        self._began = self._told = time.monotonic()
        if self._first:
            self._console.print(f"{what}: resuming after {self._first:,} of {total:,} {unit}")
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task(what, total=total, completed=self._first, rate="")
        self._bar.start()

    def show(self, items: int) -> None:
        """So many ``items`` of the round in progress are done."""
        done = self._done + items
        self._bar.update(self._task, completed=done, rate=self._rate(done))
        if not self._console.is_terminal and time.monotonic() - self._told >= EVERY_S:
            self._told = time.monotonic()
            self._console.print(f"{self._what}: {done:,} of {self._total:,} {self._unit}, {self._rate(done)}")

    def advance(self, items: int) -> None:
        """A round of so many ``items`` is committed."""
        self._done += items
        self.show(0)

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def _rate(self, done: int) -> str:
        return f"{(done - self._first) / max(1e-6, time.monotonic() - self._began):,.1f} {self._unit}/s"
