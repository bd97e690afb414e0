"""JSON Lines that others wrote, read strictly: what is wrong with a line, the remedy, and the pictures that a line names.

Who reads a file catches ``FaultError`` line by line, and tells all of them at once (``errors.BadInputError``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from stageb import pictures, strict_json
from stageb.clean_text import text_fault


class FaultError(Exception):
    """What is wrong, what to do about it, and at which line where that is not the one being read."""

    def __init__(self, what: str, remedy: str, line: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.line = line


def short(value: Any) -> str:
    """A value for a message."""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def filled_lines(path: str, kind: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1; ``kind`` is what stands on each, for messages.

    Raises ``FaultError`` about the file as a whole, as does ``lines``.
    """
    empty = True
    for number, line in lines(path, kind):
        if line.strip():
            empty = False
            yield number, line.removesuffix(b"\n")
    if empty:
        raise FaultError("empty", f"leave it out, or write a {kind} per line")


def lines(path: str, kind: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file as they come, with their numbers from 1."""
    try:
        with Path(path).open("rb") as opened:
            for number, line in enumerate(opened, 1):
                if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise FaultError("UTF-16, not UTF-8", "save it as UTF-8")
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except IsADirectoryError:
        raise FaultError("a folder", "name the files in it, or a pattern that the shell expands") from None
    except (OSError, ValueError) as error:  # a ValueError is about a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise FaultError(f"cannot be read: {why}", f"name a readable file of {kind}s") from error


def object_on(raw: bytes, shape: str) -> dict[str, Any]:
    """The object on one line; ``shape`` is how one looks, for messages. Raises ``FaultError``."""
    try:
        value = strict_json.loads(raw.decode("utf-8").strip())
    except UnicodeDecodeError as error:
        raise FaultError(f"not UTF-8 at byte {error.start} of the line", "save the file as UTF-8") from None
    except ValueError as error:
        raise FaultError(f"not JSON: {error}", "write one JSON object per line") from None
    if not isinstance(value, dict):
        raise FaultError("not a JSON object", f"write {shape}")
    return value


def picture_named(name: Any, folder: Path) -> str:
    """The path of the picture that a line names relative to ``folder``, once it was looked at. Raises ``FaultError``.

    It never leads out of ``folder``: a file from elsewhere must not be able to show a model, or a server, whatever else
    lies on this machine.
    """
    if not isinstance(name, str) or (fault := text_fault(name)):
        said = short(name) if not isinstance(name, str) else f"a name that holds {fault}"
        raise FaultError(f"images: {said}", "write the name of a file")
    if "://" in name:
        raise FaultError(f"images: {short(name)}, an address", "fetch it, and name the file")
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        remedy = "put it in there, and name it relative to that"
        raise FaultError(f"images: {short(name)} leads out of {folder}", remedy)
    path = str(folder / parts)
    try:
        pictures.look(path)
    except pictures.PictureError as error:
        raise FaultError(f"images: {name}: {error.what}", error.remedy) from None
    return path
