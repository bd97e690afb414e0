"""The history of a guidance file that is kept for many runs: every version of a mission that was
ever in use there.

``shared.history.jsonl`` lies beside ``shared.json``, one row a change: ``mission, step, action,
source, at, by`` and the ``guidance`` from then on, in the form of a guidance.json. Steps of a
mission are never given twice, so ``shared.json@4`` names one guidance for good. It is also what
writers of the file lock, since it is never replaced.

A row is written once the new file lies complete beside the old one, and before it takes its place,
so that nothing is in use without a row. A last row whose file still lies beside was interrupted in
between: it is not read, and the next writer takes it out.
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

FIELDS = {
    "mission": str,
    "step": int,
    "action": str,
    "source": str,
    "at": str,
    "by": str,
    "guidance": dict,
}


def history_path(path: Path) -> Path:
    """Return the path of the history of the guidance file at ``path``."""
    return path.with_name(f"{path.stem}.history.jsonl")


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the changes of the guidance file at ``path``, oldest first; none where nothing was ever
    put there by a command.

    A row that a crash cut off is left out, and so is one whose guidance did not come into use.
    Raises ``BadInputError`` where another program wrote something else.
    """
    rows = list(_read_rows(path))
    return rows[:-1] if rows and _is_pending(path, rows[-1]) else rows


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
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
            if (
                isinstance(read, dict)
                and {name: type(value) for name, value in read.items()} == FIELDS
            ):
                yield read
                continue
            what = f"not a row of {', '.join(FIELDS)}"
        except ValueError as error:
            what = f"not JSON in UTF-8: {error}"
        raise BadInputError(
            "rows of history", [BadLine(str(history), line, what, "remove it, or correct it")]
        )


def _is_pending(path: Path, row: Mapping[str, Any]) -> bool:
    """Whether the last row is about guidance that lies beside the file, written before the row was,
    and is not in use."""
    beside, body = disk.name_draft(path), row["guidance"].get(row["mission"])
    try:
        if beside.stat().st_mtime_ns > history_path(path).stat().st_mtime_ns:
            return False
        return bool(_read_body(beside, row["mission"]) == body != _read_body(path, row["mission"]))
    except OSError:  # most often since nothing lies there
        return False


def _read_body(path: Path, mission: str) -> Any:
    """Read the body of a mission in a guidance file, as it stands there; None where there is none,
    or no such file."""
    try:
        content = strict_json.loads(path.read_bytes().decode())
    except (FileNotFoundError, ValueError):
        return None
    return content.get(mission) if isinstance(content, dict) else None


def append_row(path: Path, row: Mapping[str, Any]) -> int:
    """Add one more change, on the disk when this returns, and return where its row begins. Raises
    ``OSError``, and leaves no row then."""
    history = history_path(path)
    position = disk.end_of_rows(history)
    disk.write_at(history, disk.json_lines([row]), position)
    try:
        disk.sync(history)
    except BaseException:
        disk.quietly(lambda: cut_rows(path, position))
        raise
    return position


def cut_rows(path: Path, position: int) -> None:
    """Take out the rows from ``position`` on. Raises ``OSError``."""
    os.truncate(history_path(path), position)


def clear_interrupted(path: Path) -> None:
    """Take out what a crash left: a last row whose guidance did not come into use, and that
    guidance. The caller holds the file.

    Raises ``OSError``.
    """
    rows = list(_read_rows(path))
    if rows and _is_pending(path, rows[-1]):
        whole = history_path(path).read_bytes()
        end = whole.rfind(b"\n")
        cut_rows(path, whole.rfind(b"\n", 0, end) + 1)
        disk.sync(history_path(path))
    disk.name_draft(path).unlink(missing_ok=True)


@contextmanager
def hold_history(path: Path) -> Iterator[None]:
    """Keep other processes from changing the guidance file at ``path``; wait for one that does.
    Raises ``OSError``."""
    disk.make_folder(path.parent)
    lock = disk.lock_file(history_path(path), wait=True)
    try:
        yield
    finally:
        os.close(lock)
