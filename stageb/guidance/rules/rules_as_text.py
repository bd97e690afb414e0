"""The format of rules as plain text, which people write and keep: a list, a rule a line.

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
import re
from collections.abc import Iterable
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
