"""A file of rows that grows round by round, and can be gone on with wherever the process that wrote it was killed.

Beside ``out.jsonl`` lies ``out.jsonl.commit.json``: how many tickets are done, how many bytes their rows take, and what they
were made from. A round's rows are brought to the disk first and then committed, by replacing that file as a whole; the next
``open`` cuts the rows back to what was committed, so none is lost and none stands there twice. The lock on the rows is the
kernel's: a dead holder's is free.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stageb.errors import InputError, JournalError
from stageb.job import launching
from stageb.store import commits, disk

COMMIT = ".commit.json"
FIELDS = {"config", "done", "bytes", "state", "finished"}
ANEW = "give --fresh to set it aside and begin anew"
ELSEWHERE = "another --output"


class Output:
    """One such file, held by this process until ``close``. Methods raise ``JournalError`` where the disk does not obey."""

    def __init__(self, path: Path, config: Mapping[str, Any], state: Any) -> None:
        """Take ``path``: a new file, or one that was begun from the same ``config`` (flat, plain); ``state`` is what a new
        one begins with.

        Raises ``InputError`` where the file is no such file, or was made from something else.
        """
        self.path = path
        self._config = dict(config)
        with disk.reporting(path):
            self._held = _take(path)
            try:
                committed = self._committed(state)
                self.done: int = committed["done"]  # tickets
                self.state: Any = committed["state"]  # as last committed
                self.finished: bool = committed["finished"]
                self._bytes: int = committed["bytes"]
                os.truncate(self._held, self._bytes)
                launching.set_resume("" if self.done else None)
            except BaseException:
                self.close()
                raise

    def add(self, rows: Iterable[Mapping[str, Any]], tickets: int, state: Any, finished: bool) -> None:
        """Bring the rows of so many further ``tickets`` to the disk, and make ``state`` the one to go on from."""
        data = disk.json_lines(rows)
        with disk.reporting(self.path):
            disk.write_at(self.path, data, self._bytes)
            disk.sync(self.path)
            self.done, self._bytes, self.state, self.finished = self.done + tickets, self._bytes + len(data), state, finished
            self._commit()
            launching.set_resume("")

    def close(self) -> None:
        """Let others have the file."""
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _committed(self, state: Any) -> dict[str, Any]:
        """What was committed last; a file that is new is committed as it is, before anything is added."""
        content, size = committed(self.path), os.fstat(self._held).st_size
        if content is None:
            if size:
                raise InputError(f"{self.path}: holds something that was not begun here; {ANEW}, or {ELSEWHERE}")
            self.done, self._bytes, self.state, self.finished = 0, 0, state, False
            self._commit()
            return {"done": 0, "bytes": 0, "state": state, "finished": False}
        commits.same_config(self.path, content["config"], self._config, f"{ANEW}, or {ELSEWHERE}")
        if size < content["bytes"]:
            said = f"another program cut it: {size} bytes, {content['bytes']} were committed"
            raise JournalError(f"{self.path}: {said}; {ANEW}")
        return content

    def _commit(self) -> None:
        content = {
            "config": self._config,
            "done": self.done,
            "bytes": self._bytes,
            "state": self.state,
            "finished": self.finished,
        }
        disk.replace(commit_of(self.path), disk.encoded(disk.json_text(content) + "\n"))


def commit_of(path: Path) -> Path:
    """The file that says what was committed of ``path``."""
    return path.with_name(path.name + COMMIT)


def committed(path: Path) -> dict[str, Any] | None:
    """What was committed last of the rows in ``path``; None where nothing was. Raises ``JournalError``."""
    place = commit_of(path)
    with disk.reporting(place):
        if not place.exists():
            return None
        try:
            content = json.loads(place.read_bytes())
        except ValueError:
            content = None
    if not isinstance(content, dict) or set(content) != FIELDS:
        raise JournalError(f"{place}: another program changed it; {ANEW}")
    return content


def set_aside(path: Path) -> None:
    """Move a file and its commit to the first free ``{name}.N``; nothing is deleted. The commit goes first: rows without one
    are refused, a commit without rows would not be."""
    with disk.reporting(path):
        held = _take(path)
        try:
            number = 1
            while os.path.lexists(target := path.with_name(f"{path.name}.{number}")) or commit_of(target).exists():
                number += 1
            if commit_of(path).exists():
                commit_of(path).rename(commit_of(target))
            if os.fstat(held).st_size:
                path.rename(target)
        finally:
            os.close(held)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, one at a time."""
    with path.open("rb") as opened:
        for line in opened:
            yield json.loads(line)


def _take(path: Path) -> int:
    """A descriptor that holds the file's lock; the file is made where there is none."""
    if path.is_dir():
        raise InputError(f"{path}: a folder; name a file to write")
    disk.make_folder(path.parent)
    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        disk.sync(path.parent)
    except BlockingIOError:
        os.close(held)
        raise JournalError(f"{path}: another process writes it; wait for it, end it, or give {ELSEWHERE}") from None
    except BaseException:
        os.close(held)
        raise
    return held
