"""The standard streams of a command: none is missing, and none that cannot be written to ends the work half-way.

A disk that is full takes no more of what is printed. What a run learns or judges is worth more than that: the command goes
on, says at its end what became of its output, and its code tells. Readers that go away (``| head``) are another matter:
``lifetime.has_lost_reader``.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Spared(io.FileIO):
    """Standard output or standard error, without the errors of writing. On standard output nothing follows what was lost,
    so that its reader has a whole beginning; standard error is tried again, since its last line says most."""

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


_output: _Spared | None = None


def secure() -> None:
    """Take the streams of this process, whose command line is the command's. Where another program has put its own in their
    place they stay as they are."""
    global _output
    _open_missing()
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        _output = _Spared(1)
        sys.stdout = sys.__stdout__ = _rewrap(sys.stdout, _output)  # type: ignore[misc]
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = sys.__stderr__ = _rewrap(sys.stderr, _Spared(2))  # type: ignore[misc]


def find_loss() -> str:
    """Why standard output could not be written to; empty where it could."""
    return f"standard output: {_output.lost.strerror}" if _output and _output.lost else ""


def _open_missing() -> None:
    """Have every stream that this process was started without lead nowhere. Its number too: the next file to be opened would
    get it, and with that all that libraries print."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the least number that is free: this one
    if sys.stdin is None:
        sys.stdin = _open_nowhere("r")
    if sys.stdout is None:
        sys.stdout = _open_nowhere("w")
    if sys.stderr is None:
        sys.stderr = _open_nowhere("w")


def _open_nowhere(mode: str) -> TextIO:
    opened = Path(os.devnull).open(mode, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115 - for good
    assert isinstance(opened, io.TextIOWrapper)
    return opened


def _rewrap(stream: io.TextIOWrapper, raw: _Spared) -> io.TextIOWrapper:
    """``stream`` in all its ways, on ``raw``."""
    stream.flush()
    unbuffered = not isinstance(stream.buffer, io.BufferedWriter)  # python -u
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
