"""Rules as a workbook, computed by LibreOffice where ``STAGEB_OFFICE`` names its program."""

from __future__ import annotations

import csv
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from guidance.exports.kinds import Cells
from guidance.exports.typed import TYPED_KINDS, compare
from times import TIMES

from stageb.guidance.exports.decisions import Decisions

PROFILE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load"><prop oor:name="OOXMLRecalcMode"><value>0</value></prop></item>
</oor:items>"""


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
