"""How long a run may still take, said only once that no longer jumps.

What a train ticket takes, with all that reflection and gate make of it, is another figure than what a ticket takes that is
judged alone. So each kind has its own pace, and nothing is said before both are known that are still to come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

AGREEING = 3  # estimates in a row of when a run ends
SPREAD = 1 / 3  # of the time left, by which these may differ; but for ``LEAST_SPREAD`` at the least
LEAST_SPREAD = 60.0  # seconds


@dataclass(slots=True)
class Pace:
    """Seconds by kind of ticket, and what they say of the rest."""

    fewest: Mapping[str, int]  # kind -> tickets before its pace is known: a reflection is among them
    _seconds: dict[str, float] = field(default_factory=dict)
    _tickets: dict[str, int] = field(default_factory=dict)
    _ends: deque[float] = field(default_factory=lambda: deque(maxlen=AGREEING))

    def add(self, kind: str, seconds: float, tickets: int) -> None:
        """So many more ``seconds`` were spent on ``tickets`` of a kind."""
        self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds
        self._tickets[kind] = self._tickets.get(kind, 0) + tickets

    def estimate(self, to_come: Mapping[str, int]) -> float | None:
        """Seconds for the tickets ``to_come``, by kind, as far as is known now; None where one of the kinds is not."""
        awaited = [kind for kind, tickets in to_come.items() if tickets]
        if any(self._tickets.get(kind, 0) < max(1, self.fewest.get(kind, 1)) for kind in awaited):
            return None
        return sum(to_come[kind] * self._seconds[kind] / self._tickets[kind] for kind in awaited)

    def left(self, now: float, to_come: Mapping[str, int]) -> float | None:
        """Seconds left for the tickets ``to_come``, by kind; None while that is not known, or still jumps. To be asked once
        a round."""
        estimate = self.estimate(to_come)
        if estimate is None:
            return None
        self._ends.append(now + estimate)
        mean = sum(self._ends) / len(self._ends)
        if len(self._ends) < AGREEING or max(self._ends) - min(self._ends) > max(LEAST_SPREAD, SPREAD * (mean - now)):
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
