"""Rules as a plain text file that a person writes: one rule a line, under the name of its mission.

    # what stands after a # at the beginning of a line is not read
    [rack cabling]
    G0. A ticket passes unless a rule fails it.
    Fail if label is missing.
    G4. Fail if connector is loose.

``[mission]`` begins a mission, named as the tickets name it. A line gets the number that it begins with, ``G4.``, or else
the next one after the line before; numbers grow. ``G0.`` is the headline; a mission without one gets the neutral one. White
space around a line, and empty lines, do not count.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from stageb.errors import BadInputError, BadLine
from stageb.guidance.words.types import HEADLINE_KEY

_NUMBERED = re.compile(r"G([0-9]{1,9})\.(.*)")
_NEARLY_NUMBERED = re.compile(r"[Gg]([0-9]+|[nxNX]?)(?=[\s:.)])\S?")
VERDICTS = ("fail", "pass", "fails", "passes", "failed", "passed")
_HEADING = re.compile(r"\[(.*\S.*)\]")


def parse(text: str, path: str, headline: str) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """The content of ``text`` as a guidance.json would hold it, and the line of each of its keys, by those that lead there.

    Rules are not checked here, but that they have a mission and growing numbers. Raises ``BadInputError`` with every fault.
    """
    content: dict[str, dict[str, Any]] = {}
    lines: dict[tuple[str, ...], int] = {}
    bad: list[BadLine] = []
    mission, last = "", 0
    for at, line in enumerate((line.strip() for line in text.split("\n")), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            mission, last = _parse_heading(line), 0
            if not mission or mission in content:
                remedy = "write [the mission] on a line of its own" if not mission else "write its rules in one place"
                bad.append(BadLine(path, at, "no mission's name" if not mission else f"[{mission}] stands twice", remedy))
            content[mission] = {"experiences": {HEADLINE_KEY: headline}}
            lines[mission,] = at
        elif not content:
            bad.append(BadLine(path, at, "a rule of no mission", "write [the mission] on a line above it"))
        else:
            if fault := _slip(line):
                bad.append(BadLine(path, at, *fault))
            numbered = _NUMBERED.fullmatch(line)
            number = int(numbered[1]) if numbered else last + 1
            place = (mission, "experiences", f"G{numbered[1] if numbered else number}")
            if number <= last and (last or place in lines):
                bad.append(BadLine(path, at, f"{place[2]} after G{last}", "let numbers grow, or leave them out"))
            content[mission]["experiences"][place[2]] = numbered[2].strip() if numbered else line
            lines[place], last = at, number
    if not content and not bad:
        bad.append(BadLine(path, 0, "no mission and no rule", "write [the mission], and its rules below, one a line"))
    if bad:
        raise BadInputError("places in the guidance", bad)
    return content, lines


def _slip(line: str) -> tuple[str, str] | None:
    """What is wrong with a line that begins like a number or a verdict and is neither, and the remedy. A rule may have any
    words, so such a line would be taken for one, number and all."""
    words = line.split()
    if _NUMBERED.fullmatch(line) is None and (number := _NEARLY_NUMBERED.match(line)):
        return f"{number[0]!r} is no number", "write a number and a dot, as in G3. Fail if ..., or leave it out"
    if _NUMBERED.fullmatch(line):
        words = words[1:] or [line.partition(".")[2]]
    first, second = [*words, "", ""][:2]
    if second not in ("if", "unless", "when") or first.casefold() in VERDICTS:
        return None
    near = difflib.get_close_matches(first.casefold(), VERDICTS[:2], n=1, cutoff=0.7)
    return (f"{first!r} is no verdict", f"did you mean {near[0].capitalize()}?") if near else None


def _parse_heading(line: str) -> str:
    """The mission that a heading names; empty where it is none."""
    heading = _HEADING.fullmatch(line)
    return heading[1].strip() if heading else ""
