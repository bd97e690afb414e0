"""The history of a guidance file that is kept for many runs: every version of a mission that was ever put there.

``shared.history.jsonl`` lies beside ``shared.json``, one row a change: ``mission, step, action, source, at, by`` and the
``guidance`` from then on, in the form of a guidance.json. It only grows; steps of a mission are never given twice, so
``shared.json@4`` names one guidance for good. It is also what writers of the file lock, since it is never replaced.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stageb.errors import BadInputError, BadLine
from stageb.store import disk
from stageb.untrusted import strict_json

FIELDS = {"mission": str, "step": int, "action": str, "source": str, "at": str, "by": str, "guidance": dict}


def history_path(path: Path) -> Path:
    """Where the history of the guidance file at ``path`` lies."""
    return path.with_name(f"{path.stem}.history.jsonl")


def read_history(path: Path) -> Iterator[dict[str, Any]]:
    """The changes of the guidance file at ``path``, oldest first; none where nothing was ever put there by a command.

    A row that a crash cut off is left out. Raises ``BadInputError`` where another program wrote something else.
    """
    history = history_path(path)
    try:
        data = history.read_bytes() if history.is_file() else b""
    except OSError as error:
        raise BadInputError(
            "rows of history", [BadLine(str(history), 0, str(error.strerror), "make it readable")]
        ) from error
    for line, row in enumerate(data.split(b"\n")[:-1], 1):
        try:
            read = strict_json.loads(row.decode())
            if isinstance(read, dict) and {name: type(value) for name, value in read.items()} == FIELDS:
                yield read
                continue
            what = f"not a row of {', '.join(FIELDS)}"
        except ValueError as error:
            what = f"not JSON in UTF-8: {error}"
        raise BadInputError("rows of history", [BadLine(str(history), line, what, "take it out, or mend it")])


def append_row(path: Path, row: Mapping[str, Any]) -> None:
    """One more change, on the disk when this returns. Raises ``OSError``."""
    history = history_path(path)
    disk.write_at(history, disk.json_lines([row]), disk.end_of_rows(history))
    disk.sync(history)


@contextmanager
def hold_history(path: Path) -> Iterator[None]:
    """While no other process changes the guidance file at ``path``. Waits for one that does. Raises ``OSError``."""
    disk.make_folder(path.parent)
    lock = disk.hold(history_path(path), wait=True)
    try:
        yield
    finally:
        os.close(lock)
