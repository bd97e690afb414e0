"""Rows of numbers, flags and texts, and generated rules that speak of them alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from guidance.exports.kinds import KINDS, Cells, Kind, make_missions
from times import TIMES

from stageb.errors import InputError
from stageb.guidance.exports.decisions import Decisions, decide
from stageb.guidance.rules.candidates import reading

TYPED = {
    "TSH": ["6.3", "1", "0.25"],
    "FTI": ["64", "1", "-3"],
    "Type": ["H", "Low grade", "m"],
    "Cover": ["H", "torn", "Low grade"],
    "guard": ["True", "False"],
}
SPELLED = [
    "H",
    "h",
    "Low grade",
    "LOW  grade",
    " low grade ",
    "m",
    "M.",
    "torn",
    "Torn",
    "worn",
    "n/a",
    "torn .",
    "1a",
    "h..",
]


def draw_typed(draw: Random) -> Cells:
    texts = {name: draw.choice([*SPELLED, None]) for name in ("Type", "Cover")}
    numbers = {name: draw.choice([None, draw.randint(-4, 9), round(draw.uniform(-4, 99), 2), 1, 64, 6.3, 0.25]) for name in
               ("TSH", "FTI")}  # fmt: skip
    return {**numbers, **texts, "guard": draw.choice([True, False, None])}


COUNTED = {
    "plug": ["1", "0", "2"],
    "bolts": ["3", "1"],
    "depth": ["4", "2"],
    "lid": ["torn", "fine"],
}


def draw_counts(draw: Random) -> Cells:
    """Documents of images: whole numbers are counts, which are added up, and 0 where there is
    none."""

    def draw_one() -> object:
        counts = {
            name: draw.randint(0, 3) for name in ("plug", "bolts", "depth") if draw.random() < 0.7
        }
        return {**counts, **draw.choice([{"lid": draw.choice(["torn", "fine"])}, {}])}

    return {f"image_{n}": json.dumps(draw_one()) for n in range(1, draw.choice([2, 2, 3]))}


TYPED_KINDS = {
    "typed": Kind(TYPED, draw_typed, is_typed=True),
    "numbers": KINDS["numbers"],
    "counts": Kind(COUNTED, draw_counts, is_typed=True, is_json=True),
}


Rulings = list[tuple[str | None, str]]


def make_decided(
    name: str, missions: int, size: int
) -> Iterator[tuple[Decisions, list[Cells], Rulings]]:
    """Missions whose rules can all be said, their rows, and verdict and rule of each by code."""
    kind = TYPED_KINDS[name]
    for mission, rows in make_missions(name, kind, missions, size):
        rules = [rule for rule in mission.coded.each if can_say(mission, rule)]
        mission = replace(mission, coded=replace(mission.coded, each=rules))
        judge, tickets = mission.coded.compile(), mission.tickets
        rulings = [
            (None, "") if ticket.is_blank else judge(reading(ticket))[:2] for ticket in tickets
        ]
        asked = (
            rows if not kind.is_json else [type_pairs(reading(ticket).pairs) for ticket in tickets]
        )
        yield (
            decide(mission, "this form"),
            [{name: cell for name, cell in row.items() if cell != ""} for row in asked],
            rulings,
        )


def type_pairs(pairs: Any) -> Cells:
    return {
        name: float(value) if value.lstrip("-").replace(".", "", 1).isdigit() else value
        for name, value in pairs.items()
    }


def can_say(mission: Any, rule: Any) -> bool:
    try:
        decide(replace(mission, coded=replace(mission.coded, each=[rule])), "this form")
    except InputError:
        return False
    return True


SIZE = (2 * TIMES, 600 if TIMES > 1 else 60)  # missions, and rows of each
Judge = Callable[[Decisions, list[Cells]], Rulings]


def compare(
    judge: Judge, name: str, missions: int, size: int = 60, *, are_typed: bool = False
) -> int:
    """How many rows were judged, all of them as code judges them; ``are_typed``: an empty row is
    none yet."""
    told = 0
    for decisions, rows, expected in make_decided(name, missions, size):
        for row, wanted, found in zip(rows, expected, judge(decisions, rows), strict=True):
            is_none_yet = are_typed and all(row.get(name) is None for name in decisions.kinds)
            assert found == ((None, "") if is_none_yet else wanted), (
                row,
                found,
                wanted,
                [*decisions.mission.coded.each],
            )
            told += 1
    return told
