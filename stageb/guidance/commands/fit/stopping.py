"""What ends the learning of a run: a mission's share of a budget, and a person who stops it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.learning.state import STOP, LearningStopped, State
from stageb.guidance.learning.transitions import (
    after_spending,
    find_over_budget,
    has_learning_left,
    limit_passed,
    why_ended,
)


class RunLimits:
    """The limits on one run's learning, and what its missions have used of them."""

    def __init__(self, config: LoopConfig, schedule: GuidanceSchedule, folder: Path) -> None:
        self._config, self._schedule = config, schedule
        self._stop = folder / STOP  # whether it is there tells whether learning was told to stop
        self._seconds: dict[str, float] = {}  # that each mission has taken

    def count_seconds(self, mission: str, seconds: float) -> None:
        """A mission has taken so many more seconds."""
        self._seconds[mission] = self._seconds.get(mission, 0.0) + seconds

    def apply(self, state: State) -> State:
        """The state, in which missions learn no more that have reached their share of a budget, or
        none that was told to stop."""
        if self._is_over(state) or not has_learning_left(state, self._schedule):
            return state
        if self._stop.exists():
            return replace(state, ended=STOP)
        return after_spending(state, find_over_budget(state, self._seconds, self._config))

    def raise_limits(self, state: State, raised: Collection[str]) -> State:
        """The state of a run that goes on under limits that were ``raised``."""
        return self.apply(
            replace(state, ended=state.ended if state.ended not in (*raised, STOP) else "")
        )

    def find_passed(self, before: State, after: State) -> str:
        """The key of the limit without which ``after`` would not follow ``before``."""
        return limit_passed(before, after, self._schedule)

    def raise_if_stopped(self) -> None:
        """Raise ``LearningStopped`` where learning was told to stop."""
        if self._stop.exists():
            raise LearningStopped

    def forget_stop(self, state: State) -> None:
        """Take what told learning to stop away once it has ended, whatever ended it: it must not
        stop what learns on later."""
        if state.finished or self._is_over(state):
            self._stop.unlink(missing_ok=True)

    def describe_ended(self, state: State) -> Iterator[str]:
        """A line for each mission that learns no more under the present limits."""
        for name in state.missions:
            if why := why_ended(state, name, self._config):
                yield (
                    f"{name}: {why} has ended its learning all the same; for more, start a run "
                    f"with another {why}"
                )

    def _is_over(self, state: State) -> bool:
        """Whether a stop, or shares of budgets, have ended the learning of all missions."""
        return bool(state.ended) and all(
            why_ended(state, name, self._config) for name in state.missions
        )
