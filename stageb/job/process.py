"""This process: its cores and memory, its standard streams, of which none is missing, and its
garbage collector, which can rest. Of the standard library alone, since it is used before torch."""

from __future__ import annotations

import contextlib
import gc
import io
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def count_cores() -> int:
    """Cores for this process, at least 1: those that it may run on, at most its container's quota
    and OMP_NUM_THREADS, by which people say how many cores a program may use."""
    counts = [
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ]
    with contextlib.suppress(OSError, ValueError):  # no such limit: "max", or no cgroup v2
        quota, period = (CGROUP / "cpu.max").read_text().split()
        counts.append(math.ceil(int(quota) / int(period)))
    # unset, or a list for nested regions, whose first number counts
    with contextlib.suppress(ValueError):
        counts.append(int(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]))
    return max(1, min(counts))


def free_memory() -> int:
    """Bytes of memory available to this process; 0 if the machine does not tell."""
    free = []
    with contextlib.suppress(OSError, StopIteration):
        lines = MEMINFO.read_text().splitlines()
        free.append(
            1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
        )
    with contextlib.suppress(OSError, ValueError):
        free.append(
            int((CGROUP / "memory.max").read_text()) - int((CGROUP / "memory.current").read_text())
        )
    return max(0, min(free, default=0))


# Pausing Python's garbage collector where it does harm.


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Within, Python's garbage collector is off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


# The standard streams of a command: none is missing, and an error of writing to one does not abort
# the work.
#
# Standard output may go to a full disk. What a run learns or judges is worth more than what it
# prints, so the command continues, reports the loss at its end and exits with a code for it.
# Readers that go away (``| head``) are handled by ``lifetime.has_lost_reader``.


class _TolerantFile(io.FileIO):
    """Standard output or standard error that notes write errors instead of raising them. After a
    loss, nothing more goes to standard output, so that its reader has an intact beginning; standard
    error is tried again, since its last line matters most."""

    lost: OSError | None = None  # the first one

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: ReadableBuffer, /) -> int:
        if self.lost is None or self.fileno() == 2:
            try:
                return super().write(data)
            except BrokenPipeError:
                raise
            except OSError as error:
                self.lost = self.lost or error
        return memoryview(data).nbytes


_output: _TolerantFile | None = None


def secure() -> None:
    """Replace the standard streams of this process, if it is the command's own. Streams that
    another program has replaced stay as they are."""
    global _output
    _open_missing()
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        _output = _TolerantFile(1)
        sys.stdout = sys.__stdout__ = _rewrap(sys.stdout, _output)  # type: ignore[misc]
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = sys.__stderr__ = _rewrap(sys.stderr, _TolerantFile(2))  # type: ignore[misc]


def find_loss() -> str:
    """Why standard output could not be written to; empty where it could."""
    return f"standard output: {_output.lost.strerror}" if _output and _output.lost else ""


def _open_missing() -> None:
    """Open the null device for every stream that this process was started without, under its own
    descriptor: otherwise the next file that is opened would get that number, and with it everything
    that libraries print."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # it gets the least number that is free: this one
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = _open_nowhere("r")
    if sys.stdout is None:
        sys.stdout = _open_nowhere("w")
    if sys.stderr is None:
        sys.stderr = _open_nowhere("w")


def _open_nowhere(mode: str) -> TextIO:
    place = Path(os.devnull)
    opened = place.open(mode, encoding="utf-8", errors="backslashreplace")
    assert isinstance(opened, io.TextIOWrapper)
    return opened


def _rewrap(stream: io.TextIOWrapper, raw: _TolerantFile) -> io.TextIOWrapper:
    """``stream`` with all its settings, but writing to ``raw``, and letters that its encoding lacks
    as escapes."""
    stream.flush()
    unbuffered = not isinstance(stream.buffer, io.BufferedWriter)  # python -u
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace" if stream.errors == "strict" else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
