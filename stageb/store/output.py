"""Files that a command writes where a user says so: none that is an input or a run's own, and rows
that can be resumed.

Beside ``out.jsonl`` lies ``out.jsonl.commit.json``: how many tickets are done, how many bytes their
rows take, and what they were made from. A round's rows are brought to the disk first and then
committed, by replacing that file as a whole; the next ``Output`` cuts the rows back to what was
committed, so none is lost and none stands there twice. The lock is on the rows.
"""

from __future__ import annotations

import csv
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stageb.errors import InputError, JournalError, StagebError, shown
from stageb.store import commits, disk, trust

# What may be written where a user says so: a plain file that is no input of the command, and no
# run's own.
#
# Commands ask before any work, so that nobody waits for rows that cannot be written, or loses what
# they were made from.

NAME, ANOTHER = "name a file to write", "name another file"

# At the top of a run's folder, beside what its commits list; the last one is a folder.
RUN_FILES = {
    commits.COMMIT,
    "config.yaml",
    "run.json",
    "timings.jsonl",
    "report.html",
    "curves.png",
    "README.md",
}
RUN_FILES |= {commits.PARTS}


def check_plain(path: Path, suffix: str = "") -> None:
    """Raise ``InputError`` where ``path`` is none that a file can have, or something else stands
    there; ``suffix`` ends the name of what is written beside it."""
    try:
        # only to hear whether that name can be
        os.lstat(path.with_name(f"{disk.UNFINISHED}{path.name}{suffix}"))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    # a ValueError is about an empty name, or one that no file can have
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{shown(str(path), 100)}: {why}; {NAME}") from None
    if path.is_dir():
        raise InputError(f"{path}: a folder; {NAME}")
    if os.path.lexists(path) and not _is_plain(path):
        raise InputError(f"{path}: not a file; {NAME}")


def check_target(
    path: Path, inputs: Mapping[str, Iterable[str]], suffix: str = "", own: Path | None = None
) -> None:
    """Raise ``InputError`` where nothing may be written to ``path``: as ``check_plain``, or it is a
    file of ``inputs`` (by what they are: "tickets"), or a run's, unless it is ``own``."""
    check_plain(path, suffix)
    for what, files in inputs.items():
        if any(_is_same(path, Path(file)) for file in files):
            raise InputError(shown(f"{path}: it holds the {what}; {ANOTHER}"))
    if _is_of_run(path) and not (own and os.path.realpath(own) == os.path.realpath(path)):
        raise InputError(
            shown(f"{path}: belongs to a run, whose files say what it learnt; {ANOTHER}")
        )


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    # one of them is not there: what has to be is told by who reads it
    except (OSError, ValueError):
        return False


def _is_of_run(path: Path) -> bool:
    """Whether the nearest run's folder above holds ``path`` under a name of the run's own, there or
    yet to come; what others put into such a folder is theirs."""
    real = Path(os.path.realpath(path))
    folder = next((each for each in real.parents if (each / commits.COMMIT).is_file()), None)
    if folder is None:
        return False
    first = real.relative_to(folder).parts[0]
    if first in RUN_FILES or first.startswith("."):
        return True
    try:
        committed = commits.read_commit(folder)
    except StagebError:  # somebody else's commit.json
        return False
    return any(
        file.partition("/")[0] == first for file in (*committed["lengths"], *committed["versions"])
    )


def _is_plain(path: Path) -> bool:
    """Whether a file stands there, or a link to one. Names of devices, and of what a process has
    open, are none, whatever they lead to: a commit could not be put beside them."""
    place = os.path.realpath(path.parent)
    if place == "/dev" or f"{place}/".startswith("/proc/"):
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link that leads nowhere
        return False


COMMIT = ".commit.json"
ELSEWHERE = "another output"


def _check_begun(path: Path, size: int) -> None:
    """Raise ``InputError`` where a file of this ``size`` has rows, though nothing was committed of
    them."""
    if size:
        raise InputError(
            f"{path}: holds something that this command did not write; "
            f"{commits.advise_fresh()}, or {ELSEWHERE}"
        )


class Output:
    """One such file, held by this process until ``close``. Methods raise ``JournalError`` if the
    disk fails."""

    def __init__(self, path: Path, config: Mapping[str, Any], state: Any) -> None:
        """Take ``path``: a new file, or one that was begun from the same ``config`` (flat, plain);
        ``state`` is what a new one begins with.

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

    def add(
        self, rows: Iterable[Mapping[str, Any]], tickets: int, state: Any, finished: bool
    ) -> None:
        """Write the rows of so many further ``tickets`` to the disk, and commit ``state`` to resume
        from."""
        rows = list(rows)
        data = (
            encode_table(list(rows[0]), rows, not self._bytes)
            if rows and _is_table(self.path)
            else disk.json_lines(rows)
        )
        with disk.reporting(self.path):
            disk.write_at(self.path, data, self._bytes)
            disk.sync(self.path)
            self.done, self._bytes, self.state, self.finished = (
                self.done + tickets,
                self._bytes + len(data),
                state,
                finished,
            )
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
            _check_begun(self.path, os.fstat(self._lock).st_size)
            self._commit()
            return
        commits.check_config(self.path, content["config"], self._config, ELSEWHERE)
        commits.check_size(self.path, content["bytes"], commits.advise_fresh())
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
        # What others change of it is found out, and need not be checked value by value.
        content["digest"] = disk.digest(disk.json_text(content), 8)
        disk.replace(_commit_path(self.path), disk.json_lines([content]))


def read_commit(path: Path) -> dict[str, Any] | None:
    """Return the last commit of the rows in ``path``; None where there is none. Raises
    ``JournalError``, ``InputError``."""

    def check(content: Any) -> dict[str, Any]:
        if content.pop("digest", None) != disk.digest(disk.json_text(content), 8):
            raise ValueError
        return dict(content)

    place = _commit_path(path)
    with disk.reporting(place):
        return commits.read_checked(
            trust.file_of(place.parent, place), check, commits.advise_fresh()
        )


def set_aside(path: Path) -> None:
    """Move a file and its commit to the first free ``{name}.N``; nothing is deleted. The commit
    goes first: rows without one are refused, a commit without rows would not be."""
    with disk.reporting(path):
        lock = _lock_file(path)
        try:
            target = disk.find_free_name(path, COMMIT)
            if _commit_path(path).exists():
                _commit_path(path).rename(_commit_path(target))
            if os.fstat(lock).st_size:
                path.rename(target)
        finally:
            os.close(lock)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, one at a time; those of a table hold texts. Raises ``JournalError`` where
    they are no longer what was committed."""
    try:
        opened = path.open("rb")
    except OSError as error:
        raise JournalError(
            f"{path}: cannot be read: {error.strerror}; {commits.advise_fresh()}"
        ) from error
    with opened:
        if _is_table(path):
            yield from csv.DictReader(io.TextIOWrapper(opened, "utf-8-sig", newline=""))
            return
        for number, line in enumerate(opened, 1):
            yield disk.parse_object(line, f"{path}:{number}", commits.advise_fresh())


def _is_table(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def encode_table(
    header: Sequence[str], rows: Iterable[Mapping[str, Any]], begins: bool = True
) -> bytes:
    """Rows as CSV, which ``begins`` with the header, and with the mark by which spreadsheets know
    UTF-8. What these would compute, as it begins like a formula, has an apostrophe before it
    (``unquote``)."""
    text = io.StringIO("\ufeff" if begins else "", newline="")
    text.seek(0, io.SEEK_END)
    table = csv.DictWriter(text, header, lineterminator="\n")
    if begins:
        table.writeheader()
    for row in rows:
        told = {name: cell for name, cell in row.items() if cell is not None}
        table.writerow(
            {
                name: _quote(cell) if isinstance(cell, str) else disk.json_text(cell)
                for name, cell in told.items()
            }
        )
    return disk.encode(text.getvalue())


# the beginning of one; plain numbers are none
_FORMULA = re.compile(r"'*(?=[=+@\t-])(?![+-]?[\d.,]+\Z)")


def _quote(cell: str) -> str:
    # which some readers take for the end of a row
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unquote(cell: str) -> str:
    """Return the value in a cell that ``encode_table`` wrote."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell[1:]) else cell


def _commit_path(path: Path) -> Path:
    """The file that says what was committed of ``path``."""
    return path.with_name(path.name + COMMIT)


def check_file(path: Path, config: Mapping[str, Any], fresh: bool) -> Any:
    """Look whether ``Output`` may take ``path``, as far as ``config`` tells, which need not be all
    of it. Nothing is made or locked. Returns the state that was committed there last; None where it
    begins anew.

    Raises ``InputError``; ``JournalError`` where the last commit cannot be read.
    """
    check_plain(path, COMMIT)
    disk.check_place(path.parent, ELSEWHERE)
    content = None if fresh else read_commit(path)
    if content is not None:
        known = {key: value for key, value in content["config"].items() if key in config}
        # what one of the two has no use for would hide what differs
        asked = {key: config[key] for key in known}
        commits.check_config(path, known, asked, ELSEWHERE)
        return content["state"]
    if not fresh and path.exists():
        _check_begun(path, path.stat().st_size)
    return None


def _lock_file(path: Path) -> int:
    """The lock on the rows; the file is made where there is none."""
    check_plain(path, COMMIT)
    disk.make_named_folder(path.parent, ELSEWHERE)
    try:
        lock = disk.lock_file(path)
    except BlockingIOError:
        raise JournalError(
            f"{path}: another process writes it; wait for it, end it, or give {ELSEWHERE}"
        ) from None
    try:
        disk.sync(path.parent)
    except BaseException:
        os.close(lock)
        raise
    return lock
