"""Small runs to report on: hostile, Chinese, unfinished, and such as learn nothing."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from programs import small

from stageb.__main__ import main
from stageb.guidance.commands.report import REPORT

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f'</svg></title></style>{SCRIPT} "a" & {{{{ 7 * 7 }}}} $x^2$ \ufffe'
CHINESE = "二号机组泵房软管接头与密封件巡检任务"
MISSIONS = (CHINESE, HOSTILE)
SAID = (
    SCRIPT,
    "</dd></table><iframe src='javascript:alert(2)'>",
    "\u202eover\u2066ride\u200f",
    "X" * 5000,
    "a\nb\tc\0d",
)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def command(*words: str) -> Ended:
    """Run ``stageb`` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return Ended(code, out.getvalue(), err.getvalue())


def fit(root: Path, tickets: Path, **keys: Any) -> Ended:
    """A small run, into ``root/run``; ``keys`` with ``__`` for the dot."""
    dotted = {"report": True, **{key.replace("__", "."): value for key, value in keys.items()}}
    return command(*small.arguments(tickets, root, keys=dotted))


def page(root: Path) -> str:
    """The report of the run in ``root/run``."""
    return (root / "run" / REPORT).read_text("utf-8")


def tickets(path: Path, *missions: str, groups: int = 160) -> Path:
    """Tickets whose names and texts are hostile; those of the last mission fail at random, so that
    much stays wrong."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in _rows(missions, groups))
    return path


def _rows(missions: tuple[str, ...], groups: int) -> Iterator[dict[str, Any]]:
    for mission in missions:
        for number, row in enumerate(small.rows(mission, groups)):
            wrong = mission == missions[-1] and number % 3 == 0
            yield {
                **row,
                "group_id": f"{SCRIPT}{'W' * (number % 7) * 40}{number}",
                "label": {"pass": "fail", "fail": "pass"}[row["label"]] if wrong else row["label"],
                "per_image": {**row["per_image"], "image_3": SAID[number % len(SAID)]},
            }
