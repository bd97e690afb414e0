"""Working through tickets round by round, in waves of whole groups, into an output that survives
interruptions.

Rank 0 alone reads the tickets, a round at a time, and writes; committed tickets are never worked on
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from stageb.errors import InputError
from stageb.guidance.tickets.stream import TicketStream
from stageb.job import lifetime
from stageb.runs.progress import ItemProgress
from stageb.store.output import Output, read_commit, set_aside

# Judging a round in waves of whole groups, whose answers are committed beside the rows every few
# seconds.
#
# So an interruption costs seconds, however large a round is; yet the groups, which decide the last
# bits of a model's numbers, are those of the whole round. On rank 0 alone.

# between two commits, about: ranks wait for each other at the end of a wave, so there are few of
# them
EVERY_S = 10.0

GroupAnswers = Sequence[Any]
"""The answers to the tickets of one group, in its order."""


class Waves:
    """The waves of the round in progress."""

    def __init__(self, rounds: Rounds[Any]) -> None:
        self._rounds = rounds
        self._found: list[GroupAnswers] = []
        self._pace = float("inf")  # seconds a group, with all ranks at work; not known yet
        self._began = self._kept = time.monotonic()

    def begin(self) -> None:
        """Begin a round, or continue one that an interrupted process committed in part."""
        self._found = list(self._rounds.answered)

    def plan(self, groups: int, ranks: int) -> tuple[int, int]:
        """Where in the ``groups`` of the round the next wave begins and ends: about as many as take
        ``EVERY_S``, so many for each of the ``ranks``; the first alone tells how long they take."""
        done, self._began = len(self._found), time.monotonic()
        each = max(1, int(EVERY_S / max(self._pace * ranks, 1e-9)))
        return done, min(groups, done + each * ranks)

    def show(self, tickets: int) -> None:
        """So many ``tickets`` of the wave in progress are judged."""
        self._rounds.show(sum(map(len, self._found)) + tickets)

    def add(self, found: Sequence[GroupAnswers], is_last: bool) -> None:
        """Add the answers of a wave, and commit them about every ``EVERY_S``; the last wave is
        committed with the rows."""
        now = time.monotonic()
        self._pace = (now - self._began) / len(found)
        self._found += found
        if not is_last and now - self._kept >= EVERY_S:
            self._rounds.keep(self._found)
            self._kept = now

    @property
    def answers(self) -> list[Any]:
        """The answers to all tickets so far, group by group."""
        return [answer for group in self._found for answer in group]


ANSWERED = "answered"  # of a commit's state: what has come of a round before its rows are written

Item = TypeVar("Item")


class Rounds(Generic[Item]):
    """The rounds of one output. Every rank has this object; its methods are called on rank 0
    alone."""

    def __init__(self, path: Path, tickets: TicketStream[Item], size: int) -> None:
        """``path`` is the output, ``size`` the number of tickets in a round."""
        self.path = path
        self.tickets = tickets
        self.size = size
        self._output: Output | None = None
        self._progress: ItemProgress | None = None
        self._left: Iterator[Item] = iter(())

    def begin(
        self,
        survey: Callable[[], Mapping[str, Any]],
        fingerprint: Callable[[], Mapping[str, Any]],
        fresh: bool,
    ) -> None:
        """Resume from the last commit, or begin a new output.

        ``survey`` checks all tickets and returns the first state of a new output, in which
        ``tickets`` is their number; it is not called on resuming. ``fingerprint`` returns what the
        rows depend on, flat. ``fresh`` sets the old output aside.
        """
        state = survey() if fresh or read_commit(self.path) is None else None
        config = fingerprint()
        if fresh:
            set_aside(self.path)
        self._output = Output(self.path, config, state)
        self._tell_interrupters()
        self._left = self.tickets.items(self._output.done)
        if not self._output.finished:
            total, begun = self._output.state["tickets"], sum(map(len, self.answered))
            self._progress = ItemProgress(
                str(self.path), "tickets", total, self._output.done, begun
            )

    def hand_out(self) -> list[Item]:
        """The next round; empty where all is done."""
        return self.take(self.size)

    def take(self, most: int, taken: int = 0) -> list[Item]:
        """The next tickets of a round that has ``taken`` so many already, ``most`` at a time; empty
        if none is left.

        Raises ``InputError`` if the files hold fewer tickets than at the start.
        """
        most = min(most, self.left - taken)
        items = list(islice(self._left, most))
        if len(items) < most:
            self.tell_fewer()
        return items

    def tell_fewer(self) -> NoReturn:
        """Raise ``InputError`` for files that hold fewer tickets than at the start."""
        files = ", ".join(self.tickets.files)
        raise InputError(
            f"{files}: fewer tickets than at the start; do not change the files meanwhile"
        )

    def show(self, tickets: int) -> None:
        """``tickets`` of the round in progress are done."""
        if self._progress:
            self._progress.show(tickets)

    def keep(self, answered: Sequence[Sequence[Any]]) -> None:
        """Commit the answers of the round in progress, by group, before its rows are written."""
        self._open.add([], 0, {**self.state, ANSWERED: answered}, finished=False)
        self._tell_interrupters()

    def commit(self, rows: Sequence[Mapping[str, Any]], state: Mapping[str, Any]) -> None:
        """Write the rows of a round to the disk, one per ticket, and commit ``state`` to resume
        from."""
        going_on = {name: value for name, value in state.items() if name != ANSWERED}
        self._open.add(
            rows, len(rows), going_on, finished=self._open.done + len(rows) == state["tickets"]
        )
        self._tell_interrupters()
        if self._progress:
            self._progress.advance(len(rows))

    def close(self) -> None:
        """Release the output and the progress display."""
        for held in (self._progress, self._output):
            if held:
                held.close()

    @property
    def done(self) -> int:
        """Tickets that are done."""
        return self._open.done

    @property
    def left(self) -> int:
        """Tickets that are not."""
        return int(self.state["tickets"]) - self.done

    @property
    def state(self) -> Mapping[str, Any]:
        """As last committed."""
        state: Mapping[str, Any] = self._open.state
        return state

    @property
    def answered(self) -> Sequence[Sequence[Any]]:
        """The answers of the round in progress that ``keep`` has committed."""
        answered: Sequence[Sequence[Any]] = self._open.state.get(ANSWERED, [])
        return answered

    def _tell_interrupters(self) -> None:
        """Set the last message of an interrupted process: how many tickets are done and kept."""
        total, done = self.state["tickets"], self.done + sum(map(len, self.answered))
        lifetime.set_resume(f"{done:,} of {total:,} tickets are done and kept")

    @property
    def _open(self) -> Output:
        assert self._output is not None  # ``begin`` has opened it
        return self._output
