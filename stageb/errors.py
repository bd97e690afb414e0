"""The tree of errors. Each says what was wrong, where, and the remedy; the command line prints it
in one piece.

``StagebError`` is what a caller catches. ``exit_code`` is what a shell sees: 2 for input that a
person can mend before any work starts, 1 for a run that broke.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


def shown(text: str, limit: int | None = None) -> str:
    """``text`` as a terminal may print it: on one line, with escapes for all that hides or moves,
    cut at ``limit``."""
    text = text if limit is None else text[: limit + 1]
    text = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
    return text if limit is None or len(text) <= limit else f"{text[: limit - 3]}..."


CALLER = ContextVar("STAGEB_CALLER", default="shell")  # or IN_PYTHON: who is to follow remedies
IN_PYTHON = "python"
FEW = 3  # equal faults that are told one by one


def write_option(key: str, value: object = True) -> str:
    """How the caller gives ``key`` a value, as remedies write it: ``--fresh``,
    ``--price.missed_failure 20``, ``--columns passes=WORD,fails=WORD`` and ``--columns.rename
    '{"Part no.": "Part"}'`` in a shell; ``fresh=True``, ``price={'missed_failure': 20}``, ... in
    Python."""
    name, *inner = key.split(".")
    if CALLER.get() == IN_PYTHON:
        for part in reversed(inner):
            value = {part: value}
        return f"{name}={value!r}"
    if isinstance(value, dict):
        is_plain = all(re.fullmatch(r"[\w.*-]*", str(each)) for each in (*value, *value.values()))
        listed = ",".join(f"{part}={each}" for part, each in value.items())
        value = (
            listed
            if is_plain
            else shlex.quote(json.dumps(value, ensure_ascii=not f"{value}".isprintable()))
        )
    return f"--{key}" if value is True else f"--{key} {'null' if value is None else value}"


class StagebError(Exception):
    """Base of every error that stageb raises on purpose."""

    exit_code = 1


class InputError(StagebError):
    """Something that the user gave cannot be used; nothing was started and nothing was written."""

    exit_code = 2


class ConfigError(InputError):
    """A config value is wrong: names its key, its value and the remedy."""

    def __init__(self, key: str, value: object, remedy: str) -> None:
        super().__init__(shown(f"config: {shown(key, 200)}: {shown(repr(value), 200)}: {remedy}"))
        self.key = key
        self.value = value
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class BadLine:
    """One unusable place in an input file."""

    path: str  # the file, as the user named it
    line: int  # 1-based; 0 where the whole file is meant
    what: str  # what is wrong
    remedy: str  # what to do about it

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return shown(f"{place}: {shown(self.what, 400)}; {self.remedy}")


class BadInputError(InputError):
    """Input files have unusable lines; ``bad`` holds all of them, so that one reading mends them
    all. The message tells equal faults of a file once, with their number and where the first few
    stand."""

    shown = 20

    def __init__(self, kind: str, bad: Sequence[BadLine]) -> None:
        if len(bad) == 1:
            kind = re.sub(r"^((ticket )?\w+?)s\b", r"\1", kind)  # one place, not places
        groups = _group_equal(bad)
        lines = [
            f"{len(bad)} unusable {kind}:",
            *(f"  {_describe_group(group)}" for group in groups[: self.shown]),
        ]
        if more := sum(map(len, groups[self.shown :])):
            lines.append(f"  ... and {more} more")
        super().__init__("\n".join(lines))
        self.bad = tuple(bad)


def _group_equal(bad: Sequence[BadLine]) -> list[list[BadLine]]:
    """Bad lines in order, those of many equal faults of one file together."""
    equal: dict[tuple[str, str, str], list[BadLine]] = {}
    for line in bad:
        equal.setdefault((line.path, line.what, line.remedy), []).append(line)
    groups = []
    for line in bad:
        alike = equal[line.path, line.what, line.remedy]
        if len(alike) <= FEW or not line.line:
            groups.append([line])
        elif alike[0] is line:
            groups.append(alike)
    return groups


def _describe_group(group: Sequence[BadLine]) -> str:
    first = group[0]
    if len(group) == 1:
        return str(first)
    places = ", ".join(str(line.line) for line in group[:FEW])
    what = f"{shown(first.what, 400)} (on {len(group):,} lines: {places}, ...)"
    return shown(f"{first.path}:{first.line}: {what}; {first.remedy}")


class EngineError(StagebError):
    """A language model could not be loaded or could not answer."""


class JournalError(StagebError):
    """A run's folder cannot be used or written; the last commit is intact."""


class RankError(StagebError):
    """A rank failed. Every rank ends with the same error: which rank, at what, and why."""

    def __init__(self, rank: int, where: str, cause: str, trace: str = "") -> None:
        super().__init__(f"rank {rank} failed at {where}: {cause}")
        self.rank = rank
        self.where = where
        self.cause = cause
        self.trace = trace  # the failing rank's traceback; empty where stageb raised on purpose


@contextmanager
def at(where: str) -> Iterator[None]:
    """Say where an error happened: ``with at(f"ticket {key}"):`` notes it on whatever is raised
    inside.

    The innermost note comes first, and is what a ``RankError`` names.
    """
    try:
        yield
    except BaseException as error:
        error.add_note(where)
        raise
