"""``reflection.scope: all``: the whole guidance is learnt at once, where code judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from programs import forks, small

from stageb.__main__ import main

ALL = {"runner.judge": "both", "reflection.scope": "all", "runner.epochs": 1, "split.val": 0.0, "split.train": 0.85}
FILES = ("selections.jsonl", "metrics.jsonl", "reflection.jsonl", "guidance.json")


def rows(run: Path, file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "valves" / file).read_text().splitlines()]


def guidance_of(run: Path) -> dict[str, Any]:
    (guidance,) = json.loads((run / "valves" / "guidance.json").read_text()).values()
    return dict(guidance)


@pytest.fixture
def tickets(tmp_path: Path) -> Path:
    return small.write(tmp_path / "tickets.jsonl", "valves")


def test_the_rule_is_learnt_from_all_train_tickets_and_proven_once(tickets: Path, tmp_path: Path) -> None:
    assert main(small.arguments(tickets, tmp_path / "out", keys=ALL)) == 0
    run = tmp_path / "out" / "run"
    learnt = guidance_of(run)
    assert learnt["experiences"]["G1"] == "Fail if state is torn."
    assert "provisional" not in learnt["metadata"]["G1"]
    (row,) = rows(run, "reflection.jsonl")
    (edit,) = row["gate"]["edits"]
    assert edit["outcome"] == "accepted"
    assert row["gate"]["budget_after"] == row["gate"]["budget_before"]
    spent = json.loads((run / "commit.json").read_text())["state"]["spent"]
    assert (spent["rollouts"], spent["judged"], spent["tokens"]) == (0, 0, 0)
    test = [each for each in rows(run, "metrics.jsonl") if each["split"] == "test"]
    assert test[-1]["acc"] == 1.0


@pytest.mark.parametrize("provisional", ["keep", "drop"])
def test_what_is_not_proven_is_provisional_or_dropped(
    provisional: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = small.write(tmp_path / "few.jsonl", "valves", groups=24)
    keys = {**ALL, "gate.alpha": 1e-9, "gate.provisional": provisional, "report": True}
    assert main(small.arguments(few, tmp_path / "out", keys=keys)) == 0
    run = tmp_path / "out" / "run"
    learnt, told = guidance_of(run), capsys.readouterr().out
    (row,) = rows(run, "reflection.jsonl")
    (edit,) = row["gate"]["edits"]
    assert row["gate"]["budget_after"] < row["gate"]["budget_before"]
    if provisional == "drop":
        assert list(learnt["experiences"]) == ["G0"]
        assert edit["outcome"] == "unproven"
        return
    assert edit["outcome"] == "provisional"
    assert learnt["metadata"]["G1"]["provisional"] is True
    assert "G1 (provisional). Fail unless state is new or worn." in told
    assert "provisional: not proven to help" in (run / "report.html").read_text()
    assert main(["guidance", "show", str(run)]) == 0
    assert "provisional: it is not proven to help" in capsys.readouterr().out
    out = tmp_path / "predicted.jsonl"
    assert (
        main(
            ["predict", f"--guidance={run}", f"--tickets={few}", f"--output={out}", "--by=rules", "--model.engine=scripted"]
        )
        == 0
    )
    assert "G1 (provisional): Fail unless state is new or worn." in out.read_text()


def test_present_rules_are_replaced_with_proof_alone(tickets: Path, tmp_path: Path) -> None:
    Path(tmp_path / "rules.txt").write_text("[valves]\nPass if colour is red.\n")
    for name, alpha in (("proven", 0.05), ("not", 1e-300)):
        keys = {**ALL, "guidance.path": str(tmp_path / "rules.txt"), "gate.alpha": alpha, "output.run_name": name}
        assert main(small.arguments(tickets, tmp_path / "out", keys=keys)) == 0
    kept = {name: set(guidance_of(tmp_path / "out" / name)["experiences"].values()) for name in ("proven", "not")}
    neutral = "A ticket passes unless a rule fails it."
    assert kept == {"proven": {neutral, "Fail if state is torn."}, "not": {neutral, "Pass if colour is red."}}


def test_every_world_size_and_every_kill_leaves_the_same_bytes(tickets: Path, tmp_path: Path) -> None:
    def line(name: str, world_size: int) -> list[str]:
        return small.arguments(tickets, tmp_path / name, world_size, ALL)

    def written(name: str) -> dict[str, bytes]:
        return {file: (tmp_path / name / "run" / "valves" / file).read_bytes() for file in FILES}

    for world_size in (1, 2):
        ended = forks.run(line(str(world_size), world_size), world_size, tmp_path / f"job-{world_size}")
        assert set(ended.codes) == {0}, ended.err
    assert written("1") == written("2")
    for number in (1, 2):
        kill_before = len(ended.operations[0]) * number // 3
        killed = forks.run(line(f"killed-{number}", 2), 2, tmp_path / f"job-killed-{number}", kill_before)
        assert killed.codes[0] == 137, killed.err
        resumed = forks.run(line(f"killed-{number}", 1), 1, tmp_path / f"job-on-{number}")
        assert resumed.codes == (0,), resumed.err
        assert written(f"killed-{number}") == written("1")
