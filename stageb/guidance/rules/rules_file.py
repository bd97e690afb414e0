"""Rules in files that people keep: as plain text, and with every version that was ever in use.

    # what stands after a # at the beginning of a line is not read
    [rack cabling]
    G0. A ticket passes unless a rule fails it.
    Fail if label is missing.
    G4. Fail if connector is loose.
    G5 (fixed). Fail if a summary mentions water.

``[mission]`` begins a mission, named as the tickets name it. A line gets the number that it begins
with, ``G4.``, or else the next one after the line before; numbers grow. A number may be marked:
``(fixed)`` for a rule that learning leaves as it is, ``(background)`` for what is no rule and read
before them, ``(provisional)`` for one without proof. ``G0.`` is the headline; a mission without one
gets the neutral one. Labels other than pass and fail stand on a line of their own, ``labels: low |
high``, the one first that tickets have of which no rule speaks. White space around a line, and
empty lines, do not count.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stageb.errors import BadInputError, BadLine
from stageb.guidance.rules.prompts import Words, name_labels
from stageb.guidance.words.texts import labels_fault
from stageb.guidance.words.types import (
    BACKGROUND,
    FIXED,
    HEADLINE_KEY,
    PASS_FAIL,
    PROVISIONAL,
    Guidance,
)
from stageb.store import disk
from stageb.untrusted import strict_json

_NUMBERED = re.compile(rf"G([0-9]{{1,9}})(?: \(({FIXED}|{BACKGROUND}|{PROVISIONAL})\))?\.(.*)")
_NEARLY_NUMBERED = re.compile(r"[Gg]([0-9]+|[nxNX]?)(?=[\s:.)])\S?")
VERDICTS = ("fail", "pass", "fails", "passes", "failed", "passed")
LABELS, BETWEEN = "labels:", "|"
_HEADING = re.compile(r"\[(.*\S.*)\]")


def parse(text: str, path: str, words: Words) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """Parse ``text`` into the content of a guidance.json, and the line of each of its keys, by the
    keys that lead there.

    Only this is checked here: rules have a mission and growing numbers. Raises ``BadInputError``
    with every fault.
    """
    content: dict[str, dict[str, Any]] = {}
    lines: dict[tuple[str, ...], int] = {}
    bad: list[BadLine] = []
    mission, last = "", 0
    for at, line in enumerate((line.strip() for line in text.split("\n")), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            heading = _HEADING.fullmatch(line)
            mission, last = heading[1].strip() if heading else "", 0
            if not mission or mission in content:
                remedy = (
                    "write [the mission] on a line of its own"
                    if not mission
                    else "write its rules in one place"
                )
                bad.append(
                    BadLine(
                        path,
                        at,
                        "no mission's name" if not mission else f"[{mission}] stands twice",
                        remedy,
                    )
                )
            content[mission] = {
                "experiences": {HEADLINE_KEY: words.neutral_headline},
                "metadata": {},
            }
            lines[mission,] = at
        elif content and line.startswith(LABELS):
            labels = tuple(label.strip() for label in line.removeprefix(LABELS).split(BETWEEN))
            content[mission]["labels"], lines[mission, "labels"] = labels, at
            if content[mission]["experiences"][
                HEADLINE_KEY
            ] == words.neutral_headline and not labels_fault(labels):
                content[mission]["experiences"][HEADLINE_KEY] = name_labels(
                    words, labels
                ).neutral_headline
        elif not content:
            bad.append(
                BadLine(path, at, "a rule of no mission", "write [the mission] on a line above it")
            )
        else:
            if fault := _slip(line):
                bad.append(BadLine(path, at, *fault))
            numbered = _NUMBERED.fullmatch(line)
            number = int(numbered[1]) if numbered else last + 1
            place = (mission, "experiences", f"G{numbered[1] if numbered else number}")
            if number <= last and (place in lines or (last and "labels" not in content[mission])):
                bad.append(
                    BadLine(
                        path, at, f"{place[2]} after G{last}", "let numbers grow, or leave them out"
                    )
                )
            content[mission]["experiences"][place[2]] = numbered[3].strip() if numbered else line
            if numbered and numbered[2]:
                content[mission]["metadata"][place[2]] = {numbered[2]: True}
            lines[place], last = at, max(number, last)
    if not content and not bad:
        bad.append(
            BadLine(
                path,
                0,
                "no mission and no rule",
                "write [the mission], and its rules below, one a line",
            )
        )
    if bad:
        raise BadInputError("places in the guidance", bad)
    return content, lines


def write(found: Iterable[Guidance]) -> str:
    """Write guidance as ``parse`` reads it, except what is not in its rules."""
    missions = (
        [
            f"[{of.mission}]",
            *([f"{LABELS} {f' {BETWEEN} '.join(of.labels)}"] if of.labels != PASS_FAIL else []),
            *(f"{rule.key}{rule.mark}. {rule.text}" for rule in of.rules),
        ]
        for of in found
    )
    return "\n\n".join("\n".join(lines) for lines in missions) + "\n"


def _slip(line: str) -> tuple[str, str] | None:
    """Say what is wrong with a line that begins like a number or a verdict and is neither, and the
    remedy. A rule may have any words, so such a line would be taken for one, number and all."""
    words = line.split()
    if _NUMBERED.fullmatch(line) is None and (number := _NEARLY_NUMBERED.match(line)):
        return (
            f"{number[0]!r} is no number",
            "write a number and a dot, as in G3. Fail if ..., or leave it out",
        )
    if _NUMBERED.fullmatch(line):
        words = line.partition(".")[2].split()
    first, second = [*words, "", ""][:2]
    if second not in ("if", "unless", "when") or first.casefold() in VERDICTS:
        return None
    near = difflib.get_close_matches(first.casefold(), VERDICTS[:2], n=1, cutoff=0.7)
    return (f"{first!r} is no verdict", f"did you mean {near[0].capitalize()}?") if near else None


# The history of a guidance file that is kept for many runs: every version of a mission that was
# ever in use there.
#
# ``shared.history.jsonl`` lies beside ``shared.json``, one row a change: ``mission, step, action,
# source, at, by`` and the ``guidance`` from then on, in the form of a guidance.json. Steps of a
# mission are never given twice, so ``shared.json@4`` names one guidance for good. It is also what
# writers of the file lock, since it is never replaced.
#
# A row is written once the new file lies complete beside the old one, and before it takes its
# place, so that nothing is in use without a row. A last row whose file still lies beside was
# interrupted in between: it is not read, and the next writer takes it out.

FIELDS = {
    "mission": str,
    "step": int,
    "action": str,
    "source": str,
    "at": str,
    "by": str,
    "guidance": dict,
}


def history_path(path: Path) -> Path:
    """Return the path of the history of the guidance file at ``path``."""
    return path.with_name(f"{path.stem}.history.jsonl")


def read_history(path: Path) -> list[dict[str, Any]]:
    """Read the changes of the guidance file at ``path``, oldest first; none where nothing was ever
    put there by a command.

    A row that a crash cut off is left out, and so is one whose guidance did not come into use.
    Raises ``BadInputError`` where another program wrote something else.
    """
    rows = list(_read_rows(path))
    return rows[:-1] if rows and _is_pending(path, rows[-1]) else rows


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    history = history_path(path)
    try:
        data = history.read_bytes() if history.is_file() else b""
    except OSError as error:
        raise BadInputError(
            "rows of history", [BadLine(str(history), 0, str(error.strerror), "make it readable")]
        ) from error
    for line, row in enumerate(data.split(b"\n")[:-1], 1):
        try:
            read = strict_json.loads(row.decode())
            if (
                isinstance(read, dict)
                and {name: type(value) for name, value in read.items()} == FIELDS
            ):
                yield read
                continue
            what = f"not a row of {', '.join(FIELDS)}"
        except ValueError as error:
            what = f"not JSON in UTF-8: {error}"
        raise BadInputError(
            "rows of history", [BadLine(str(history), line, what, "remove it, or correct it")]
        )


def _is_pending(path: Path, row: Mapping[str, Any]) -> bool:
    """Whether the last row is about guidance that lies beside the file, written before the row was,
    and is not in use."""
    beside, body = disk.name_draft(path), row["guidance"].get(row["mission"])
    try:
        if beside.stat().st_mtime_ns > history_path(path).stat().st_mtime_ns:
            return False
        return bool(_read_body(beside, row["mission"]) == body != _read_body(path, row["mission"]))
    except OSError:  # most often since nothing lies there
        return False


def _read_body(path: Path, mission: str) -> Any:
    """Read the body of a mission in a guidance file, as it stands there; None where there is none,
    or no such file."""
    try:
        content = strict_json.loads(path.read_bytes().decode())
    except (FileNotFoundError, ValueError):
        return None
    return content.get(mission) if isinstance(content, dict) else None


def append_row(path: Path, row: Mapping[str, Any]) -> int:
    """Add one more change, on the disk when this returns, and return where its row begins. Raises
    ``OSError``, and leaves no row then."""
    history = history_path(path)
    position = disk.end_of_rows(history)
    disk.write_at(history, disk.json_lines([row]), position)
    try:
        disk.sync(history)
    except BaseException:
        disk.quietly(lambda: cut_rows(path, position))
        raise
    return position


def cut_rows(path: Path, position: int) -> None:
    """Take out the rows from ``position`` on. Raises ``OSError``."""
    os.truncate(history_path(path), position)


def clear_interrupted(path: Path) -> None:
    """Take out what a crash left: a last row whose guidance did not come into use, and that
    guidance. The caller holds the file.

    Raises ``OSError``.
    """
    rows = list(_read_rows(path))
    if rows and _is_pending(path, rows[-1]):
        whole = history_path(path).read_bytes()
        end = whole.rfind(b"\n")
        cut_rows(path, whole.rfind(b"\n", 0, end) + 1)
        disk.sync(history_path(path))
    disk.name_draft(path).unlink(missing_ok=True)


@contextmanager
def hold_history(path: Path) -> Iterator[None]:
    """Keep other processes from changing the guidance file at ``path``; wait for one that does.
    Raises ``OSError``."""
    disk.make_folder(path.parent)
    lock = disk.lock_file(history_path(path), wait=True)
    try:
        yield
    finally:
        os.close(lock)


# The guidance.json of this design's first implementation: rules S1, S2, ... that learning left
# alone, the time of the last change, and at times what the mission looks at.


def adopt(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same as this one writes it: such rules are fixed, numbered behind the others; what
    the mission looks at is the headline where there is none. Other content stays as it is."""
    return {
        mission: _adopt(body) if isinstance(body, dict) else body
        for mission, body in content.items()
    }


def _adopt(body: Mapping[str, Any]) -> dict[str, Any]:
    rules, known = body.get("experiences"), body.get("metadata", {})
    rest = {name: value for name, value in body.items() if name not in ("updated_at", "focus")}
    if (
        not isinstance(rules, dict)
        or not isinstance(known, dict)
        or not all(isinstance(each, dict) for each in known.values())
    ):
        return rest
    if body.get("focus") and HEADLINE_KEY not in rules:
        rules = {HEADLINE_KEY: body["focus"], **rules}
    first = 1 + max([int(key[1:]) for key in rules if re.fullmatch("G[0-9]{1,9}", key)], default=0)
    keys = {
        key: f"G{n}"
        for n, key in enumerate((key for key in rules if re.fullmatch("S[0-9]{1,9}", key)), first)
    }
    if keys:
        fixed = {new: {**known.get(key, {}), FIXED: True} for key, new in keys.items()}
        rest["metadata"] = {
            **{key: each for key, each in known.items() if key not in keys},
            **fixed,
        }
    return {**rest, "experiences": {keys.get(key, key): text for key, text in rules.items()}}
