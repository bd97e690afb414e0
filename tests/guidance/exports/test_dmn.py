"""Rules as a decision table, judged by feelin where ``STAGEB_NODE`` names a folder of Node's modules that has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.typed import TYPED_KINDS, compare

from stageb.guidance.exports.decisions import Decisions
from stageb.guidance.exports.dmn import DmnExporter, _Feel
from stageb.guidance.exports.sql_dialects import DIALECTS

TIMES = int(os.environ.get("STAGEB_HOSTILE_TIMES", "1"))
JUDGE = Path(__file__).parent / "judge.js"


def ask_node(form: str, document: str, rows: list[Any]) -> list[Any]:
    if "STAGEB_NODE" not in os.environ:
        pytest.skip("STAGEB_NODE names no modules")
    copy = Path(os.environ["STAGEB_NODE"]) / f"judge-{os.getpid()}.cjs"  # modules are found beside the script
    copy.write_text(JUDGE.read_text())
    asked = json.dumps({"form": form, "document": document, "rows": rows})
    ran = subprocess.run(["node", str(copy)], input=asked, capture_output=True, text=True, check=False)
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
    assert compare(judge, name, 4 * TIMES) > 100
