"""A file of rows that grows round by round, and can be resumed wherever the process that wrote it was killed.

Beside ``out.jsonl`` lies ``out.jsonl.commit.json``: how many tickets are done, how many bytes their rows take, and what they
were made from. A round's rows are brought to the disk first and then committed, by replacing that file as a whole; the next
``Output`` cuts the rows back to what was committed, so none is lost and none stands there twice. The lock is on the rows.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stageb.errors import InputError, JournalError
from stageb.store import commits, disk, trust
from stageb.store.targets import check_plain

COMMIT = ".commit.json"
ANEW = "give --fresh to set it aside and begin anew"
ELSEWHERE = "another --output"
NOT_BEGUN = f"holds something that this command did not write; {ANEW}, or {ELSEWHERE}"


class Output:
    """One such file, held by this process until ``close``. Methods raise ``JournalError`` if the disk fails."""

    def __init__(self, path: Path, config: Mapping[str, Any], state: Any) -> None:
        """Take ``path``: a new file, or one that was begun from the same ``config`` (flat, plain); ``state`` is what a new
        one begins with.

        Raises ``InputError`` where the file is no such file, or was made from something else.
        """
        self.path = path
        self._config = dict(config)
        self.done = 0  # tickets
        self.state = state  # as last committed
        self.finished = False
        self._bytes = 0
        with disk.reporting(path):
            self._lock = _lock_file(path)
            try:
                self._go_on()
                os.truncate(self._lock, self._bytes)
            except BaseException:
                self.close()
                raise

    def add(self, rows: Iterable[Mapping[str, Any]], tickets: int, state: Any, finished: bool) -> None:
        """Write the rows of so many further ``tickets`` to the disk, and commit ``state`` to resume from."""
        data = disk.json_lines(rows)
        with disk.reporting(self.path):
            disk.write_at(self.path, data, self._bytes)
            disk.sync(self.path)
            self.done, self._bytes, self.state, self.finished = self.done + tickets, self._bytes + len(data), state, finished
            self._commit()

    def close(self) -> None:
        """Let others have the file."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _go_on(self) -> None:
        """Load the last commit; a new file is committed empty before anything is added."""
        content = read_commit(self.path)
        if content is None:
            if os.fstat(self._lock).st_size:
                raise InputError(f"{self.path}: {NOT_BEGUN}")
            self._commit()
            return
        commits.check_config(self.path, content["config"], self._config, f"{ANEW}, or {ELSEWHERE}")
        commits.check_size(self.path, content["bytes"], ANEW)
        self.done, self._bytes = content["done"], content["bytes"]
        self.state, self.finished = content["state"], content["finished"]

    def _commit(self) -> None:
        content = {
            "config": self._config,
            "done": self.done,
            "bytes": self._bytes,
            "state": self.state,
            "finished": self.finished,
        }
        content["digest"] = _digest(content)  # what others change of it is found out, and need not be checked value by value
        disk.replace(_commit_path(self.path), disk.encode(disk.json_text(content) + "\n"))


def read_commit(path: Path) -> dict[str, Any] | None:
    """What was committed last of the rows in ``path``; None where nothing was. Raises ``JournalError``, ``InputError``."""

    def check(content: Any) -> dict[str, Any]:
        if content.pop("digest", None) != _digest(content):
            raise ValueError
        return dict(content)

    place = _commit_path(path)
    with disk.reporting(place):
        return commits.read_checked(trust.file_of(place.parent, place), check, ANEW)


def set_aside(path: Path) -> None:
    """Move a file and its commit to the first free ``{name}.N``; nothing is deleted. The commit goes first: rows without one
    are refused, a commit without rows would not be."""
    with disk.reporting(path):
        lock = _lock_file(path)
        try:
            target = disk.free_name(path, COMMIT)
            if _commit_path(path).exists():
                _commit_path(path).rename(_commit_path(target))
            if os.fstat(lock).st_size:
                path.rename(target)
        finally:
            os.close(lock)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, one at a time. Raises ``JournalError`` where they are no longer what was committed."""
    try:
        opened = path.open("rb")
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}; {ANEW}") from error
    with opened:
        for number, line in enumerate(opened, 1):
            yield disk.parse_object(line, f"{path}:{number}", ANEW)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.blake2b(disk.json_text(content).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _commit_path(path: Path) -> Path:
    """The file that says what was committed of ``path``."""
    return path.with_name(path.name + COMMIT)


def check_file(path: Path, config: Mapping[str, Any], fresh: bool) -> Any:
    """Look whether ``Output`` may take ``path``, as far as ``config`` tells, which need not be all of it. Nothing is made or
    locked. Returns the state that was committed there last; None where it begins anew.

    Raises ``InputError``; ``JournalError`` where the last commit cannot be read.
    """
    check_plain(path, COMMIT)
    disk.check_place(path.parent, ELSEWHERE)
    content = None if fresh else read_commit(path)
    if content is not None:
        known = {key: value for key, value in content["config"].items() if key in config}
        asked = {key: config[key] for key in known}  # what one of the two has no use for would hide what differs
        commits.check_config(path, known, asked, f"{ANEW}, or {ELSEWHERE}")
        return content["state"]
    if not fresh and path.exists() and path.stat().st_size:
        raise InputError(f"{path}: {NOT_BEGUN}")
    return None


def _lock_file(path: Path) -> int:
    """The lock on the rows; the file is made where there is none."""
    check_plain(path, COMMIT)
    disk.make_named_folder(path.parent, ELSEWHERE)
    try:
        lock = disk.lock_file(path)
    except BlockingIOError:
        raise JournalError(f"{path}: another process writes it; wait for it, end it, or give {ELSEWHERE}") from None
    try:
        disk.sync(path.parent)
    except BaseException:
        os.close(lock)
        raise
    return lock
