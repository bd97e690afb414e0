"""What a person sees while tickets are judged: a bar on a terminal, a line now and then elsewhere. On standard error, rank 0
alone."""

from __future__ import annotations

import time

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from stageb.runs.progress import console

EVERY_S = 30.0  # between two lines where there is no terminal


class TicketProgress:
    """Counts the tickets of one file."""

    def __init__(self, what: str, total: int, done: int) -> None:
        self._console = console()
        self._what, self._total, self._done, self._first = what, total, done, done
        self._began = self._told = time.monotonic()
        if done:
            self._console.print(f"{what}: going on after {done:,} of {total:,} tickets")
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
        self._task = self._bar.add_task(what, total=total, completed=done, rate="")
        self._bar.start()

    def show(self, tickets: int) -> None:
        """So many ``tickets`` of the round in progress are judged."""
        done = self._done + tickets
        self._bar.update(self._task, completed=done, rate=self._rate(done))
        if not self._console.is_terminal and time.monotonic() - self._told >= EVERY_S:
            self._told = time.monotonic()
            self._console.print(f"{self._what}: {done:,} of {self._total:,} tickets, {self._rate(done)}")

    def advance(self, tickets: int) -> None:
        """A round of so many ``tickets`` is committed."""
        self._done += tickets
        self.show(0)

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def _rate(self, done: int) -> str:
        return f"{(done - self._first) / max(1e-6, time.monotonic() - self._began):,.1f} tickets/s"
