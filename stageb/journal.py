"""A run's folder: one writer, and at every instant a commit to go on from, wherever the process was killed.

Three kinds of file, by what a crash may do to them:

- *Appended* (``append``): JSON Lines. A commit notes their lengths; the next ``open`` cuts them back to these, so rows
  written after the last commit are gone and are written again.
- *Whole* (``replace``, ``remove``): each is its old or its new content, never a mixture. A crash may leave them ahead of
  the last commit: the caller rewrites them from the committed state.
- *Notes* (``note``): JSON Lines outside commits, for times and machine facts, which differ from run to run. They only grow.

``commit.json`` is replaced as a whole and holds nothing but the commit's number, the caller's state, the config that
shapes results and the lengths: equal runs leave equal bytes. ``.lock`` and ``.appended`` are this module's own.

The lock is the kernel's (flock), so a dead holder's lock is free without anybody's doing. Left out: locks between
machines whose file system has no flock, and Windows.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import socket
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stageb import disk
from stageb.errors import InputError, JournalError

COMMIT, LOCK, APPENDED = "commit.json", ".lock", ".appended"
_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,47}")
_HASHED = re.compile(r"(.*-)?[0-9a-f]{12}")


class Journal:
    """One run's folder, held by this process from ``open`` to ``close``.

    Methods raise ``JournalError`` where the disk does not do as told; the last commit is intact then, and a new ``open``
    goes on from it.
    """

    def __init__(self, folder: Path, lock: int, config: dict[str, Any], committed: Mapping[str, Any]) -> None:
        """Used by ``open`` alone."""
        self.folder = folder
        self.number: int = committed["number"]  # of the last commit; 0 before the first
        self.state: Any = committed["state"]  # as the last commit was given it; None before the first
        self._lock = lock
        self._config = config
        self._lengths: dict[str, int] = dict(committed["lengths"])  # of appended files, rows after the last commit included
        self._dirty: set[str] = set()  # appended files with rows that no commit covers yet

    @classmethod
    def open(
        cls,
        root: str | Path,
        run_name: str,
        config: Mapping[str, Any],
        *,
        fresh: bool = False,
        ignored: tuple[str, ...] = (),
        fresh_option: str = "fresh=True",
        name_option: str = "another run_name",
    ) -> Journal:
        """Take ``{root}/{run_name}``: a new folder, or one that a run left, cut back to its last commit.

        ``config`` is what results depend on, nested; keys that begin with one of ``ignored`` ("output.") may differ from
        the committed run's. ``fresh`` sets an old folder aside as ``{run_name}.1``, ``.2``, ... and begins anew; nothing is
        ever deleted. The options are how messages call the two ways out.

        Raises ``InputError`` for a name that is no path component, a folder that no run made, or a config that differs;
        ``JournalError`` where another process holds the folder, a file lost committed bytes, or the disk refuses. Folders
        that it made before it refused are removed again.
        """
        if run_name in ("", ".", "..") or set(run_name) & set("/\\\0"):
            raise InputError(f"run name {run_name!r}: give one path component, without / or \\")
        folder = Path(root) / run_name
        shaping = {key: value for key, value in flatten(config).items() if not key.startswith(ignored)}
        with disk.reporting(folder):
            if folder.is_dir() and not (folder / LOCK).exists() and any(folder.iterdir()):
                raise InputError(f"{folder}: holds files but no run; give {name_option}")
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            lock = -1
            try:
                disk.make_folder(folder)
                lock = _take(folder)
                if fresh:
                    lock = _set_aside(folder, lock)
                committed = _committed(folder)
                if committed["number"]:
                    _same_config(
                        folder, committed["config"], shaping, f"give {fresh_option} to set it aside, or {name_option}"
                    )
                _cut_back(folder, committed["lengths"])
            except BaseException:
                _undo(missing, lock)
                raise
        return cls(folder, lock, shaping, committed)

    def append(self, file: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add ``rows`` to the JSON Lines file named ``file`` (relative, with ``/``); they count from the next commit on."""
        path, data = self._path(file), disk.json_lines(rows)
        with disk.reporting(path):
            if file not in self._lengths:
                self._claim(file, path)
            length = self._lengths[file]
            if path.stat().st_size != length:
                raise JournalError(f"{path}: another program changed it; set the run's folder aside and start anew")
            self._dirty.add(file)
            disk.write_at(path, data, length)
            self._lengths[file] = length + len(data)

    def note(self, file: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add ``rows`` to the JSON Lines file named ``file``, outside of commits. A crash may cost the row being written."""
        path, data = self._path(file), disk.json_lines(rows)
        self._check_whole(file)
        with disk.reporting(path):
            disk.make_folder(path.parent)
            path.touch()
            disk.write_at(path, data, _end_of_rows(path))

    def notes(self, file: str) -> list[Any]:
        """The rows that ``note`` has added to ``file``; none where there is no such file. One that a crash cut off is left
        out."""
        path = self._path(file)
        with disk.reporting(path):
            data = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].split(b"\n")[:-1]]

    def replace(self, file: str, text: str) -> None:
        """Make ``text`` the whole content of ``file``: after a crash it is the old content or the new."""
        path = self._path(file)
        self._check_whole(file)
        with disk.reporting(path):
            disk.replace(path, disk.encoded(text))

    def remove(self, file: str) -> None:
        """Remove a whole file; one that is not there is fine."""
        path = self._path(file)
        self._check_whole(file)
        with disk.reporting(path):
            path.unlink(missing_ok=True)

    def rows(self, file: str) -> list[Any]:
        """The rows appended to ``file`` so far, committed or not; none where nothing was."""
        path, length = self._path(file), self._lengths.get(file, 0)
        with disk.reporting(path):
            data = path.read_bytes()[:length] if length else b""
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def commit(self, state: Any) -> None:
        """Make everything appended so far, and ``state`` (plain JSON), what the next ``open`` finds."""
        lengths = dict(sorted(self._lengths.items()))
        text = disk.json_text({"number": self.number + 1, "state": state, "config": self._config, "lengths": lengths})
        with disk.reporting(self.folder):
            for file in sorted(self._dirty):
                disk.sync(self.folder / file)
            disk.replace(self.folder / COMMIT, disk.encoded(text + "\n"))
            self.number, self.state = self.number + 1, json.loads(text)["state"]
            self._dirty.clear()
            (self.folder / APPENDED).unlink(missing_ok=True)

    def close(self) -> None:
        """Give the folder back; rows appended since the last commit will be cut off by the next ``open``."""
        if self._lock >= 0:
            os.truncate(self._lock, 0)  # who held it is nobody's business now, and equal runs leave equal bytes
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, file: str) -> Path:
        """The place of ``file``, which must lie in the folder and be none of the journal's own."""
        if self._lock < 0:
            raise ValueError("the journal is closed")
        if not _inside(file):
            raise ValueError(f"{file!r} is no place for a file of the run")
        return self.folder / file

    def _check_whole(self, file: str) -> None:
        if file in self._lengths:
            raise ValueError(f"{file!r} is appended to, and so is never replaced, removed or noted in")

    def _claim(self, file: str, path: Path) -> None:
        """Make an empty file to append to, its name noted first, so that a crash leaves none that ``open`` does not know."""
        known = self.folder / APPENDED
        known.touch()
        disk.write_at(known, f"{file}\n".encode(), _end_of_rows(known))
        disk.sync(known)
        disk.sync(self.folder)
        disk.make_folder(path.parent)
        path.open("xb").close()
        disk.sync(path.parent)
        self._lengths[file] = 0


def safe_name(name: str) -> str:
    """``name`` as one path component: readable, at most 61 characters, safe on file systems that ignore case.

    Two names never share one: what is not plain as it stands, or looks like what is made here, ends in a hash of the name.
    """
    if _PLAIN.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    letters = "".join(letter if letter.isalnum() else "-" for letter in unicodedata.normalize("NFKC", name).lower())
    slug = re.sub("-+", "-", letters)[:48].strip("-")
    return f"{slug}-{digest}" if slug else digest


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as dotted keys and plain JSON values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.loads(disk.json_text(value))
    return flat


def _inside(file: str) -> bool:
    """Whether a file's name stays in the folder, and is none of the journal's own."""
    parts = file.split("/")
    return file != COMMIT and not any(
        not part or not part.isprintable() or part.startswith(".") or "\\" in part for part in parts
    )


def _take(folder: Path) -> int:
    """The folder's lock, as a file descriptor that holds it."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino != (folder / LOCK).stat().st_ino:  # the folder was set aside between the two calls
            raise BlockingIOError
        os.truncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BlockingIOError:
        holder = os.pread(lock, 200, 0).decode("utf-8", "replace") or "another process"
        os.close(lock)
        raise JournalError(f"{folder}: {holder} writes there; wait for it, end it, or choose another run name") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _undo(missing: Iterable[Path], lock: int) -> None:
    """Remove the folders that a refused ``open`` made, as long as its lock keeps others out of them, and give that back."""
    made = list(missing)
    if lock >= 0 and made:
        disk.quietly((made[0] / LOCK).unlink)
    for path in made:
        disk.quietly(path.rmdir)
    if lock >= 0:
        os.close(lock)


def _set_aside(folder: Path, lock: int) -> int:
    """Move a folder that holds anything to the first free ``{name}.N`` and begin an empty one; the lock on it."""
    if all(path.name == LOCK for path in folder.iterdir()):
        return lock
    number = 1
    while os.path.lexists(f"{folder}.{number}"):
        number += 1
    folder.rename(f"{folder}.{number}")
    folder.mkdir()
    disk.sync(folder.parent)
    taken = _take(folder)
    os.close(lock)
    return taken


def _committed(folder: Path) -> dict[str, Any]:
    """The content of commit.json; before the first commit, that of an empty one."""
    path = folder / COMMIT
    if not path.exists():
        return {"number": 0, "state": None, "config": {}, "lengths": {}}
    try:
        content = json.loads(path.read_bytes())
        if set(content) == {"number", "state", "config", "lengths"} and all(map(_inside, content["lengths"])):
            return dict(content)
    except (ValueError, TypeError):
        pass
    raise JournalError(f"{path}: another program changed it; set the run's folder aside and start anew")


def _same_config(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any], remedy: str) -> None:
    """Refuse to go on under a config that would give other results."""
    differ = [
        f"  {key}: {_shown(old, key)} there, {_shown(new, key)} now"
        for key in sorted(old.keys() | new.keys())
        if _shown(old, key) != _shown(new, key)
    ]
    if differ:
        raise InputError(
            "\n".join([f"{folder}: holds a run with another config:", *differ, f"run it as it was, or {remedy}"])
        )


def _shown(config: Mapping[str, Any], key: str) -> str:
    return disk.json_text(config[key]) if key in config else "absent"


def _cut_back(folder: Path, lengths: Mapping[str, int]) -> None:
    """Bring appended files to their committed lengths; remove what appends and replacements left unfinished."""
    for file, length in lengths.items():
        path = folder / file
        size = path.stat().st_size if path.exists() else 0
        if size < length:
            remedy = "set the run's folder aside and start anew"
            raise JournalError(f"{path}: another program cut it: {size} bytes, {length} were committed; {remedy}")
    for file, length in lengths.items():
        (folder / file).touch()
        os.truncate(folder / file, length)
    appended = folder / APPENDED
    if appended.exists():
        for file in appended.read_text("utf-8").split("\n")[:-1]:
            if file not in lengths and _inside(file):
                (folder / file).unlink(missing_ok=True)
        appended.unlink()
    for unfinished in folder.rglob(f".*{disk.UNFINISHED}"):
        unfinished.unlink()


def _end_of_rows(path: Path) -> int:
    """Where the last whole line of a file ends; what follows it, a crash left."""
    with path.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - 1))
        if opened.read() in (b"", b"\n"):
            return size
        opened.seek(0)
        return opened.read().rfind(b"\n") + 1
