"""What this process is at, and whether it gets on: told by whoever works, down to an engine that waits for a server, and
read by the watchdog, which passes it on. One heartbeat a process, since a process is what hangs.

- ``with at("rollout group 3")``: work that must get on: it ends, or ticks, within ``fabric.timeout_s``.
- ``with at("gather", "waiting")``: in a collective, until the other ranks are there too.
- Elsewhere, as when it loads a model, or decides and writes on rank 0: work that tells nothing of how it gets on. It ends,
  ticks, or reads or writes a disk within ``fabric.load_timeout_s``.
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
    """What a process is at."""

    label: str = "start"  # in the words of an error message: "rank 1 failed at LABEL"
    kind: Kind = "quiet"  # quiet: it shows no signs of life of its own
    count: int = 0  # signs of life so far; never goes back


_now = Heartbeat()
_changing = threading.Lock()  # a thread may tick while another goes on to something else
_listener: Callable[[Heartbeat], None] | None = None


def now() -> Heartbeat:
    """What this process is at now."""
    return _now


def tick() -> None:
    """Work gets on: a step was decoded, a request is under way within a time limit of its own."""
    global _now
    with _changing:
        _now = replace(_now, count=_now.count + 1)


def name(label: str) -> None:
    """From now on this process is at ``label``, and shows no signs of life of its own."""
    _move(label, "quiet")


@contextmanager
def at(label: str, kind: Kind = "working") -> Iterator[None]:
    """Work that must get on, or a wait for other ranks; afterwards this process is at what it was at before."""
    before = _now
    _move(label, kind)
    try:
        yield
    finally:
        _move(before.label, before.kind)


def listen(listener: Callable[[Heartbeat], None] | None) -> None:
    """Have ``listener`` called, in the thread that works, whenever what this process is at changes; None: nobody."""
    global _listener
    _listener = listener


def disk_traffic() -> int:
    """How often this process has had a disk, or a network's, read or write for it; pages of mapped files count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_majflt + used.ru_inblock + used.ru_oublock


def _move(label: str, kind: Kind) -> None:
    global _now
    with _changing:
        _now = Heartbeat(label, kind, _now.count + 1)
    if _listener:
        _listener(_now)
