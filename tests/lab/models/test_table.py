import argparse
import json
from pathlib import Path

import pytest

from lab.models import table


def given(out: Path, **more: object) -> argparse.Namespace:
    plain = {"out": out, "gpus": 1, "slots": 2, "seconds": 30.0, "pipes": None}
    return argparse.Namespace(**{**plain, **more})


@pytest.mark.slow
def test_runs_that_ended_are_not_run_again_and_failed_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [table.Job("good", 1, "gepa"), table.Job("good", 2, "gepa"), table.Job("bad", 1, "gepa")]
    row = json.dumps({"before": 40.4, "after": 71.6})
    ends = {"good": f"print('{row}')", "bad": "raise SystemExit(3)"}
    monkeypatch.setattr(table, "command", lambda job, given, seconds: ["-c", ends[job.data]])
    table.run_all(jobs, given(tmp_path))
    assert [table.read(job, tmp_path) for job in jobs] == ["40 → 72", "40 → 72", "–"]
    ends["good"], ends["bad"] = ends["bad"], ends["good"]
    table.run_all(jobs, given(tmp_path))
    assert [table.read(job, tmp_path) for job in jobs] == ["40 → 72", "40 → 72", "40 → 72"]


def test_what_still_runs_when_the_time_is_over_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        table, "command", lambda job, given, seconds: ["-c", "import time; time.sleep(60)"]
    )
    table.run_all([table.Job("slow", 1, "fit")], given(tmp_path, seconds=2.0))
    assert table.read(table.Job("slow", 1, "fit"), tmp_path) == "–"


@pytest.mark.parametrize("method", ["gepa", "fit"])
def test_a_command_names_model_tickets_seed_and_split(method: str, tmp_path: Path) -> None:
    options = given(
        tmp_path,
        model="m",
        folder=Path("data"),
        budget=9,
        split=["news"],
        more=["--runner.epochs", "1"],
    )
    line = table.command(table.Job("news", 2, method), options, 500.0)
    assert {"m", "data/news/tickets.jsonl", "2", "9", "split"} <= set(line)
    assert ("410.0" in line) == (method == "gepa") and ("--runner.epochs" in line) == (
        method == "fit"
    )
    assert "split" not in table.command(table.Job("mail", 2, method), options, 500.0)
