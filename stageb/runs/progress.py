"""The terminal of a run, on standard error of rank 0: its progress, and the messages of libraries
and warnings."""

from __future__ import annotations

import logging
import os
import time
import warnings

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from stageb.config import Level, OutputConfig
from stageb.job import lifetime
from stageb.runs.figures import clock

# What reaches the terminal beside what a loop says itself: Python's warnings, records of loggers,
# libraries' included.
#
# A library's warning is shown where a user may be able to act on it. Notes that one developer
# writes to another (deprecations, coming changes), and what a rank beside rank 0 would say once
# more, are shown at level debug alone.

SPEAKERS = (
    "lightning",
    "lightning.fabric",
    "lightning.pytorch",
    "lightning_fabric",
    "stageb",
    "torch",
    "transformers",
)


def set_log_level(level: Level) -> None:
    """From now on this process says what is of ``level`` or worse."""
    if level == "debug":
        logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.DEBUG)
        return
    least = "error" if level == "error" or not lifetime.leads() else "warning"
    for name in SPEAKERS:
        logging.getLogger(name).setLevel(least.upper())
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", least)  # which it asks as it is imported
    for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
        warnings.simplefilter("ignore", category)
    if least == "error":
        warnings.simplefilter("ignore")


PAUSE_S = 10.0  # between two plain lines


class Progress:
    """Counts the updates, or whatever the run counts, of this process's part of it, and says how it
    goes."""

    def __init__(self, opening: str, unit: str, total: int, done: int, level: Level) -> None:
        """``opening`` is the first line; the run goes up to ``total`` of its ``unit`` ("update",
        "step"), this process from ``done`` on."""
        self._console, self._unit, self._total, self._first, self._level = (
            console(),
            unit,
            total,
            done,
            level,
        )
        self._began, self._said = time.monotonic(), 0.0
        self._console.print(opening)
        self._bar = Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(f"{unit}s"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            disable=not (self._console.is_terminal and level in ("info", "debug")),
        )
        self._task = self._bar.add_task("", total=total, completed=done, figures="")
        self._bar.start()

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def show_row(self, done: int, figures: str, worth_a_line: bool, line: str = "") -> None:
        """A row was written after ``done`` updates; a plain line for it, unless the last one was
        just before.

        ``figures`` stand beside the bar, and in the plain line too unless ``line`` is to stand
        there.
        """
        self._bar.update(self._task, completed=done, figures=figures)
        now = time.monotonic()
        if self._level in ("warning", "error"):
            return
        if worth_a_line or (not self._console.is_terminal and now - self._said >= PAUSE_S):
            self._said = now
            left = (now - self._began) / (done - self._first) * (self._total - done)
            self._console.print(
                f"{self._unit} {done}/{self._total}: {line or figures}, {clock(left)} left"
            )

    def tells(self, text: str) -> None:
        """Something that is worth a line of its own."""
        self._console.print(text)


def say_finished(output: OutputConfig, result: str = "") -> None:
    """Nothing is left to do for a run, which came to ``result``."""
    said = console()
    said.print(f"{output}: already finished")
    if result:
        said.print(result)


def console() -> Console:
    """Where all of it is said."""
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)


# What a person sees while tickets are judged, or images looked at: a bar on a terminal, a line now
# and then elsewhere. On standard error, rank 0 alone.

EVERY_S = 10.0  # between two lines where there is no terminal


class ItemProgress:
    """Counts the items that one output is of."""

    def __init__(self, what: str, unit: str, total: int, done: int, begun: int = 0) -> None:
        """``unit`` is what items are called, in the plural; ``begun`` of them are done beside
        ``done``, of the round in progress."""
        self._console = console()
        self._what, self._unit, self._total, self._done, self._first = (
            what,
            unit,
            total,
            done,
            done + begun,
        )
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
            self._console.print(
                f"{self._what}: {done:,} of {self._total:,} {self._unit}, {self._rate(done)}"
            )

    def advance(self, items: int) -> None:
        """A round of so many ``items`` is committed."""
        self._done += items
        self.show(0)

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def _rate(self, done: int) -> str:
        return (
            f"{(done - self._first) / max(1e-6, time.monotonic() - self._began):,.1f} "
            f"{self._unit}/s"
        )
