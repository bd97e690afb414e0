"""``stageb guidance resize``: another size of what code has learnt, without learning again."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from programs.shell import Shell

import stageb
from stageb.__main__ import main
from stageb.guidance.commands.govern.resize import read_sizes
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.read_guidance import read_guidance
from stageb.guidance.words.types import UNCALIBRATED, Calibration, Demonstration, JudgeName

KEYS: dict[str, Any] = {
    "model": {"engine": "scripted"},
    "fabric": {"accelerator": "cpu", "devices": 1},
}
COLUMNS = {"mission_name": "m", "group_id": "case", "label": "result"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, shell: Shell) -> Path:
    """A run on tickets that three rules fail, of which some tell more tickets than others."""
    folder, draw = tmp_path_factory.mktemp("resize"), Random(1)
    rows = [
        {name: draw.choice("xyz") for name in "abcd"}
        | {"e": draw.randint(0, 999), "case": f"c-{n}"}
        for n in range(600)
    ]
    for row in rows:
        is_fail = (
            row["a"] == "x"
            or (row["b"] == row["c"] == "y")
            or (row["b"] == row["c"] == row["d"] == "z")
        )
        row["result"] = "fail" if is_fail else "pass"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "executable", str(shell.python))
        stageb.fit(
            rows, config=["tickets", "frugal"], columns=COLUMNS, output={"run_name": "run"}, **KEYS
        )
    return folder / "out" / "run"


@pytest.mark.slow
def test_sizes_are_listed_and_taken(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["guidance", "resize", str(run)]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    sizes = [(int(line.split()[0]), float(line.split()[2].rstrip("%"))) for line in lines]
    assert head.startswith("m:") and len(sizes) > 1 and sizes == sorted(sizes)
    assert lines[-1].endswith("in use") and not any(line.endswith("in use") for line in lines[:-1])
    least, most = sizes[0][0], sizes[-1][0]
    (learnt,) = read_guidance(run).values()
    for conditions in (least, most, most + 1):
        small = tmp_path / f"{conditions}.json"
        assert (
            main(
                [
                    "guidance",
                    "resize",
                    str(run),
                    "--conditions",
                    str(conditions),
                    "--output",
                    str(small),
                ]
            )
            == 0
        )
        (taken,) = read_guidance(small).values()
        if conditions >= most:
            assert taken.rules == learnt.rules
        else:
            assert len(taken.rules) < len(learnt.rules) and all(
                rule.is_provisional for rule in taken.rules[1:]
            )
            assert taken.taught_by == learnt.taught_by  # so that evaluate still tells who taught it
            verdicts = tmp_path / "verdicts.jsonl"
            tickets = tmp_path / "new.jsonl"
            tickets.write_text(
                json.dumps(
                    {
                        "mission": "m",
                        "group_id": "new",
                        "per_image": {"image_1": "a: x; b: x; c: x; d: x"},
                    }
                )
            )
            words = [
                "--guidance",
                str(small),
                "--tickets",
                str(tickets),
                "--output",
                str(verdicts),
                "--by",
                "rules",
            ]
            assert main(["predict", *words]) == 0
            assert json.loads(verdicts.read_text())["verdict"] == "fail"


def test_a_size_that_is_not_there_is_told(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["guidance", "resize", str(run)]) == 0
    least = int(capsys.readouterr().out.splitlines()[1].split()[0])
    assert main(["guidance", "resize", str(run), "--conditions", str(least - 1)]) == 2 or least == 1
    (learnt,) = read_guidance(run).values()
    file = tmp_path / "rules.txt"
    file.write_text("[m]\nFail if a is x.\n")
    assert main(["guidance", "resize", str(file)]) == 2
    assert "sizes are kept in a run's folder" in capsys.readouterr().err
    assert main(["guidance", "resize", f"{run}@{learnt.step}"]) == 2


def test_of_rules_of_another_size_no_proof_is_told(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is of the rules in use, though some are the same."""
    assert main(["guidance", "resize", str(run)]) == 0
    for line in capsys.readouterr().out.splitlines()[1:]:
        assert main(["guidance", "resize", str(run), "--conditions", line.split()[0]]) == 0
        assert (" gate: " in capsys.readouterr().out) == line.endswith("in use")


@pytest.mark.parametrize("judge", ["rules", "weighed", "model"])
def test_another_size_takes_nothing_that_was_fitted_under_the_rules_in_use(
    run: Path, judge: JudgeName
) -> None:
    """A calibration, demonstrations, and the decision that a model judges are of those rules alone;
    that code judges holds for every size."""
    (found,) = read_sizes(run, None)
    calibration = Calibration(2.0, 1.0, 3.0, 0.5, reach=1.0)
    shown = (Demonstration("c-1::fail", (("image_1", "a: x"),), "fail"),)
    fitted = replace(found.learnt, calibration=calibration, demonstrations=shown, judge=judge)
    sizes = replace(found, learnt=fitted)
    taken = [sizes.take(size) for size in sizes.row.sizes]
    *others, in_use = taken
    assert others and in_use == fitted
    for guidance in others:
        assert guidance.calibration == UNCALIBRATED and not guidance.demonstrations
        assert guidance.judge == ("rules" if judge == "rules" else "")
        assert from_json(to_json(guidance), "a test")["m"] == guidance


def test_the_report_draws_the_sizes(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Estimated accuracy by size" in page and "stageb guidance resize RUN" in page


def test_a_row_that_another_program_changed_is_told_with_its_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    (file,) = copy.glob("*/reflection.jsonl")
    row = json.loads(file.read_text())
    changed = json.dumps({**row, "sizes": "many"})
    file.write_text(changed.ljust(len(file.read_text()) - 1) + "\n")  # as long as the commit says
    assert main(["guidance", "resize", str(copy)]) == 2
    assert "reflection.jsonl:1: no row of a reflection" in capsys.readouterr().err
