"""JSON as the standard defines it, and JSON Lines, for text that others wrote: what is wrong with
it, where, the remedy."""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from stageb.errors import BadLine, shown
from stageb.untrusted import pictures
from stageb.untrusted.clean_text import text_fault

# A string without an end is one to the end, so that no text is looked at twice.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]:]|-?Infinity|NaN', re.DOTALL)
# far beyond what any file here holds, far below where a reader or writer would run out of stack
MAX_DEPTH = 64


def loads(text: str) -> Any:
    """The value that ``text`` holds.

    Raises ``ValueError`` (of which ``json.JSONDecodeError`` is one) with one readable line for
    everything that ``json.loads`` lets pass and that would be lost or break later: a key given
    twice, NaN and infinities, numbers beyond a float, half a surrogate pair, nesting deeper than
    ``MAX_DEPTH``.
    """
    try:
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(value):
            raise ValueError("nested too deeply")
        if "\\u" in text:  # only an escape can make half a pair
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("an escape that is half a surrogate pair") from None
    except ValueError as error:
        # as Python says of one, with what its programmer could do
        if "integer string" in str(error):
            raise ValueError("a whole number of more than 4300 digits") from None
        raise
    return value


def find_key_lines(text: str) -> dict[tuple[str, ...], int]:
    """On which line of ``text``, which ``loads`` has read, each key of an object stands, by the
    keys that lead there."""
    found: dict[tuple[str, ...], int] = {}
    path: list[str] = []
    word = '""'
    for token, line in _scan(text):
        if token in "{[":
            path.append("")
        elif token in "}]":
            path.pop()
        elif token == ":":
            path[-1] = json.loads(word)
            found.setdefault(tuple(path), line)
        else:
            word = token
    return found


def find_fault(text: str) -> int:
    """On which line of ``text`` stands what ``loads`` refuses though ``json`` would not: a key for
    the second time in its object, or no number; 0 where neither does. ``text`` need not be JSON."""
    # of each object and list that is open, its keys' lines
    inside: list[dict[str, list[int]]] = [{}]
    word = '""'
    for token, line in _scan(text):
        if token in "{[":
            inside.append({})
        elif token in "}]" and len(inside) > 1:
            places = max(inside.pop().values(), key=len, default=[])
            if len(places) > 1:
                return places[1]
        elif token == ":":
            inside[-1].setdefault(word, []).append(line)
        elif token.endswith(("NaN", "Infinity")):
            return line
        else:
            word = token
    return 0


def _scan(text: str) -> Iterator[tuple[str, int]]:
    """The brackets, colons, strings and non-numbers of ``text``, each with the line on which it
    stands."""
    line, read = 1, 0
    for token in _TOKEN.finditer(text):
        line, read = line + text.count("\n", read, token.start()), token.start()
        yield token[0], line


def _is_too_deep(value: Any) -> bool:
    """Whether lists and objects nest too deeply; without recursion, since depth is the question."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for outer in level for inner in _list_items(outer)]
    return bool(level)


def _list_items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, unless a key stands in it twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key!r} is given twice")
    return made


def _float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)


# JSON Lines that others wrote, read strictly: what is wrong with a line, the remedy, and the
# pictures that a line names.
#
# Who reads a file catches ``FaultError`` line by line, and tells all of them at once
# (``errors.BadInputError``).

MOST_LINE = 64 << 20  # bytes of a line, in files that people write


class FaultError(Exception):
    """A fault, its remedy, and its line where that is not the one being read."""

    def __init__(self, what: str, remedy: str, line: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.line = line

    def in_file(self, path: str, line: int = 0) -> BadLine:
        """The same, found in the file ``path`` while ``line`` was read; 0: while all of it was."""
        return BadLine(path, self.line or line, self.what, self.remedy)


def short(value: Any) -> str:
    """A value for a message."""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def filled_lines(path: str, kind: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not blank, with their numbers from 1; ``kind`` is what stands on
    each, for messages.

    Raises ``FaultError`` about the file as a whole, as does ``lines``.
    """
    empty = True
    for number, line in lines(path, kind):
        if line.strip():
            empty = False
            yield number, line.removesuffix(b"\n")
    if empty:
        raise FaultError("empty", f"leave it out, or write a {kind} per line")


def open_named(path: str) -> BinaryIO:
    """Open a file that a user names: a pipe is one, too."""
    return Path(path).open("rb")


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Tell why a file of ``kind`` that is opened inside cannot be read, by ``FaultError``."""
    try:
        yield
    except IsADirectoryError:
        raise FaultError(
            "a folder", "name the files in it, or a pattern that the shell expands"
        ) from None
    except UnicodeDecodeError as error:
        raise FaultError(f"not UTF-8 at byte {error.start}", "save the file as UTF-8") from error
    except (OSError, ValueError) as error:  # a ValueError is about a name that no file can have
        why = getattr(error, "strerror", None) or error
        raise FaultError(f"cannot be read: {why}", f"name a readable file of {kind}s") from error


def lines(
    path: str, kind: str, open_it: Callable[[str], BinaryIO] = open_named, most: int = MOST_LINE
) -> Iterator[tuple[int, bytes]]:
    """The lines of a file as they come, of ``most`` bytes each, with their numbers from 1."""
    with reading(kind), open_it(path) as opened:
        for number, line in enumerate(iter(lambda: opened.readline(most + 1), b""), 1):
            if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise FaultError("UTF-16, not UTF-8", "save it as UTF-8")
            if number == 1 and b"\0" in line:
                raise FaultError(
                    "not a text file",
                    f"name a file of {kind}s; is it a spreadsheet, save it as CSV (UTF-8)",
                )
            if len(line) > most:  # such as the hole in a sparse file, which would fill the memory
                raise FaultError(
                    f"line {number} is over {most >> 20} MiB",
                    f"name a file of {kind}s, one per line",
                )
            yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def object_on(raw: bytes, shape: str) -> dict[str, Any]:
    """The object on one line; ``shape`` is how one looks, for messages. Raises ``FaultError``."""
    try:
        value = loads(raw.decode("utf-8").strip())
    except UnicodeDecodeError as error:
        raise FaultError(
            f"not UTF-8 at byte {error.start} of the line", "save the file as UTF-8"
        ) from None
    except ValueError as error:
        raise FaultError(f"not JSON: {error}", "write one JSON object per line") from None
    if not isinstance(value, dict):
        raise FaultError("not a JSON object", f"write {shape}")
    return value


def file_named(name: Any, folder: Path) -> str:
    """The real path of what a line, or another file, names relative to ``folder``. Raises
    ``FaultError``.

    It never leads out of ``folder``, by no link either: a file from elsewhere must not be able to
    show a model, or a server, whatever else lies on this machine. ``folder`` itself may be a link.
    What is opened is this path (``disk.open_file``), so that a link put there later leads nowhere.
    """
    if not isinstance(name, str) or (fault := text_fault(name)):
        said = short(name) if not isinstance(name, str) else f"a name that holds {fault}"
        raise FaultError(said, "write the name of a file")
    if "://" in name:
        raise FaultError(f"{short(name)}, an address", "fetch it, and name the file")
    remedy = "put it in there, and name it relative to that"
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise FaultError(f"{short(name)} leads out of {folder}", remedy)
    try:
        within, path = (os.path.realpath(each, strict=True) for each in (folder, folder / parts))
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            remedy = "put it there, or name it as it is called, relative to the file that names it"
            raise FaultError(f"{shown(name, 100)}: no such file", remedy) from None
        raise FaultError(
            f"{shown(name, 100)}: cannot be read: {error.strerror}", "make it readable"
        ) from None
    if not Path(path).is_relative_to(within):
        raise FaultError(
            f"{short(name)} leads out of {folder} by a link",
            f"{remedy}; no link in there may lead out",
        )
    return path


def resolve_picture(name: Any, folder: Path) -> str:
    """``file_named`` of a picture, once its header was looked at. Raises ``FaultError``."""
    return _resolve_picture(name, folder, pictures.look)[0]


def upright_picture_named(name: Any, folder: Path) -> tuple[str, tuple[int, int]]:
    """``resolve_picture``, and its width and height as the camera held it. Raises
    ``FaultError``."""
    return _resolve_picture(name, folder, pictures.look_upright)


def _resolve_picture(
    name: Any, folder: Path, look: Callable[[str], tuple[int, int]]
) -> tuple[str, tuple[int, int]]:
    try:
        path = file_named(name, folder)
        return path, look(path)
    except FaultError as fault:
        raise FaultError(f"images: {fault.what}", fault.remedy) from None
    except pictures.PictureError as error:
        raise FaultError(f"images: {shown(str(name), 100)}: {error.what}", error.remedy) from None
