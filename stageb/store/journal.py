"""A run's folder: one writer, and at every instant a commit to resume from, wherever the process
was killed.

Four kinds of file, by what a crash may do to them:

- *Appended* (``append``): JSON Lines. A commit notes their lengths; the next ``open`` cuts them
  back to these, so rows written after the last commit are gone and are written again.
- *Versioned* (``put``): any content, such as weights, new as a whole, that belongs to a commit.
  Each version is a file of its own, ``weights/policy-00000012.safetensors`` that of the 12th
  commit, on the disk before that commit is. A commit lists one of each file; others are removed
  once it stands, or by the next ``open``.
- *Whole* (``replace``, ``remove``): each is its old or its new content, never a mixture. A crash
  may leave them ahead of the last commit: the caller rewrites them from the committed state.
- *Notes* (``note``): JSON Lines outside commits, for times and machine facts, which differ from run
  to run. They only grow.

A commit's state should be small; what is large and changes a piece at a time is given as *parts*,
of which a commit writes those that changed. They are versioned files too,
``commit.d/{name}-00000012.json``, as are commits that are kept, to go back to:
``commit.d/kept.{name}-00000012.json`` holds what ``commit.json`` did before the 12th.

``commit.json`` is replaced as a whole and holds nothing but the commit's number, the caller's
state, the config that shapes results, the lengths, and the versions with their sizes: equal runs
leave equal bytes. ``.lock`` and ``.begun``, which names the files that the next commit brings or
removes, are this module's own, as are names that end in ``-`` and eight digits.

The lock is the kernel's (flock), so a dead holder's lock is free without anybody's doing. Left out:
locks between machines whose file system has no flock, Windows, and digests: content that another
program changed without changing a file's size is not noticed.
"""

from __future__ import annotations

import errno
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stageb.errors import InputError, JournalError
from stageb.store import commits, disk
from stageb.store.commits import BEGUN, COMMIT, PARTS, REMEDY, Version, Versions
from stageb.store.taking import take

_PLAIN = re.compile(r"[a-z0-9]([a-z0-9_ -]{0,46}[a-z0-9_-])?")
_HASHED = re.compile(r"(.*-)?[0-9a-f]{12}")


class Journal:
    """One run's folder, held by this process from ``open`` to ``close``.

    Methods raise ``JournalError`` if the disk fails; the last commit is intact then, and a new
    ``open`` resumes from it.
    """

    number: int  # of the last commit; 0 before the first
    _lengths: dict[str, int]  # of appended files, rows after the last commit included
    _versions: Versions
    _held: set[str]  # versions that kept commits list

    def __init__(
        self, folder: Path, lock: int, config: dict[str, Any], raised: tuple[str, ...]
    ) -> None:
        """Used by ``open`` alone."""
        self.folder = folder
        self.raised = raised  # limits that are higher than the last commit has them
        self._lock = lock
        self._config = config
        self._dirty: set[str] = set()  # appended files with rows that no commit covers yet
        self._staged: dict[str, Version] = {}  # file -> what the next commit lists
        self._begun: set[str] = set()  # what .begun names
        self._take_up(commits.read_commit(folder))

    @property
    def commit_file(self) -> Path:
        """The path of commit.json, which exists from the first commit on."""
        return self.folder / COMMIT

    @property
    def state(self) -> Any:
        """The state of the last commit, read from the disk; None before the first."""
        return commits.read_commit(self.folder)["state"]

    @classmethod
    def open(
        cls,
        root: str | Path,
        run_name: str,
        config: Mapping[str, Any],
        *,
        fresh: bool = False,
        ignored: tuple[str, ...] = (),
        limits: tuple[str, ...] = (),
    ) -> Journal:
        """Take ``{root}/{run_name}``: a new folder, or one that a run left, cut back to its last
        commit.

        ``config`` is what results depend on, nested; keys that begin with one of ``ignored``
        ("output.") may differ from the committed run's, and the numbers that ``limits`` name may be
        higher (``raised`` tells which are). ``fresh`` sets an old folder aside as ``{run_name}.1``,
        ``.2``, ... and begins anew; nothing is ever deleted.

        Raises ``InputError`` for a name that is no path component, a folder that no run made, or a
        config that differs; ``JournalError`` where another process holds the folder, a file lost
        committed bytes, or the disk refuses. Folders that it made before it refused are removed
        again.
        """
        if run_name in ("", ".", "..") or set(run_name) & set("/\\\0"):
            raise InputError(f"run name {run_name!r}: give one path component, without / or \\")
        folder = Path(root) / run_name
        shaping = {
            key: value
            for key, value in commits.flatten(config).items()
            if not key.startswith(ignored)
        }
        lock, raised = take(folder, shaping, fresh, limits)
        return cls(folder, lock, shaping, raised)

    def append(self, file: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add ``rows`` to the JSON Lines file named ``file`` (relative, with ``/``); they count
        from the next commit on."""
        path, data = self._path(file), disk.json_lines(rows)
        _check_no_version(file)
        with disk.reporting(path):
            if file not in self._lengths:
                self._claim(file, path)
            length = self._lengths[file]
            if path.stat().st_size != length:
                raise JournalError(f"{path}: another program changed it; {REMEDY}")
            self._dirty.add(file)
            disk.write_at(path, data, length)
            self._lengths[file] = length + len(data)

    def note(self, file: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add ``rows`` to the JSON Lines file named ``file``, outside of commits. A crash may cost
        the row being written."""
        path, data = self._path(file), disk.json_lines(rows)
        self._check_whole(file)
        with disk.reporting(path):
            disk.append(path, data)

    def notes(self, file: str) -> list[Any]:
        """The rows that ``note`` has added to ``file``, if any, without one that a crash cut
        off."""
        path = self._path(file)
        with disk.reporting(path):
            data = path.read_bytes() if path.exists() else b""
        return disk.whole_rows(path, data, disk.TAKE_OUT)

    def replace(self, file: str, text: str) -> None:
        """Make ``text`` the whole content of ``file``: after a crash it is the old content or the
        new."""
        path = self._path(file)
        self._check_whole(file)
        disk.write(path, text)

    def remove(self, file: str) -> None:
        """Remove a whole file, if it exists."""
        path = self._path(file)
        self._check_whole(file)
        with disk.reporting(path):
            path.unlink(missing_ok=True)

    def put(self, file: str, write: Callable[[Path], object]) -> None:
        """Make what ``write`` writes to the path that it is given the version of ``file`` from the
        next commit on.

        For instance ``put("weights/policy.safetensors", lambda path: save_file(tensors, path))``.
        The path has the suffix of ``file``. A second ``put`` before that commit takes the place of
        the first. Whatever ``write`` raises becomes a ``JournalError``: how libraries say that a
        disk is full differs.
        """
        path, version = self._path(file), Version(file, self.number + 1, 0)
        if file.startswith(f"{PARTS}/"):
            raise ValueError(f"{file!r} lies in {PARTS}/, where parts lie")
        with disk.reporting(path):
            self._begin([version.name])
            size = disk.place(
                self.folder / version.name, lambda beside: _write_beside(path, beside, write)
            )
        self._staged[file] = replace(version, size=size)

    def path(self, file: str) -> Path | None:
        """Where the version of ``file`` lies, one put since the last commit before others; good
        until the next. None where there is none."""
        self._path(file)
        version = self._staged.get(file) or self._versions.get(file)
        return self.folder / version.name if version else None

    def rows(self, file: str) -> list[Any]:
        """The rows appended to ``file`` so far, committed or not; none where nothing was."""
        path, length = self._path(file), self._lengths.get(file, 0)
        with disk.reporting(path):
            data = path.read_bytes()[:length] if length else b""
        return disk.whole_rows(path, data, REMEDY)

    def part(self, name: str) -> Any:
        """A part of the state as last committed; None where there is none."""
        path = self.path(_part_file(name))
        if path is None:
            return None
        with disk.reporting(path):
            data = path.read_bytes()
        try:
            return json.loads(data)
        except ValueError:
            raise JournalError(f"{path}: another program changed it; {REMEDY}") from None

    def commit(self, state: Any, parts: Mapping[str, Any] | None = None, keep: str = "") -> None:
        """Make everything appended and put so far, ``state`` (plain JSON) and ``parts`` what the
        next ``open`` finds.

        ``parts`` holds what has changed of them: name (any text) -> plain JSON, or None to drop
        one. Parts that it does not name stay as they are. Under the name ``keep``, if any, the
        commit before this one stays, to ``go_back`` to; where one was kept under it already, that
        one does.
        """
        self._check_held()
        number, files = (
            self.number + 1,
            {_part_file(name): value for name, value in (parts or {}).items()},
        )
        texts = {
            file: disk.json_lines([value]) for file, value in files.items() if value is not None
        }
        held = self._held
        if keep and self.number and commits.kept_file(keep) not in self._versions:
            with disk.reporting(self.folder):
                texts[commits.kept_file(keep)] = self.commit_file.read_bytes()
            held = held | self._versions.by_name().keys()
        written = {Version(file, number, len(data)): data for file, data in texts.items()}
        versions = Versions(self._versions | self._staged)
        versions |= {version.file: version for version in written}
        for file in files.keys() - texts.keys():
            versions.pop(file, None)
        content = {
            "number": number,
            "state": state,
            "config": self._config,
            "lengths": dict(sorted(self._lengths.items())),
            "versions": versions.to_plain(),
        }
        data, listed = disk.json_lines([content]), versions.by_name()
        with disk.reporting(self.folder):
            gone = self._versions.by_name().keys() - listed.keys() - held
            self._begin([version.name for version in written], gone)
            for version, text in written.items():
                disk.replace(self.folder / version.name, text)
            for file in sorted(self._dirty):
                disk.sync(self.folder / file)
            disk.replace(self.commit_file, data)
            self.number, self._versions, self._held = number, versions, held
            self._staged.clear()
            self._dirty.clear()
            commits.settle(self.folder, self._lengths.keys() | listed.keys() | held)
            self._begun.clear()

    def go_back(self, kept: str) -> None:
        """Make the commit that was kept under a name the last one again, and cut the folder back to
        it; nothing where none was. Commits kept since are gone then; those kept before it stay."""
        path = self.path(commits.kept_file(kept))
        if path is None:
            return
        with disk.reporting(self.folder):
            earlier = commits.read_kept(self.folder, path)
            listed = earlier["lengths"].keys() | earlier["versions"].by_name().keys()
            self._begin(
                (), (self._lengths.keys() | self._versions.by_name().keys() | self._held) - listed
            )
            disk.replace(self.commit_file, path.read_bytes())
            commits.cut_back(self.folder, earlier["lengths"], earlier["versions"])
        self._begun.clear()
        self._take_up(earlier)

    def close(self) -> None:
        """Give the folder back; what was appended and put since the last commit will be removed by
        the next ``open``."""
        if self._lock >= 0:
            # who held it is nobody's business now, and equal runs leave equal bytes
            os.truncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take_up(self, committed: Mapping[str, Any]) -> None:
        """Start from a commit that the folder was cut back to."""
        self.number, self._lengths = committed["number"], dict(committed["lengths"])
        self._versions = committed["versions"]
        self._held = commits.read_held(self.folder, self._versions)

    def _path(self, file: str) -> Path:
        """The place of ``file``, which must lie in the folder and be none of the journal's own."""
        self._check_held()
        if not commits.is_inside(file):
            raise ValueError(f"{file!r} is no place for a file of the run")
        return self.folder / file

    def _check_held(self) -> None:
        if self._lock < 0:
            raise ValueError("the journal is closed")

    def _check_whole(self, file: str) -> None:
        _check_no_version(file)
        if file in self._lengths:
            raise ValueError(
                f"{file!r} is appended to, and so is never replaced, removed or noted in"
            )

    def _claim(self, file: str, path: Path) -> None:
        """Make an empty file to append to."""
        self._begin([file])
        path.open("xb").close()
        disk.sync(path.parent)
        self._lengths[file] = 0

    def _begin(self, brought: Iterable[str], removed: Iterable[str] = ()) -> None:
        """Note the files that the next commit brings and removes before they are made: a crash
        leaves none that ``open`` does not know. Raises ``FileExistsError`` where another file is in
        the place of one."""
        new = [file for file in brought if file not in self._begun]
        for path in (self.folder / file for file in new):
            disk.make_folder(path.parent)
            if path.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        new += sorted(removed)
        if new:
            known = self.folder / BEGUN
            disk.append(known, "".join(f"{file}\n" for file in new).encode())
            disk.sync(known)
            disk.sync(self.folder)
            self._begun.update(new)


def safe_name(name: str) -> str:
    """``name`` as one path component: readable, at most 61 characters, safe on file systems that
    ignore case.

    Two names never share one: what is not plain as it stands, or looks like what is made here, ends
    in a hash of the name.
    """
    if _PLAIN.fullmatch(name) and not _HASHED.fullmatch(name):
        return name
    digest = disk.digest(name, 6)
    letters = "".join(
        letter if letter.isalnum() else "-"
        for letter in unicodedata.normalize("NFKC", name).lower()
    )
    slug = re.sub("-+", "-", letters)[:48].strip("-")
    return f"{slug}-{digest}" if slug else digest


def _check_no_version(file: str) -> None:
    if commits.is_name(file):
        raise ValueError(
            f"{file!r} is called as versions are, and so is never appended to, replaced, "
            f"removed or noted in"
        )


def _part_file(name: str) -> str:
    """The file that holds a part of the state."""
    return f"{PARTS}/{safe_name(name)}.json"


def _write_beside(path: Path, beside: Path, write: Callable[[Path], object]) -> None:
    """Have ``write`` write to ``beside``, for a version of ``path``."""
    try:
        write(beside)
    except OSError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0]
        raise JournalError(
            f"{path}: it could not be written: {said}; the last commit is intact"
        ) from error
    if not beside.is_file():
        raise ValueError(f"{path}: no file was written to the path given")
