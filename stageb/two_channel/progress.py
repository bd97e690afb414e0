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
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.schedule import Schedule

PAUSE_S = 10.0  # between two plain lines


class Progress:
    """Counts steps of this process's part of the run, and says how well answers go."""

    def __init__(self, config: TwoChannelConfig, schedule: Schedule, done: int, last: Mapping[str, Any] | None) -> None:
        """``done`` steps lie behind, of which ``last`` is the row."""
        self._console = _console()
        self._config, self._schedule = config, schedule
        self._began, self._begun, self._said = time.monotonic(), done, 0.0
        self._row = done  # the step of the last row
        self._found = ""  # what the last rollouts came to
        place = f"{config.output.root}/{config.output.run_name}"
        if last:
            self._console.print(f"{place}: going on after {done} of {schedule.steps} steps")
        else:
            images = f"{schedule.samples:,} images, channels {' '.join(config.schedule.pattern)}"
            self._console.print(f"{place}: {schedule.steps:,} steps over {images}")
        self._bar = Bar(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}", markup=False),
            console=self._console,
            transient=True,
            disable=not (self._console.is_terminal and config.log_level in ("info", "debug")),
        )
        self._task = self._bar.add_task("", total=schedule.steps, completed=done, figures="")
        self._bar.start()

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def recorded(self, row: Mapping[str, Any], seconds: float) -> None:
        """A row was written, after so many ``seconds``; a plain line for it, unless the last one was just before."""
        if "rollout/f1" in row:
            self._found = f", rollouts F1 {row['rollout/f1']:.2f}"
        figures = f"loss {_losses(row)}{self._found}"
        self._bar.update(self._task, completed=row["step"], figures=figures)
        now, self._row = time.monotonic(), row["step"]
        if self._config.log_level in ("warning", "error"):
            return
        if "eval/mAP" in row:
            figures = f"evaluated: {_tested(row)}"
        if "eval/mAP" in row or (not self._console.is_terminal and now - self._said >= PAUSE_S):
            self._said = now
            left = (now - self._began) / (row["step"] - self._begun) * (self._schedule.steps - row["step"])
            self._console.print(
                f"step {row['step']}/{self._schedule.steps}: {figures}, {seconds:.2f} s, {_clock(left)} left"
            )

    def tells(self, text: str) -> None:
        """Something that is worth a line of its own."""
        self._console.print(text)

    def stops(self) -> None:
        """Somebody has pressed Ctrl-C, and is told what comes of it. In a thread of its own."""
        done, every = self._row - self._begun, self._config.schedule.commit_every
        to_come = min(every - self._row % every, self._schedule.steps - self._row)
        about = f" (about {max(1, round((time.monotonic() - self._began) / done * to_come))} s)" if done else ""
        self._console.print(f"going on to the next commit{about}; Ctrl-C again stops at once")

    def stopped(self, step: int) -> None:
        """The run has stopped after ``step`` steps, as somebody asked: how to go on."""
        command = shown(launching.command_line())
        how = f"to go on:\n  {command}" if command else "the same command goes on"
        self._console.print(f"stopped after {step} of {self._schedule.steps} steps, all committed; {how}")

    def result(self, row: Mapping[str, Any]) -> None:
        """The run is over; ``row`` is its last."""
        _result(self._console, self._config, row)


def finished_already(config: TwoChannelConfig, row: Mapping[str, Any]) -> None:
    """Nothing is left to do for a run, whose last row is ``row``."""
    console = _console()
    console.print(f"{config.output.root}/{config.output.run_name}: finished already")
    _result(console, config, row)


def _result(console: Console, config: TwoChannelConfig, row: Mapping[str, Any]) -> None:
    place = f"{config.output.root}/{config.output.run_name}/model"
    tested = f"; on the test images {_tested(row)}" if "eval/mAP" in row else ""
    console.print(f"{row['step']} steps, {row['epoch']:.1f} times through the data{tested}; the checkpoint: {place}")


def _tested(row: Mapping[str, Any]) -> str:
    return f"mAP {row['eval/mAP']:.3f}, mAP50 {row['eval/mAP50']:.3f}, F1 {row['eval/f1_50']:.3f}"


def _losses(row: Mapping[str, Any]) -> str:
    """The loss, such as it is: text and coordinates."""
    shown = (row["loss/text"], row["loss/coordinates"])
    return " + ".join("none" if value is None else f"{value:.3f}" for value in shown)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _console() -> Console:
    return Console(stderr=True, soft_wrap=True, highlight=False, markup=False, emoji=False)
