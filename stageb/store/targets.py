"""What may be written where a user says so: a plain file that is no input of the command, and no run's own.

Commands ask before any work, so that nobody waits for rows that cannot be written, or loses what they were made from.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from stageb.errors import InputError, shown
from stageb.store import disk

NAME = "name a file to write"


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
