"""What may be written where a user says so: a plain file that is no input of the command, and no run's own.

Commands ask before any work, so that nobody waits for rows that cannot be written, or loses what they were made from.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from stageb.errors import InputError, StagebError, shown
from stageb.store import commits, disk

NAME, ANOTHER = "name a file to write", "name another file"

# At the top of a run's folder, beside what its commits list; the last ones are folders.
RUN_FILES = {commits.COMMIT, "config.yaml", "run.json", "timings.jsonl", "report.html", "curves.png", "README.md"}
RUN_FILES |= {commits.PARTS, "csv", "tensorboard"}


def check_plain(path: Path, suffix: str = "") -> None:
    """Raise ``InputError`` where ``path`` is none that a file can have, or something else stands there; ``suffix`` ends the
    name of what is written beside it."""
    try:
        os.lstat(path.with_name(f"{disk.UNFINISHED}{path.name}{suffix}"))  # only to hear whether that name can be
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # a ValueError is about an empty name, or one that no file can have
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{shown(str(path), 100)}: {why}; {NAME}") from None
    if path.is_dir():
        raise InputError(f"{path}: a folder; {NAME}")
    if os.path.lexists(path) and not _is_plain(path):
        raise InputError(f"{path}: not a file; {NAME}")


def check_target(path: Path, inputs: Mapping[str, Iterable[str]], suffix: str = "", own: Path | None = None) -> None:
    """Raise ``InputError`` where nothing may be written to ``path``: as ``check_plain``, or it is a file of ``inputs`` (by
    what they are: "tickets"), or a run's, unless it is ``own``."""
    check_plain(path, suffix)
    for what, files in inputs.items():
        if any(_is_same(path, Path(file)) for file in files):
            raise InputError(shown(f"{path}: it holds the {what}; {ANOTHER}"))
    if _is_of_run(path) and not (own and os.path.realpath(own) == os.path.realpath(path)):
        raise InputError(shown(f"{path}: belongs to a run, whose files say what it learnt; {ANOTHER}"))


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # one of them is not there: what has to be is told by who reads it
        return False


def _is_of_run(path: Path) -> bool:
    """Whether the nearest run's folder above holds ``path`` under a name of the run's own, there or yet to come; what others
    put into such a folder is theirs."""
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
    return any(file.partition("/")[0] == first for file in (*committed["lengths"], *committed["versions"]))


def _is_plain(path: Path) -> bool:
    """Whether a file stands there, or a link to one. Names of devices, and of what a process has open, are none, whatever
    they lead to: a commit could not be put beside them."""
    place = os.path.realpath(path.parent)
    if place == "/dev" or f"{place}/".startswith("/proc/"):
        return False
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link that leads nowhere
        return False
