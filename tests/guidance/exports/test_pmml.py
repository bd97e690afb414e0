"""Rules as PMML, scored by pypmml where it and Java are installed, and ``STAGEB_PMML`` is set."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.typed import SIZE, TYPED_KINDS, compare

from stageb.guidance.exports.decisions import Decisions
from stageb.guidance.exports.pmml import PmmlExporter
from stageb.guidance.exports.sql_dialects import DIALECTS


def judge(decisions: Decisions, rows: list[Cells]) -> list[Any]:
    if "STAGEB_PMML" not in os.environ:
        pytest.skip("STAGEB_PMML is not set")
    pypmml = pytest.importorskip("pypmml")
    model = pypmml.Model.fromString(PmmlExporter().write([decisions.mission], DIALECTS["sqlite"]).files)
    names = list(decisions.kinds)
    cells = [[row.get(name) for name in names] for row in rows]
    texts = [[str(cell).lower() if isinstance(cell, bool) else cell for cell in row] for row in cells]
    asked = {"columns": names, "data": texts}
    found = json.loads(model.predict(json.dumps(asked)))
    at, rule = found["columns"].index("predicted"), found["columns"].index("rule")
    return [
        (None, "") if each[at] == "person" and each[rule].startswith("person ") else (each[at], each[rule])
        for each in found["data"]
    ]


@pytest.mark.parametrize("name", TYPED_KINDS)
def test_pmml_gives_the_verdict_and_the_rule_that_code_gives(name: str) -> None:
    assert compare(judge, name, *SIZE) > 100
