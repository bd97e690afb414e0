"""``runner.judge: both``: rules as code judge what they decide, in rounds and for the gate, and the
model the rest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs import small

from stageb.__main__ import main
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.types import Calibration, JudgeName

BOTH = {"runner.judge": "both"}


def rows(run: Path, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "valves" / file).read_text().splitlines()]


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    return small.write(tmp_path / "tickets.jsonl", "valves")


@pytest.mark.parametrize("judge", ["", "model", "rules", "weighed"])
def test_the_best_judge_of_a_guidance_is_asked_and_the_model_where_rules_say_nothing(
    judge: JudgeName,
) -> None:
    start = make_neutral("m", WORDS["en"])
    guidance = replace(start, judge=judge, calibration=Calibration(rules=1.0, reach=2.0))
    assert guidance.is_decided("fail", ()) is (judge == "rules")
    assert guidance.is_decided(None, ()) is False
    surer = replace(guidance, calibration=Calibration(rules=3.0, reach=2.0))
    assert surer.is_decided("fail", ()) is (judge in ("rules", "weighed"))


def test_what_code_decides_is_not_rolled_out_and_booked_as_saved(
    tickets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(small.arguments(tickets, tmp_path / "out", keys=BOTH)) == 0
    run, told = tmp_path / "out" / "run", capsys.readouterr().out
    (guidance,) = json.loads((run / "valves" / "guidance.json").read_text()).values()
    assert guidance["experiences"]["G1"] == "Fail if state is torn."
    spent = json.loads((run / "commit.json").read_text())["state"]["spent"]
    assert (spent["rollouts"], spent["judged"]) == (0, 0)
    judged = rows(run, "selections.jsonl")
    assert spent["saved"] > 2 * len(judged)  # two samples each, and the gate's verdicts
    assert f"Spent: no answer of a model; rules as code gave all {spent['saved']:,}." in told
    for row in rows(run, "trajectories.jsonl"):
        assert (row["decode"], row["tokens"], row["format_ok"]) == (-1, 0, True)
    assert {row["reason"] for row in judged} == {
        "G0: A ticket passes unless a rule fails it.",
        "G1: Fail if state is torn.",
    }
    metrics = rows(run, "metrics.jsonl")
    assert all(row["by_rules"] == row["n"] and row["rollouts"] == 0 for row in metrics)
    assert [row["acc"] for row in metrics if row["split"] == "test"][-1] == 1.0
    assert main(["report", str(run), "--tickets", str(tickets)]) == 0
    page = (run / "report.html").read_text()
    assert "held-out tickets, all rightly." in page
    assert "The model judged" not in page and "Taken word for word, it decides" in page
    assert "answers and verdicts that rules as code gave" in page


def test_the_model_is_asked_for_what_code_cannot_decide(tickets: Path, tmp_path: Path) -> None:
    """Under a rule that is no code, all tickets hang on the model; it answers as without code."""
    Path(tmp_path / "rules.txt").write_text(
        "[valves]\nFail if the part looks odd.\nPass if colour is red.\n"
    )
    keys = {"guidance.path": str(tmp_path / "rules.txt"), "runner.epochs": 0}
    for judge in ("model", "both"):
        again = {**keys, "runner.judge": judge, "output.run_name": judge}
        assert main(small.arguments(tickets, tmp_path / "out", keys=again)) == 0
    by_model, by_both = (
        rows(tmp_path / "out" / judge, "trajectories.jsonl") for judge in ("model", "both")
    )
    red = {
        row["group_id"]
        for row in map(json.loads, tickets.open())
        if "red" in row["per_image"]["image_2"]
    }
    by_code = [row for row in by_both if row["decode"] == -1]
    assert {row["group_id"] for row in by_code} == {row["group_id"] for row in by_both} & red
    assert {row["reason"] for row in by_code} == {"G2: Pass if colour is red."}
    assert [row for row in by_both if row["decode"] >= 0] == [
        row for row in by_model if row["group_id"] not in red
    ]
    test, *_ = [
        row for row in rows(tmp_path / "out" / "both", "metrics.jsonl") if row["split"] == "test"
    ]
    assert 0 < test["by_rules"] < test["n"]
    assert test["rollouts"] == 2 * (test["n"] - test["by_rules"])
    by_model_alone, *_ = [
        row for row in rows(tmp_path / "out" / "model", "metrics.jsonl") if row["split"] == "test"
    ]
    assert "by_rules" not in by_model_alone
