"""What a run says in words: what each reflection tried and what came of it, and what to try where nothing was learnt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from programs import small

from stageb.__main__ import main
from stageb.guidance.advice import advise
from stageb.guidance.attempts import Attempts
from stageb.guidance.config import BudgetConfig, GateConfig, LoopConfig
from stageb.guidance.outcomes import explain_refusals

NONE_TRIED = Attempts(0, (), {}, {}, (), None)


def metrics(fails: int, passes: int, acc: float = 0.5) -> list[dict[str, Any]]:
    classes = {"fail": {"n": fails}, "pass": {"n": passes}}
    return [{"epoch": 0, "split": "test", "acc": acc, "classes": classes}]


def config(**gate: float) -> LoopConfig:
    return LoopConfig(tickets=["t.jsonl"], gate=GateConfig(**gate), budget=BudgetConfig())


def test_the_facts_of_a_run_say_what_to_try() -> None:
    told = list(advise(metrics(3, 97), NONE_TRIED, config(), "budget.rollouts"))
    assert told[0] == "budget.rollouts was spent on judging val and test, before the first reflection: raise it."
    assert "Only 3 of 100 val and test tickets are labelled fail." in told[1]
    assert "--gate.fp_weight 20" in told[1]
    assert "--guidance.path rules.json" in told[-1]
    assert not any("fp_weight" in line for line in advise(metrics(3, 97), NONE_TRIED, config(fp_weight=20.0), ""))
    [one] = advise(metrics(0, 40), NONE_TRIED, config(), "")
    assert one == "None of 40 val and test tickets is labelled fail: give tickets with both labels."
    refused = Attempts(9, (), {}, {"no ticket has 'X'": 20, "not one JSON object: Expecting value": 4}, (), None)
    assert explain_refusals({"not one JSON object": 1}) == [("was not in the form asked for", 1)]
    assert any(
        "24 proposals could not be used, most of them since they named what no ticket has" in line
        for line in advise(metrics(40, 60), refused, config(), "")
    )


def test_a_run_says_what_it_tried_and_what_came_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tickets = small.write(tmp_path / "t.jsonl", "valves")
    assert main(small.arguments(tickets, tmp_path / "out", keys={"reflection.num_proposals": 8})) == 0
    told = capsys.readouterr()
    assert "valves, reflection 1: " in told.err
    assert "tried, one accepted: +" in told.err
    assert "tickets that it was not made from" in told.err
    assert "the model was right and sure about all tickets" in told.err
    assert "What to try next" not in told.out


def test_a_run_that_learnt_nothing_ends_with_what_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tickets = small.write(tmp_path / "t.jsonl", "valves")
    keys = {"model.model_name_or_path": "programs.models:idle", "reflection.num_proposals": 2}
    assert main(small.arguments(tickets, tmp_path / "out", keys=keys)) == 0
    told = capsys.readouterr()
    rows = [json.loads(line) for line in (tmp_path / "out/run/valves/reflection.jsonl").read_text().splitlines()]
    assert rows
    assert told.err.count("valves, reflection ") == len(rows)
    assert "nothing to try: 2 proposals were not in the form asked for" in told.err
    assert "Nothing was learnt. What to try next:" in told.out
    assert "proposals could not be used, most of them since they were not in the form asked for" in told.out
