"""JSON as the standard defines it, for text that others wrote: ticket files, seed guidance, a model's answers."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]|-?Infinity|NaN')
MAX_DEPTH = 64  # far beyond what any file here holds, far below where a reader or writer would run out of stack


def loads(text: str) -> Any:
    """The value that ``text`` holds.

    Raises ``ValueError`` (of which ``json.JSONDecodeError`` is one) with one readable line for everything that
    ``json.loads`` lets pass and that would be lost or break later: a key given twice, NaN and infinities, numbers beyond
    a float, half a surrogate pair, nesting deeper than ``MAX_DEPTH``.
    """
    try:
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > MAX_DEPTH and _deeper(value):
            raise ValueError("nested too deeply")
        if "\\u" in text:  # only an escape can make half a pair
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("an escape that is half a surrogate pair") from None
    return value


def lines(text: str) -> dict[tuple[str, ...], int]:
    """On which line of ``text``, which ``loads`` has read, each key of an object stands, by the keys that lead there."""
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
    """On which line of ``text`` stands what ``loads`` refuses though ``json`` would not: a key for the second time in its
    object, or no number; 0 where neither does. ``text`` need not be JSON."""
    inside: list[dict[str, list[int]]] = [{}]  # of each object and list that is open, its keys' lines
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
    """The brackets, colons, strings and non-numbers of ``text``, each with the line on which it stands."""
    line, read = 1, 0
    for token in _TOKEN.finditer(text):
        line, read = line + text.count("\n", read, token.start()), token.start()
        yield token[0], line


def _deeper(value: Any) -> bool:
    """Whether lists and objects nest too deeply; without recursion, since depth is the question."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for outer in level for inner in _inside(outer)]
    return bool(level)


def _inside(value: Any) -> list[Any]:
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
