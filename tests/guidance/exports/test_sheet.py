"""Rules as a workbook: its formulas by what Excel says of them, and computed by LibreOffice where
``STAGEB_OFFICE`` names its program."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch
from xml.etree import ElementTree

import pytest
from guidance.exports.kinds import Cells, Kind, make_ticket
from guidance.exports.typed import TYPED_KINDS, compare
from times import TIMES

from stageb.guidance.exports.decisions import Decisions, decide
from stageb.guidance.exports.protocol import CodedMission, code_mission
from stageb.guidance.rules.judge import CodedRules, read_rules
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Guidance, Rule

PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load"><prop oor:name="OOXMLRecalcMode"><value>0</value></prop></item>
</oor:items>"""


XLSX = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"


class Fault:
    """#DIV/0!, which all that is made of it is, too."""

    def absorb(self, *others: object) -> Any:
        return self

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = absorb
    __hash__ = None  # type: ignore[assignment]


FAULT = Fault()


class Number(float):
    """A number in a cell."""

    def __truediv__(self, other: float) -> Any:
        return float(self) / float(other) if other else FAULT


class Empty(Number):
    """An empty cell, which is equal to 0, to FALSE and to an empty text."""

    def __eq__(self, other: object) -> bool:
        return other in ("", 0)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "AND": lambda *parts: FAULT if any(each is FAULT for each in parts) else all(parts),
    "OR": lambda *parts: FAULT if any(each is FAULT for each in parts) else any(parts),
    "NOT": lambda part: FAULT if part is FAULT else not part,
    "IF": lambda when, one, other: FAULT if when is FAULT else one if when else other,
    "ISBLANK": lambda cell: isinstance(cell, Empty),
    "ISNUMBER": lambda cell: isinstance(cell, Number) and not isinstance(cell, Empty),
    "ISLOGICAL": lambda cell: isinstance(cell, bool),
    "LEN": lambda cell: 0 if isinstance(cell, Empty) else len(str(cell)),
}
TOKEN = re.compile(
    r'"(?P<text>(?:[^"]|"")*)"|(?P<cell>(?:Judge!)?\$[A-Z]+3)|(?P<sign><>|(?<![<>])=)'
)


def spell(token: re.Match[str]) -> str:
    """A part of a formula in Python."""
    if token["sign"]:
        return "!=" if token["sign"] == "<>" else "=="
    return f"cells[{token[0]!r}]" if token["cell"] else repr(token["text"].replace('""', '"'))


def fold(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(" .")


def read_rows(book: zipfile.ZipFile, number: int) -> list[list[str]]:
    """The texts and formulas in the rows of a sheet, each where its reference says."""
    strings = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
    texts = ["".join(each.itertext()) for each in strings]
    sheet = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))
    found: dict[tuple[int, int], str] = {}
    for cell in sheet.iter(f"{XLSX}c"):
        text = next(cell.itertext(), "")  # a formula stands before what it came to
        column, row = re.fullmatch("([A-Z]+)([0-9]+)", cell.get("r", "")).groups()  # type: ignore[union-attr]
        found[int(row), place_of(column)] = texts[int(text)] if cell.get("t") == "s" else text
    deep, wide = (max(each) for each in zip(*found, strict=True))
    return [
        [found.get((row, place), "") for place in range(wide + 1)] for row in range(1, deep + 1)
    ]


def place_of(column: str) -> int:
    place = 0
    for letter in column:
        place = place * 26 + ord(letter) - 64
    return place - 1


CHOICE = re.compile(
    r'IF\(COUNTA\(A3(?::([A-Z]+)3)?\)=0,"",INDEX\(Rules!\$([A-Z]+)\$2:\$\2\$([0-9]+),'
    r'MATCH\(TRUE,Steps!([A-Z]+)3:([A-Z]+)3,0\)\)&""\)'
)


def write_two_rows(decisions: Decisions) -> zipfile.ZipFile:
    sheet = pytest.importorskip("stageb.guidance.exports.sheet")
    with patch.object(sheet, "ROWS", 2):
        return zipfile.ZipFile(io.BytesIO(sheet.write_workbook(decisions)))


def tell_by_formulas(decisions: Decisions, rows: list[Cells]) -> list[dict[str, str]]:
    """What the formulas of the last row that can be typed say in the columns of their names, with
    each row typed there; what folds texts is taken for granted."""
    with write_two_rows(decisions) as book:
        (names, _, judged), (heads, _, steps), rules = (
            read_rows(book, number) for number in (1, 2, 3)
        )
    folded = sum(head.endswith(", folded") for head in heads)
    tests = [
        compile("None" if place < folded else TOKEN.sub(spell, step), "", "eval")
        for place, step in enumerate(steps)
    ]
    choices = {
        name: choice.groups()
        for name, formula in zip(names[-3:], judged[-3:], strict=True)
        if (choice := CHOICE.fullmatch(formula))
    }

    def tell(row: Cells) -> dict[str, str]:
        cells: dict[str, Any] = {}
        for place, name in enumerate(names[:-3]):
            cell = row.get(name)
            is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
            typed = Empty() if cell is None else Number(cell) if is_number else cell
            cells[f"Judge!${chr(65 + place)}3"] = typed
        for place, head in enumerate(heads[:folded]):
            cells[f"${chr(65 + place)}3"] = fold(row.get(head.removesuffix(", folded")) or "")
        known = {**FUNCTIONS, "TRUE": True, "FALSE": False, "cells": cells}
        told = {}
        for name, (typed_last, column, last, first, last_step) in choices.items():
            typed = names[: place_of(typed_last or "A") + 1]
            asked = range(place_of(first), place_of(last_step) + 1)
            chosen = next(n for n, at in enumerate(asked) if eval(tests[at], known) is True)
            listed = [each[place_of(column)] for each in rules[1 : int(last)]]
            told[name] = listed[chosen] if any(row.get(each) is not None for each in typed) else ""
        return told

    return [*map(tell, rows)]


def judge_by_formulas(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    return [
        (None if told["verdict"] in ("person", "") else told["verdict"], told["rule"])
        for told in tell_by_formulas(decisions, rows)
    ]


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_its_formulas_give_the_verdict_and_the_rule_that_code_gives(name: str) -> None:
    assert compare(judge_by_formulas, name, 10 * TIMES, are_typed=True) > 500


def decide_on_rows(rules: list[str], rows: list[dict[str, str]]) -> Decisions:
    kind = Kind({}, lambda draw: {}, is_typed=True)
    tickets = [make_ticket(kind, row) for row in rows]
    texts = [WORDS["en"].neutral_headline, *rules]
    listed = tuple(Rule(f"G{n}", text) for n, text in enumerate(texts))
    guidance = Guidance("m", 1, listed, len(listed))
    coded = read_rules(guidance, Vocabulary.of(tickets), WORDS["en"])
    return decide(code_mission(guidance, coded, kind.columns, tickets, True), "a workbook")


TYPED_ROWS = [
    {"Torque": "40", "guard": "True", "Seal": "worn"},
    {"Torque": "3.5", "guard": "False", "Seal": "new"},
]


def test_a_cell_that_holds_what_no_rule_can_read_leaves_its_row_to_a_person() -> None:
    """Programs refuse such a cell where it is typed, and not where it is pasted."""
    rules = ["Fail if Torque is above 39.5.", "Fail if guard is false.", "Fail if Seal is worn."]
    rows: list[Cells] = [
        {"Torque": "much", "guard": True},
        {"Torque": 40, "guard": "no"},
        {"Torque": 40, "Seal": "x" * 256},
        {"Torque": 40, "guard": False, "Seal": "x" * 255},
        {"Torque": 3, "guard": True, "Seal": "new"},
    ]
    told = tell_by_formulas(decide_on_rows(rules, TYPED_ROWS), rows)
    assert [(*each.values(),) for each in told] == [
        ("person", "", "Torque is no number"),
        ("person", "", "guard is no flag"),
        ("person", "", "Seal is too long"),
        ("fail", "G1", rules[0]),
        ("pass", "G0", "no rule speaks of it"),
    ]


def test_columns_refuse_what_is_typed_into_them_and_is_no_number_or_flag() -> None:
    """In every row; any text can be typed into a column of texts."""
    decisions = decide_on_rows(["Fail if Torque is above 3.", "Fail if guard is true."], TYPED_ROWS)
    with write_two_rows(decisions) as book:
        names, sheet = (
            read_rows(book, 1)[0],
            ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml")),
        )
    refused = {each.get("sqref"): each for each in sheet.iter(f"{XLSX}dataValidation")}
    assert names[:3] == ["Torque", "guard", "Seal"]
    assert {place: each.get("type") for place, each in refused.items()} == {
        "A2:A3": "decimal",
        "B2:B3": "list",
    }
    assert [*refused["B2:B3"].itertext()] == ['"TRUE,FALSE"']


def test_a_workbook_without_columns_can_be_opened() -> None:
    """Its formulas name cells that there are."""
    mission = CodedMission("m", 1, CodedRules([]))
    with write_two_rows(decide(mission, "a workbook")) as book:
        _, _, judged = read_rows(book, 1)
    assert all(map(CHOICE.fullmatch, judged))


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_the_sheet_gives_the_verdict_and_the_rule_that_code_gives(
    name: str, tmp_path: Path
) -> None:
    sheet = pytest.importorskip("stageb.guidance.exports.sheet")
    if "STAGEB_OFFICE" not in os.environ:
        pytest.skip("STAGEB_OFFICE names no program")
    (tmp_path / "profile/user").mkdir(parents=True)
    (tmp_path / "profile/user/registrymodifications.xcu").write_text(PROFILE)

    def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
        (tmp_path / "rules.xlsx").write_bytes(sheet.write_workbook(decisions, rows))
        profile = f"-env:UserInstallation=file://{tmp_path}/profile"
        convert = [
            "--headless",
            "--convert-to",
            "csv:Text - txt - csv (StarCalc):44,34,76",
            "--outdir",
            str(tmp_path),
        ]
        command = [os.environ["STAGEB_OFFICE"], profile, *convert, str(tmp_path / "rules.xlsx")]
        subprocess.run(command, check=True, capture_output=True)
        with (tmp_path / "rules.csv").open(encoding="utf-8", newline="") as opened:
            found = [*csv.DictReader(opened)][: len(rows)]
        rulings = [(each["verdict"], each["rule"]) for each in found]
        rulings += [("", "")] * (len(rows) - len(rulings))  # empty rows at the end
        return [(None if verdict in ("person", "") else verdict, rule) for verdict, rule in rulings]

    assert compare(judge, name, max(2, TIMES // 2), 60 if TIMES == 1 else 999, are_typed=True) > 100
