"""One reading of a ticket: rules as code, exported Python and exported SQL judge any row alike,
whatever its cells hold."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from random import Random

import pytest
from guidance.rules.made_rules import judge_by_python, judge_by_sql
from times import TIMES

from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.exports.sql import limit_to_sql
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
    Expression,
    Limit,
    Missing,
    Not,
    OneOf,
    Order,
    OutOfReach,
    Same,
)
from stageb.guidance.rules.judge import read_rules, write_rule
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary, find_letters
from stageb.guidance.tickets.headers import list_roles
from stageb.guidance.tickets.tickets import read_entries
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Guidance, Rule, Ticket

ROWS = 200 * TIMES
NAMES = ["No. of cracks", "Temp. [°C]", "Length, max", "Seal: state", "Ort", "A is B"]
VALUES = (
    "worn|Worn.|worn  left|worn\nleft|worn\xa0left|wo\u200brn|dusty, "
    "cleaned|dusty|straße|Straße|STRASSE|STRAßE|Köln|"
    "Köln|ＫÖＬＮ|ı|İ|ǆ|ς|Σ|漏油|一 二 三 四 五 六|a b c d e f|'; --|\"|%|_|\\|ok。|x.|.|..|10³|5½|½"
).split("|")
NUMBERS = (
    "1|1.0|01|-2.5|+3|−4|.5|5.|4.2e4|1e-05|1e5|1,5|1.234,5|83 731|31'824|$7|7 $|250 cm|2500 "
    "mm|2.5 m|5 mW|5 MW|5 m2|"
    "4 m²|5 个|5 MW૭|5万|５|٣|3 -|3-|--3|1.2.3|12:30|2024-05-01|5 days|1 day|1e400|5 e|5e|0,5 "
    "mm|0,5 mm, x|-,5|inf|nan|0x1F"
).split("|")


def make_cell(draw: Random) -> str:
    cell = draw.choice(draw.choice([VALUES, NUMBERS]))
    if draw.random() < 0.3:
        cell = draw.choice([cell.upper(), cell.title(), f" {cell} ", f"{cell}\t", cell * 2])
    if draw.random() < 0.1:
        place = draw.randrange(len(cell) + 1)
        cell = (
            cell[:place]
            + chr(draw.choice([draw.randrange(33, 127), draw.randrange(0xA1, 0x3000)]))
            + cell[place:]
        )
    return "" if draw.random() < 0.1 else cell


def make_condition(
    draw: Random, values: dict[str, list[str]], numbers: dict[str, list[str]]
) -> Expression:
    one, other = draw.sample(NAMES, 2)
    relation = draw.choice(
        ["is", "above", "below", "equals", "differs", "over", "under", "count", "within", "missing"]
    )
    if relation == "missing":
        is_missing = Missing(one)
        return is_missing if draw.random() < 0.5 else Not(is_missing)
    if relation == "count":
        return AtLeast(1, tuple(OneOf(name, (draw.choice(values[name]),)) for name in (one, other)))
    if relation == "is":
        return OneOf(one, (draw.choice(values[one]),))
    if relation == "within":
        return All(
            (
                Limit(one, "above", draw.choice(numbers[one])),
                Limit(one, "below", draw.choice(numbers[one])),
            )
        )
    if relation in ("above", "below"):
        found = Limit(one, "above" if relation == "above" else "below", draw.choice(numbers[one]))
        return Not(found) if draw.random() < 0.2 else found
    if relation in ("over", "under"):
        return Order(one, "above" if relation == "over" else "below", other)
    return Same(one, other, relation == "equals")


@pytest.mark.parametrize("decimal", [".", ","])
def test_a_table_is_judged_alike_by_code_by_python_and_by_sql_or_sql_says_nothing(
    tmp_path: Path, decimal: str
) -> None:
    draw = Random(f"one reading {decimal}")
    columns = ColumnsConfig(mission_name="m", group_id="Key", label="Verdict", decimal=decimal)  # type: ignore[arg-type]
    rows = [
        {"Key": f"k{n}", **{name: make_cell(draw) for name in NAMES}, "Verdict": "pass"}
        for n in range(ROWS // 2)
    ]
    rows = [row for row in rows if "\0" not in "".join(row.values())]
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    (path := tmp_path / "t.csv").write_text(table.getvalue(), encoding="utf-8", newline="")
    tickets: list[Ticket] = []
    for row, entry in zip(list(rows), read_entries(str(path), columns), strict=True):
        tickets.append(
            entry.ticket(False)
            if any(row[name].strip() for name in NAMES)
            else Ticket("m", "", "pass", ())
        )
    readings = list(map(reading, tickets))
    vocabulary = Vocabulary.of(tickets)
    values = {
        name: sorted({each.pairs[name] for each in readings if name in each.pairs})
        for name in NAMES
    }
    numbers = {
        name: [value for value in values[name] if value in NUMBERS[:13]] or ["3"] for name in NAMES
    }
    roles, letters = list_roles(columns), find_letters(readings)
    decided = 0
    for _ in range(30):
        text = write_rule(RuleCode("fail", make_condition(draw, values, numbers)), WORDS["en"])
        rules = read_rules(Guidance("m", 0, (Rule("G1", text),), 2), vocabulary, WORDS["en"])
        mission = limit_to_sql(CodedMission("m", 0, rules, roles, False, letters))
        if isinstance(mission.coded.each[0].code, OutOfReach):
            continue
        judge, by_python = rules.compile(), judge_by_python([mission])
        for row, read, (said, _) in zip(rows, readings, judge_by_sql(mission, rows), strict=True):
            expected = judge(read).verdict
            if any(row[name].strip() for name in NAMES):
                assert by_python(row).verdict == expected, (text, row)
            assert said in (expected, None), (text, row, expected)
            decided += said is not None
    assert decided > 10 * len(rows)
