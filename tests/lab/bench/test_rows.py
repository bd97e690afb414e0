"""What benchmarks do alike: rows are told and kept, the real command runs with what ``--set`` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.bench.__main__ import main

SMALL = {"envs": 4, "rollout_steps": 4, "global_batch": 8}


def test_rows_of_the_real_command_are_told_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"fabric.accelerator": "cpu", **{f"runner.{key}": value for key, value in SMALL.items()}}
    words = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    out = tmp_path / "out.json"
    given = ["snake", "ranks", "--config", "configs/snake/5x5.yaml", "--updates", "3", *words, "--json", str(out)]
    assert main(given) == 0
    (row,) = json.loads(out.read_text())["rows"]
    speeds = [row.pop(name) for name in ("lowest", "steps_per_s", "highest")]
    assert 0 < speeds[0] <= speeds[1] <= speeds[2]
    assert row == {"part": "ranks", "devices": 1, "games a rank": 4, "of linear": 1.0}
    shown = f"devices 1, games a rank 4, steps_per_s {speeds[1]:.4g}, lowest {speeds[0]:.4g}, highest {speeds[2]:.4g}"
    assert capsys.readouterr().out == f"{shown}, of linear 1\n"


@pytest.mark.parametrize(
    ("words", "told"), [(["--set", "seed"], "--set"), (["--set", "runner.envs=4", "--devices", "0,1"], "--devices")]
)
def test_what_cannot_be_measured_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snake", "ranks", "--config", "configs/snake/5x5.yaml", *words]) == 2
    assert told in capsys.readouterr().err
