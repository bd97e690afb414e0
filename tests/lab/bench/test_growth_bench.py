"""Outcomes of growth's controllers, as one table."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from lab.bench.__main__ import main
from stageb.growth.compare import Comparison


def test_outcomes_of_several_calls_are_one_table_against_any_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def written(name: str, arms: dict[str, float]) -> str:
        rows = [
            {
                **asdict(
                    Comparison(arm, number, share + number / 100, 0.5, 0.1, 20, 1e6, ((0, 1),), course=((1e6, share),))
                ),
                "run": run,
            }
            for run in range(2)
            for arm, share in arms.items()
            for number in range(6)
        ]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / name)

    arms = ({"ppo": 0.6, "probe-1": 0.4}, {"ppo": 0.6, "stopped-final": 0.5})
    files = [written(f"wide.{number}.jsonl", each) for number, each in enumerate(arms)]
    together = str(tmp_path / "all.jsonl")
    assert main(["outcomes", *files, "--base", "stopped-final", "--to", together]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[1] for line in lines] == ["arm ppo", "arm probe-1", "arm stopped-final"]
    assert "points_above_stopped-final 10, half " in lines[0]
    assert "points_above_stopped-final -10, half " in lines[1]
    assert "runs 2, environments 6, test_accuracy 0.525, extra 0.1, epochs 20, flops 1e+06, seeds_kept 1" in lines[2]
    assert len(Path(together).read_text().splitlines()) == 2 * 3 * 6
    assert main(["outcomes", together, "--base", "stopped-final"]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert main(["outcomes", together, "--base", "nobody"]) == 2
    assert main(["outcomes", together, "--pictures", str(tmp_path / "pictures")]) == 0
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["wide.png"]
    assert main(["outcomes", str(tmp_path / "missing.jsonl")]) == 2
