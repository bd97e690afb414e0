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
from guidance.exports.kinds import Cells
from guidance.exports.typed import TYPED_KINDS, compare
from times import TIMES

from stageb.guidance.exports.decisions import Decisions

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
    r'"(?P<text>(?:[^"]|"")*)"|(?P<cell>(?:Judge!)?\$[A-Z]+2)|(?P<sign><>|(?<![<>])=)'
)


def spell(token: re.Match[str]) -> str:
    """A part of a formula in Python."""
    if token["sign"]:
        return "!=" if token["sign"] == "<>" else "=="
    return f"cells[{token[0]!r}]" if token["cell"] else repr(token["text"].replace('""', '"'))


def fold(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(" .")


def read_rows(book: zipfile.ZipFile, number: int) -> list[list[str]]:
    """The texts and formulas in the rows of a sheet."""
    strings = ElementTree.fromstring(book.read("xl/sharedStrings.xml"))
    texts = ["".join(each.itertext()) for each in strings]
    sheet = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))

    def read(cell: ElementTree.Element) -> str:
        text = next(cell.itertext(), "")  # a formula stands before what it came to
        return texts[int(text)] if cell.get("t") == "s" else text

    return [[*map(read, row)] for row in sheet.iter(f"{XLSX}row")]


def judge_by_formulas(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    """The formulas of the first row that can be typed, with each row typed there; what folds texts
    is taken for granted."""
    sheet = pytest.importorskip("stageb.guidance.exports.sheet")
    with patch.object(sheet, "ROWS", 1):
        written = sheet.write_workbook(decisions)
    with zipfile.ZipFile(io.BytesIO(written)) as book:
        (names, *_), (heads, steps), (_, *rules) = (read_rows(book, number) for number in (1, 2, 3))
    folded = sum(head.endswith(", folded") for head in heads)
    tests = [compile(TOKEN.sub(spell, step), "", "eval") for step in steps[folded:]]

    def decide(row: Cells) -> tuple[str | None, str]:
        cells: dict[str, Any] = {}
        for place, name in enumerate(names[:-3]):
            cell = row.get(name)
            is_number = isinstance(cell, int | float) and not isinstance(cell, bool)
            typed = Empty() if cell is None else Number(cell) if is_number else cell
            cells[f"Judge!${chr(65 + place)}2"] = typed
        for place, head in enumerate(heads[:folded]):
            cells[f"${chr(65 + place)}2"] = fold(row.get(head.removesuffix(", folded")) or "")
        known = {**FUNCTIONS, "TRUE": True, "FALSE": False, "cells": cells}
        key, verdict, _ = next(
            rule for rule, test in zip(rules, tests, strict=True) if eval(test, known) is True
        )
        return (None, "") if verdict == "person" else (verdict, key)

    return [
        decide(row) if any(row.get(name) is not None for name in names) else (None, "")
        for row in rows
    ]


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_its_formulas_give_the_verdict_and_the_rule_that_code_gives(name: str) -> None:
    assert compare(judge_by_formulas, name, 10 * TIMES, are_typed=True) > 500


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
