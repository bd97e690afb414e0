"""Rules as JSON Logic, evaluated by a library of others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.test_dmn import ask_node
from guidance.exports.typed import TYPED_KINDS, Judge, compare
from times import TIMES

from stageb.guidance.exports.decisions import Decisions
from stageb.guidance.exports.json_rules import JsonLogicExporter
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.rules.value_types import clean_value
from stageb.untrusted.clean_text import fold_value


def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    apply = pytest.importorskip("jsonlogic_rs").apply
    text = JsonLogicExporter().write([decisions.mission], DIALECTS["sqlite"]).files
    assert isinstance(text, str)
    logic = json.loads(text)["missions"]["m"]["logic"]
    return [tuple(apply(logic, {name: fold(cell) for name, cell in row.items()})) for row in rows]


def fold(cell: Any) -> Any:
    """A cell as the export's columns say."""
    return (fold_value(clean_value(cell)) or None) if isinstance(cell, str) else cell


def judge_by_node(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    text = JsonLogicExporter().write([decisions.mission], DIALECTS["sqlite"]).files
    assert isinstance(text, str)
    asked = [{name: fold(cell) for name, cell in row.items()} for row in rows]
    return [tuple(each) for each in ask_node("logic", text, asked)]


@pytest.mark.parametrize("by", [judge, judge_by_node])
@pytest.mark.parametrize("name", TYPED_KINDS)
def test_json_logic_gives_the_verdict_and_the_rule_that_code_gives(name: str, by: Judge) -> None:
    assert compare(by, name, 10 * TIMES) > 500
