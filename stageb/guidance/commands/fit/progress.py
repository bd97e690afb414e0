"""The progress of a run for people, on standard error of rank 0: a forecast, a bar on a terminal,
plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from stageb.config import Level
from stageb.guidance.commands.fit.forecast import describe_inputs, forecast
from stageb.guidance.commands.fit.inputs import Inputs
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.attempts import (
    Attempts,
    describe_reflection,
    list_attempts,
    name_reflection,
)
from stageb.guidance.learning.reflection_file import REFLECTION, ReflectionRow, parse_row
from stageb.guidance.learning.schedule import JUDGED, LEARNT, GuidanceSchedule
from stageb.guidance.learning.state import State, Tally
from stageb.guidance.rules.word_lists import shorten_list
from stageb.guidance.words.costs import EQUAL
from stageb.guidance.words.types import NOWHERE, Guidance, Place, Round
from stageb.runs.figures import clock
from stageb.runs.progress import console
from stageb.store.journal import safe_name

# How long a run may still take, said only once that no longer jumps.
#
# What a train ticket takes, with all that reflection and gate make of it, is another figure than
# what a ticket takes that is judged alone. So each kind has its own pace, and nothing is said
# before both are known that are still to come.

AGREEING = 3  # estimates in a row of when a run ends
SPREAD = 1 / 3  # of the time left, by which these may differ; but for ``LEAST_SPREAD`` at the least
LEAST_SPREAD = 60.0  # seconds


@dataclass(slots=True)
class Pace:
    """Seconds by kind of ticket, and what they say of the rest."""

    # kind -> tickets before its pace is known: a reflection is among them
    fewest: Mapping[str, int]
    _seconds: dict[str, float] = field(default_factory=dict)
    _tickets: dict[str, int] = field(default_factory=dict)
    _ends: deque[float] = field(default_factory=lambda: deque(maxlen=AGREEING))

    def add(self, kind: str, seconds: float, tickets: int) -> None:
        """So many more ``seconds`` were spent on ``tickets`` of a kind."""
        self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds
        self._tickets[kind] = self._tickets.get(kind, 0) + tickets

    def estimate(self, to_come: Mapping[str, int]) -> float | None:
        """Seconds for the tickets ``to_come``, by kind, as far as is known now; None where one of
        the kinds is not."""
        awaited = [kind for kind, tickets in to_come.items() if tickets]
        if any(self._tickets.get(kind, 0) < max(1, self.fewest.get(kind, 1)) for kind in awaited):
            return None
        return sum(to_come[kind] * self._seconds[kind] / self._tickets[kind] for kind in awaited)

    def left(self, now: float, to_come: Mapping[str, int]) -> float | None:
        """Seconds left for the tickets ``to_come``, by kind; None while that is not known, or still
        jumps. To be asked once a round."""
        estimate = self.estimate(to_come)
        if estimate is None:
            return None
        self._ends.append(now + estimate)
        mean = sum(self._ends) / len(self._ends)
        if len(self._ends) < AGREEING or max(self._ends) - min(self._ends) > max(
            LEAST_SPREAD, SPREAD * (mean - now)
        ):
            return None
        return mean - now


def describe_left(seconds: float | None) -> str:
    """The time left for people, as coarse as it is known; empty where it is not."""
    return "" if seconds is None else f"{describe_time(seconds)} left"


def describe_time(seconds: float) -> str:
    """A time to come for people."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes} min" if minutes < 60 else f"about {minutes // 60} h {minutes % 60} min"


LEVELS: tuple[Level, ...] = get_args(Level)  # from most to least said
WARM = 2  # the first round tells no pace: it warms up caches and kernels
SHOWN_IDLE = 5  # reflections in a row that changed nothing and get a line each
IDLE_TOGETHER = 10  # of those after them that share a line


class Bar(RichProgress):
    """A bar, below it a line of figures, and one for the present activity."""

    def get_renderables(self) -> Iterator[RenderableType]:
        """See rich."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            for text in (task.fields["figures"], task.fields["doing"]):
                if text:
                    yield Text(f"  {text}", no_wrap=True, overflow="ellipsis")


class FitProgress:
    """Counts rounds, tickets and edits, and says how it goes, what reflection changed, and what a
    person should know."""

    def __init__(
        self,
        config: LoopConfig,
        schedule: GuidanceSchedule,
        state: State,
        edits: Iterable[Attempts],
    ) -> None:
        """``edits`` are those of the run so far, by mission."""
        self._console = console()
        self._config = config
        self._schedule = schedule
        self._began = self._last = self._last_line = time.monotonic()
        self._pace = Pace({LEARNT: min(map(schedule.bundle_size, schedule.missions), default=1)})
        self._tickets = self._rolled_out = 0  # tickets, and rounds
        self._resumed = self._time_told = state.done != NOWHERE
        self._at: Place = state.done
        self._rounds_done = schedule.count(state.done)
        self._rounds = schedule.count()
        self._edits_tried = self._edits_accepted = 0
        for attempts in edits:
            self._count_edits(attempts)
        self._over: set[str] = set()  # missions that learn no more
        # by mission: reflections in a row that changed nothing
        self._idle: Counter[str] = Counter()
        if self._resumed:
            self.say(
                f"{config.output}: resuming after {self._rounds_done} of {self._rounds} rounds"
            )
        self._bar = Bar(
            TextColumn(
                "{task.description}",
                markup=False,
                table_column=Column(no_wrap=True, overflow="ellipsis"),
            ),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("rounds{task.fields[left]}", markup=False),
            console=self._console,
            transient=True,
            disable=not (self._console.is_terminal and config.log_level == "info"),
        )
        self._task = self._bar.add_task(
            "starting",
            total=self._rounds,
            completed=self._rounds_done,
            left="",
            figures="",
            doing="",
        )
        self._bar.start()

    def close(self) -> None:
        """Give the terminal's line back."""
        self._bar.stop()

    def show_start(self, inputs: Inputs, judges_by: str) -> None:
        """Print what a person should know of the input files, and what the run may cost."""
        for line in describe_inputs(inputs, self._config):
            self.say(*line)
        if not self._resumed:
            for line in forecast(inputs, self._config, self._schedule, judges_by):
                self.say(*line)

    def show_answered(self, tickets: int) -> None:
        """``tickets`` of the round in progress are answered."""
        self._bar.update(self._task, doing=f"{tickets} tickets of this round answered")

    def show_round(self, batch: Round, tally: Tally, guidance_step: int) -> dict[str, float]:
        """Show that a round is done; ``tally`` counts its split so far in this epoch. Returns the
        figures to log."""
        self._tickets += len(batch.tickets)
        self._rolled_out += 1
        seconds_each = (time.monotonic() - self._last) / len(batch.tickets)
        speed = self._tickets / max(1e-6, time.monotonic() - self._began)
        accuracy = tally.accuracy(batch.scale)
        figures = f"acc {accuracy:.1%}, step {guidance_step}"
        if self._edits_tried:
            figures += f", {self._edits_accepted} of {self._edits_tried} edits accepted"
        if tally.unreadable:
            figures += f", {tally.unreadable:,} of {tally.rollouts:,} answers unreadable"
        figures += f", {speed:.1f} tickets/s"
        self._add_time(LEARNT if batch.learns else JUDGED, len(batch.tickets))
        left = self._finish_round(batch, figures)
        now, every = time.monotonic(), self._config.runner.log_every_s
        if self._bar.disable and (
            batch.last or now - self._last_line >= every or self._config.log_level == "debug"
        ):
            self._last_line = now
            self.say(
                f"{self._place(batch)}: round {self._rounds_done}/{self._rounds}, {figures}{left}"
            )
        if self._rolled_out == WARM and not self._time_told and self._schedule.epochs:
            rest = describe_time(seconds_each * sum(self._schedule.to_come(batch.place).values()))
            self.say(
                f"At this pace, judging takes {rest}; reflections and their tests come on top "
                f"and are not timed yet"
            )
        return {
            "tickets_per_second": round(speed, 3),
            "acc": accuracy,
            "guidance_step": guidance_step,
        }

    def show_skipped(self, batch: Round, why: str) -> None:
        """Show that a round needed no rollout."""
        self._last = time.monotonic()
        if batch.learns:
            self._over.add(batch.mission)
        self._finish_round(batch, why)

    def show_activity(self, text: str) -> None:
        """Show the present activity between rounds."""
        self._bar.update(self._task, doing=text)

    def show_learning(self, mission: str, doing: str) -> None:
        """Show what code is learning from, and how long it has: a line now and then where there is
        no bar."""
        now = time.monotonic()
        text = f"{mission}: {doing}, {clock(now - self._last)} so far"
        self.show_activity(text)
        if self._bar.disable and now - self._last_line >= self._config.runner.log_every_s:
            self._last_line = now
            self.say(text)

    def show_edits(
        self, mission: str, row: Mapping[str, Any], before: Guidance, after: Guidance
    ) -> None:
        """Print the outcome of a bundle in one line, and the rules that changed."""
        parsed = parse_row(row)
        attempts = list_attempts([parsed])
        self._count_edits(attempts)
        self._add_time(LEARNT, 0)
        if self._is_quiet(mission, parsed):
            return
        what = describe_reflection(attempts, self._config.price.by_label != EQUAL)
        lines = [f"{mission}, {name_reflection(parsed.reflection_id)}: {what}"]
        old, new = (
            {rule.key: rule.text for rule in guidance.rules} for guidance in (before, after)
        )
        for sign, some, others in (("-", old, new), ("+", new, old)):
            changed = [(key, text) for key, text in some.items() if others.get(key) != text]
            lines += [f"  {sign} {key}. {shorten_list(text)}" for key, text in changed]
        self.say("\n".join(lines))
        if parsed.proposals and not self._time_told:
            self._say_time_left()

    def _count_edits(self, attempts: Attempts) -> None:
        self._edits_tried += len(attempts.tried)
        self._edits_accepted += len(attempts.settled)

    def _say_time_left(self) -> None:
        """Print how long the run will take, once a reflection has been timed: most of the time goes
        into those."""
        seconds = self._pace.estimate(self._schedule.to_come(self._at, self._over))
        if seconds is not None:
            self._time_told = True
            left = describe_time(seconds)
            self.say(
                f"At this pace, {left} to go, reflections and tests included; less where "
                f"learning ends early"
            )

    def _is_quiet(self, mission: str, row: ReflectionRow) -> bool:
        """Whether a reflection gets no line of its own: after some in a row that changed nothing,
        so many more share one."""
        self._idle[mission] = 0 if row.applied else self._idle[mission] + 1
        more = self._idle[mission] - SHOWN_IDLE
        if more <= 0 or self._config.log_level == "debug":
            return False
        if more % IDLE_TOGETHER == 0:
            last = name_reflection(row.reflection_id)
            where = f"{safe_name(mission)}/{REFLECTION} says what was tried"
            self.say(f"{mission}: {IDLE_TOGETHER} more up to {last}, none accepted; {where}")
        return True

    def say(self, text: str, level: Level = "info") -> None:
        """Print a line, if the level of the log admits it."""
        if LEVELS.index(level) >= LEVELS.index(self._config.log_level):
            self._console.print(text)

    def _add_time(self, kind: str, tickets: int) -> None:
        """Count the time since the last step for tickets of this kind."""
        now = time.monotonic()
        self._pace.add(kind, now - self._last, tickets)
        self._last = now

    def _finish_round(self, batch: Round, figures: str) -> str:
        """Move the bar past a round; returns the text on the time left."""
        self._rounds_done += 1
        self._at = batch.place
        left = describe_left(
            self._pace.left(self._last, self._schedule.to_come(batch.place, self._over))
        )
        left = f", {left}" if left and self._rounds_done < self._rounds else ""
        place = self._place(batch)
        self._bar.update(
            self._task,
            completed=self._rounds_done,
            description=place,
            left=left,
            figures=figures,
            doing="",
        )
        return left

    def _place(self, batch: Round) -> str:
        return f"{batch.mission}, epoch {batch.epoch}, {batch.split}"
