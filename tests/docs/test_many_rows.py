"""The recipe for workers, in one process: frames judged by the exported module as ``predict``
judges the file."""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from docs.pages import DOCS, blocks

import stageb
from stageb.__main__ import main

RULES = {
    "G0": "A ticket passes unless a rule fails it.",
    "G1": "Fail if Torque is above 60 and Speed is below 1400.",
}
NAMED = [["Torque", "0"], ["Speed", "0"]]


def test_frames_are_judged_as_predict_judges_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    dice = random.Random(1)
    rows = [
        {"Torque": dice.choice([dice.uniform(50, 70), None]), "Speed": dice.randrange(1300, 1500)}
        for _ in range(300)
    ]
    frame = pandas.DataFrame(rows)
    frame.to_parquet("new.parquet")
    Path("guidance.json").write_text(
        json.dumps({"milling": {"experiences": RULES, "named": NAMED}})
    )
    assert (
        main(["guidance", "export", "guidance.json", "--format", "python", "--output", "rules.py"])
        == 0
    )
    columns = {"mission_name": "milling", "group_id": None}
    found = stageb.predict(
        guidance="guidance.json",
        tickets="new.parquet",
        output="p.jsonl",
        by="rules",
        columns=columns,
    )
    [recipe] = [
        block for block in blocks(DOCS / "guides" / "many-rows.md") if "judge_frames" in block.text
    ]
    names: dict[str, Any] = {}
    exec(recipe.text, names)
    importlib.invalidate_caches()
    judged = pandas.concat(names["judge_frames"](iter([frame[:100], frame[100:]])))
    told = [(row["verdict"], row["rule"]) for row in found]
    verdicts = judged["verdict"].astype(object).where(judged["verdict"].notna(), None)
    assert list(zip(verdicts, judged["rule"], strict=True)) == told
    assert {verdict for verdict, _ in told} == {"pass", "fail", None}
