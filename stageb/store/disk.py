"""The few file operations whose every instant matters. They raise ``OSError``; ``reporting`` tells
it to people."""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, StringIO
from pathlib import Path
from typing import Any

from stageb.errors import InputError, JournalError

# Line breaks, controls and turns of direction that JSON itself leaves as they are.
_UNSEEN = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
UNFINISHED = ".unfinished-"  # begins the name of a file that is being written beside its place

OUT_OF_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # or broken: no fault of the name

_REMEDIES = {
    errno.ENOSPC: "free some space and run again",
    errno.EDQUOT: "free some space and run again",
    errno.EFBIG: "raise the limit on file sizes and run again",
    errno.EACCES: "make it writable, or choose another folder",
    errno.EPERM: "make it writable, or choose another folder",
    errno.EROFS: "choose a folder that can be written",
    errno.ENOTDIR: "a file stands in the way; move it, or choose another folder",
    errno.EEXIST: "a file stands in the way; move it, or choose another folder",
    errno.ENOENT: "another program removed it; set the run's folder aside and start anew",
}


class NotAFileError(OSError):
    """A folder, a pipe, a device or a link stands where a file should."""


@contextmanager
def reporting(path: Path, intact: str = "the last commit") -> Iterator[None]:
    """Turn ``OSError`` into ``JournalError``: which path, why, the remedy, and what is still
    ``intact``."""
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "fix it and run again")
        raise JournalError(
            f"{error.filename or path}: {error.strerror or error}; {remedy}; {intact} is intact"
        ) from error


TAKE_OUT = "take the row out"
# made once: rows are many
_encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def json_text(value: Any) -> str:
    """``value`` as strict JSON on one line, whatever its reader takes for a line break, that moves
    no terminal.

    Raises ``ValueError`` for NaN and infinities.
    """
    text = _encode_json(value)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def json_lines(rows: Iterable[Any]) -> bytes:
    """Rows, or other plain values, as JSON Lines; keys are in the order given."""
    return encode("".join(f"{json_text(row)}\n" for row in rows))


def csv_line(cells: Iterable[str], separator: str) -> str:
    """A row of a table, without its end."""
    # csv puts a line break in quotes only where its own lines end with that character
    writer = csv.writer(text := StringIO(newline=""), delimiter=separator, lineterminator="\r\n")
    writer.writerow(cells)
    return text.getvalue().removesuffix("\r\n")


def whole_rows(path: Path, data: bytes, remedy: str) -> list[dict[str, Any]]:
    """The rows of ``data``, JSON Lines from ``path``; one that a crash cut off is left out. Raises
    ``JournalError`` where one is no object."""
    return [
        parse_object(line, f"{path}:{number}", remedy)
        for number, line in enumerate(data.split(b"\n")[:-1], 1)
    ]


def parse_object(data: bytes, place: str, remedy: str) -> dict[str, Any]:
    """The JSON object that this package wrote to ``place``. Raises ``JournalError`` if it is
    none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise JournalError(f"{place}: another program changed it; {remedy}")
    return found


def encode(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which that cannot hold, becomes the JSON escape that means the
    same."""
    return text.encode("utf-8", "backslashreplace")


def digest(data: str | bytes, size: int = 16) -> str:
    """BLAKE2b, ``size`` bytes of it, as hex digits."""
    plain = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    return hashlib.blake2b(plain, digest_size=size).hexdigest()


def open_file(path: str | Path) -> BufferedReader:
    """Open a file for reading whose name is untrusted, without blocking, touching a device or
    following a link.

    A caller that allows links resolves and checks the path first, and opens the result.
    """
    _check_file(os.lstat(path))  # before it is opened: that alone changes some devices
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check_file(os.fstat(descriptor))  # another one may have come in between
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def write_at(path: Path, data: bytes, position: int) -> None:
    """Make ``data`` what follows ``position`` in the file; where that fails, cut the file back to
    there."""
    with path.open("r+b", buffering=0) as opened:
        opened.truncate(position)
        opened.seek(position)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[opened.write(rest) or 0 :]
        except OSError:
            quietly(lambda: opened.truncate(position))
            raise


def end_of_rows(path: Path) -> int:
    """The offset at which the last complete line of a file ends; anything after it was left by a
    crash."""
    with path.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - 1))
        if opened.read() in (b"", b"\n"):
            return size
        opened.seek(0)
        return opened.read().rfind(b"\n") + 1


def append(path: Path, data: bytes) -> None:
    """Add ``data`` behind the last complete line of a file, which is made if it is missing."""
    make_folder(path.parent)
    path.touch()
    write_at(path, data, end_of_rows(path))


def replace(path: Path, data: bytes) -> None:
    """Make ``data`` the content of ``path``: written beside it, brought to the disk, put in its
    place."""
    place(path, lambda beside: beside.write_bytes(data))


def write(
    path: Path, content: str | bytes | Callable[[Path], object], intact: str = "the last commit"
) -> None:
    """``replace``, or ``place`` where ``content`` is what writes to a path. Raises
    ``JournalError``."""
    with reporting(path, intact):
        if callable(content):
            place(path, content)
        else:
            replace(path, encode(content) if isinstance(content, str) else content)


def replace_unsynced(path: Path, data: bytes) -> None:
    """``replace`` without waiting for the disk: for one of many files, which a call that was killed
    writes again."""
    make_folder(path.parent)
    beside = name_draft(path)
    beside.unlink(missing_ok=True)
    beside.write_bytes(data)
    beside.replace(path)


def name_draft(path: Path) -> Path:
    """Where what is to be the content of ``path`` is written first; a crash may leave it there."""
    return path.with_name(f"{UNFINISHED}{path.name}")


def place(path: Path, write: Callable[[Path], object]) -> int:
    """Make what ``write`` writes to the path that it is given the content of ``path``; its size in
    bytes.

    That path lies beside ``path`` and has its suffix, which some writers go by.
    """
    make_folder(path.parent)
    beside = name_draft(path)
    # what a crash left; or a link, which would have another file written
    beside.unlink(missing_ok=True)
    try:
        write(beside)
        sync(beside)
        size = beside.stat().st_size
        beside.replace(path)
    except BaseException:
        quietly(beside.unlink)
        raise
    sync(path.parent)
    return size


def holds(path: Path, data: bytes) -> bool:
    """Whether ``path`` is a file, or leads to one, of just these bytes; one that cannot be read is
    none."""
    try:
        return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False


def lock_file(path: Path, wait: bool = False) -> int:
    """Lock a file, created if it does not exist; returns a descriptor that holds the lock until it
    is closed. The kernel (flock) releases the lock of a process that died.

    Raises ``BlockingIOError`` if another process holds the lock, unless this is to ``wait``.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        # it was set aside between the two calls
        if not wait and os.fstat(lock).st_ino != path.stat().st_ino:
            raise BlockingIOError
    except BaseException:
        os.close(lock)
        raise
    return lock


def find_free_name(path: Path, suffix: str = "") -> Path:
    """The first of ``{path}.1``, ``{path}.2``, ... that names nothing, with ``suffix`` behind it
    neither."""
    number = 1
    while any(os.path.lexists(f"{path}.{number}{each}") for each in ("", suffix)):
        number += 1
    return path.with_name(f"{path.name}.{number}")


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, and bring their names to the disk."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync(path.parent)


def check_place(folder: Path, instead: str) -> None:
    """Raise ``InputError`` where ``folder``, as a user named it, is none and cannot be made;
    ``instead`` is what to give."""
    near = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not near.is_dir():
        raise InputError(f"{folder}: {near} is no folder; give {instead}")
    if near != folder and not os.access(near, os.W_OK | os.X_OK):
        raise InputError(
            f"{folder}: cannot be made, since {near} may not be written to; give {instead}"
        )
    if near != folder and (why := _find_refusal(near)):
        raise InputError(f"{folder}: cannot be made ({why}); give {instead}")


def _find_refusal(folder: Path) -> str:
    """Why the system lets nobody make a folder in ``folder``, as in /proc, where permissions do not
    tell; empty where it does, or lacks space alone. It is tried where the file system has no
    blocks: nowhere that holds files of people."""
    if os.statvfs(folder).f_blocks:
        return ""
    probe = folder / f".{uuid.uuid4().hex}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return "" if error.errno in OUT_OF_SPACE else error.strerror or str(error)
    return ""


def make_named_folder(folder: Path, instead: str) -> None:
    """``make_folder`` for a name of the user's. Raises ``InputError`` as ``check_place``; also
    where the system refuses."""
    check_place(folder, instead)
    try:
        make_folder(folder)
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise
        raise InputError(f"{folder}: cannot be made ({error.strerror}); give {instead}") from error


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def quietly(act: Callable[[], object]) -> None:
    """Clean up as far as possible while another error is already being raised."""
    try:
        act()
    except OSError:
        return


def _check_file(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotAFileError(errno.EINVAL, "not a file")
