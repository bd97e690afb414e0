"""How a process takes a run's folder: locks it, sets it aside where a run begins anew, and cuts it
back to its last commit."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stageb.errors import JournalError
from stageb.store import commits, disk
from stageb.store.commits import LOCK


def take(
    folder: Path, config: Mapping[str, Any], fresh: bool, limits: tuple[str, ...]
) -> tuple[int, tuple[str, ...]]:
    """Lock a folder, made if it is missing, and cut it back to its last commit. Returns a file
    descriptor that holds the lock, and which of ``limits`` are higher than that commit has them.

    ``config`` is flat. Raises as ``Journal.open`` does; folders made before that are removed again.
    """
    with disk.reporting(folder):
        commits.check_place(folder)
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        lock = -1
        try:
            disk.make_named_folder(folder, commits.ANOTHER)
            lock = _lock_folder(folder)
            if fresh:
                lock = _set_aside(folder, lock)
            committed = commits.read_commit(folder)
            raised: tuple[str, ...] = ()
            if committed["number"]:
                raised = commits.check_config(
                    folder, committed["config"], config, commits.ELSEWHERE, limits
                )
            commits.cut_back(folder, committed["lengths"], committed["versions"])
        except BaseException:
            _undo(missing, lock)
            raise
    return lock, raised


def _lock_folder(folder: Path) -> int:
    """The folder's lock, as a file descriptor that holds it."""
    path = folder / LOCK
    try:
        lock = disk.lock_file(path)
    except BlockingIOError:
        holder = path.read_bytes()[:200].decode("utf-8", "replace") or "another process"
        raise JournalError(
            f"{folder}: {holder} is writing there; wait for it, end it, or choose another run name"
        ) from None
    try:
        os.truncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _undo(missing: Iterable[Path], lock: int) -> None:
    """Remove the folders that a refused ``open`` made, as long as its lock keeps others out of
    them, and give that back."""
    made = list(missing)
    if lock >= 0 and made:
        disk.quietly((made[0] / LOCK).unlink)
    for path in made:
        disk.quietly(path.rmdir)
    if lock >= 0:
        os.close(lock)


def _set_aside(folder: Path, lock: int) -> int:
    """Move a folder that holds anything to the first free ``{name}.N`` and begin an empty one; the
    lock on it."""
    if all(path.name == LOCK for path in folder.iterdir()):
        return lock
    folder.rename(disk.find_free_name(folder))
    folder.mkdir()
    disk.sync(folder.parent)
    taken = _lock_folder(folder)
    os.close(lock)
    return taken
