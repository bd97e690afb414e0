"""The work of this process, and whether it makes progress: set by the code that works, down to an
engine that waits for a server, and sent on by the watchdog. One heartbeat per process, since a
process is what hangs.

- ``with at("rollout group 3")``: work that must make progress: it ends, or ticks, within
  ``fabric.timeout_s``.
- ``with at("gather", "waiting")``: in a collective, until the other ranks are there too.
- Elsewhere, such as loading a model, or deciding and writing on rank 0: work that reports no
  progress. It ends, ticks, or reads or writes a disk within ``fabric.load_timeout_s``.
"""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["quiet", "working", "waiting"]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A process's current work, and a count of its progress."""

    label: str = "start"  # in the words of an error message: "rank 1 failed at LABEL"
    kind: Kind = "quiet"  # quiet: work that does not tick
    count: int = 0  # ticks and changes so far; only grows


_now = Heartbeat()
_changing = threading.Lock()  # a thread may tick while another moves to other work
_listener: Callable[[Heartbeat], None] | None = None


def now() -> Heartbeat:
    """Return this process's heartbeat."""
    return _now


def tick() -> None:
    """Report progress: a step was decoded, or a request is running within its own time limit."""
    global _now
    with _changing:
        _now = replace(_now, count=_now.count + 1)


def name(label: str) -> None:
    """Label the work from now on, which is quiet: it does not tick."""
    _move(label, "quiet")


@contextmanager
def at(label: str, kind: Kind = "working") -> Iterator[None]:
    """Within: work that must make progress, or a wait for other ranks. Afterwards the previous
    label and kind hold again."""
    before = _now
    _move(label, kind)
    try:
        yield
    finally:
        _move(before.label, before.kind)


def listen(listener: Callable[[Heartbeat], None] | None) -> None:
    """Call ``listener`` on every change of label or kind, in the thread that makes it; None removes
    it."""
    global _listener
    _listener = listener


def disk_traffic() -> int:
    """A counter that grows with every read or write of a local or network disk by this process,
    mapped files included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_majflt + used.ru_inblock + used.ru_oublock


def _move(label: str, kind: Kind) -> None:
    global _now
    with _changing:
        _now = Heartbeat(label, kind, _now.count + 1)
    if _listener:
        _listener(_now)
