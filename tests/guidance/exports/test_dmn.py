"""Rules as a decision table, judged by feelin where ``STAGEB_NODE`` names a folder of Node's
modules that has it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.test_export import coded
from guidance.exports.typed import SIZE, TYPED_KINDS, compare

from stageb.guidance.exports.decisions import Decisions
from stageb.guidance.exports.dmn import DmnExporter, _Feel
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.words.types import Content, Ticket

JUDGE = Path(__file__).parent / "judge.js"


def ask_node(form: str, document: str, rows: list[Any]) -> list[Any]:
    if "STAGEB_NODE" not in os.environ:
        pytest.skip("STAGEB_NODE names no modules")
    # modules are found beside the script
    copy = Path(os.environ["STAGEB_NODE"]) / f"judge-{os.getpid()}.cjs"
    copy.write_text(JUDGE.read_text())
    asked = json.dumps({"form": form, "document": document, "rows": rows})
    ran = subprocess.run(
        ["node", str(copy)], input=asked, capture_output=True, text=True, check=False
    )
    copy.unlink()
    assert ran.returncode == 0, ran.stderr
    found: list[Any] = json.loads(ran.stdout)
    return found


def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    document = DmnExporter().write([decisions.mission], DIALECTS["sqlite"]).files
    assert isinstance(document, str)
    names = _Feel(decisions).names
    asked = [{safe: row.get(name) for name, safe in names.items()} for row in rows]
    return [(verdict, rule or "") for verdict, rule in ask_node("table", document, asked)]


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_the_table_gives_the_verdict_and_the_rule_that_code_gives(name: str) -> None:
    assert compare(judge, name, *SIZE) > 100


def test_a_table_has_a_row_for_each_way_in_which_a_rule_holds() -> None:
    """As an auditor reads it; - asks for nothing. Rows without a verdict are a person's."""
    texts = [
        "Pass if Grade is good unless Torque is missing.",
        "Fail if Torque is above 30 and below 39.5 or Torque is below Width.",
    ]
    cells = [("Grade", "good"), ("Torque", "41"), ("Width", "3")]
    known = Ticket("m", "g", "pass", (("image_1", "x"),), content=Content(tuple(cells), ()))
    mission = replace(
        coded(texts, [known]), tickets=(known,), numeric=frozenset({"Torque", "Width"})
    )
    document = DmnExporter().write([mission], DIALECTS["sqlite"]).files
    assert isinstance(document, str)
    table = next(
        each
        for each in ElementTree.fromstring(document).iter()
        if each.tag.endswith("decisionTable")
    )
    of = {"dmn": "https://www.omg.org/spec/DMN/20191111/MODEL/"}
    labels = [each.get("label") for each in table.findall("dmn:input", of)]
    rows = [
        " ".join(str(each.text) for each in row.iterfind("*/dmn:text", of))
        for row in table.findall("dmn:rule", of)
    ]
    assert labels == ["Grade", "Torque", "Torque < Width", "Width"]
    why = "the row does not tell whether"
    assert rows == [
        f'"good" not(null) - - "pass" "G1" {texts[0]}',
        f'null, "" (30..39.5) - - null null {why} G1',
        f'null, "" - true - null null {why} G1',
        f'- (30..39.5) - - "fail" "G2" {texts[1]}',
        f'- - true - "fail" "G2" {texts[1]}',
        f"- null - - null null {why} G2",
        f"- - - null null null {why} G2",
        '- - - - "pass" "G0" no rule speaks of it',
    ]
