"""What a person sees while a run goes on: a bar on a terminal, plain lines elsewhere. On standard error, rank 0 alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from stageb import launching
from stageb.errors import shown
from stageb.snake.config import START_LENGTH, SnakeConfig
from stageb.snake.schedule import Schedule

PAUSE_S = 10.0  # between two plain lines


class Progress:
    """Counts updates of this process's part of the run, and says how well games go."""

    def __init__(self, config: SnakeConfig, schedule: Schedule, done: int, last: Mapping[str, Any] | None) -> None:
        """``done`` updates lie behind, of which ``last`` is the row."""
        self._console = _console()
        self._config, self._schedule = config, schedule
        self._began, self._begun, self._said = time.monotonic(), done, 0.0
        self._row = done  # the update of the last row
        place = f"{config.output.root}/{config.output.run_name}"
        if last:
            self._console.print(f"{place}: going on after {done} of {schedule.updates} updates, {_figures(last, config)}")
        else:
            games = f"{schedule.all_games:,} games on {schedule.world_size} rank{'s' * (schedule.world_size > 1)}"
            self._console.print(f"{place}: {schedule.updates:,} updates from {schedule.steps:,} steps each, of {games}")
        self._bar = Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("updates"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            disable=not (self._console.is_terminal and config.log_level in ("info", "debug")),
        )
        self._task = self._bar.add_task("", total=schedule.updates, completed=done, figures="")
        self._bar.start()

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def recorded(self, row: Mapping[str, Any], steps_per_second: float) -> None:
        """A row was written; a plain line for it, unless the last one was just before."""
        figures = f"{_figures(row, self._config)}, {_short(steps_per_second)} steps/s"
        self._bar.update(self._task, completed=row["update"], figures=figures)
        now, self._row = time.monotonic(), row["update"]
        if self._config.log_level in ("warning", "error"):
            return
        if row["eval/games"] or (not self._console.is_terminal and now - self._said >= PAUSE_S):
            self._said = now
            left = (now - self._began) / (row["update"] - self._begun) * (self._schedule.updates - row["update"])
            self._console.print(f"update {row['update']}/{self._schedule.updates}: {figures}, {_clock(left)} left")

    def tells(self, text: str) -> None:
        """Something that is worth a line of its own."""
        self._console.print(text)

    def stops(self) -> None:
        """Somebody has pressed Ctrl-C, and is told what comes of it. In a thread of its own."""
        done, every = self._row - self._begun, self._config.runner.commit_every
        to_come = min(every - self._row % every, self._schedule.updates - self._row)
        about = f" (about {max(1, round((time.monotonic() - self._began) / done * to_come))} s)" if done else ""
        self._console.print(f"going on to the next commit{about}; Ctrl-C again stops at once")

    def stopped(self, update: int) -> None:
        """The run has stopped after ``update`` updates, as somebody asked: how to go on."""
        command = shown(launching.command_line())
        how = f"to go on:\n  {command}" if command else "the same command goes on"
        self._console.print(f"stopped after {update} of {self._schedule.updates} updates, all committed; {how}")

    def result(self, row: Mapping[str, Any]) -> None:
        """The run is over; ``row`` is its last."""
        _result(self._console, self._config, row)


def finished_already(config: SnakeConfig, row: Mapping[str, Any]) -> None:
    """Nothing is left to do for a run, whose last row is ``row``."""
    console = _console()
    console.print(f"{config.output.root}/{config.output.run_name}: finished already")
    _result(console, config, row)


def _result(console: Console, config: SnakeConfig, row: Mapping[str, Any]) -> None:
    most = config.game.cells - START_LENGTH
    console.print(
        f"after {_short(row['steps'])} steps, {row['eval/games']} games with the most probable actions: "
        f"{row['eval/score']:.1f} of {most} foods, {row['eval/win_rate']:.1%} won, {row['eval/cut_rate']:.1%} cut off"
    )


def _figures(row: Mapping[str, Any], config: SnakeConfig) -> str:
    """How well games went, in a few words."""
    if row["eval/games"]:
        return f"evaluated: {row['eval/score']:.1f} foods, {row['eval/win_rate']:.1%} won"
    if not row["games"]:
        return "no game ended"
    return f"{row['score']:.2f} of {config.game.cells - START_LENGTH} foods, {row['win_rate']:.1%} won"


def _short(number: float) -> str:
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:.3g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _console() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
