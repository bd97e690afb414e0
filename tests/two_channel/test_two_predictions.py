"""What was said of images, written and read back; two sides compared, with intervals that hold the difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.bench.__main__ import main
from stageb.errors import BadInputError
from stageb.two_channel.boxes import data, predictions, shapes
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.boxes.text import list_true_objects
from stageb.two_channel.types import Detection, Sample


def said(sample: Sample, misses: int) -> Detections:
    """The truth, but for its first ``misses`` objects."""
    objects = list_true_objects(sample)[misses:]
    return Detections(objects, tuple(0.9 - 0.01 * number for number in range(len(objects))))


def test_predictions_come_back_as_they_were(tmp_path: Path) -> None:
    samples = data.read([shapes.write(tmp_path, "test", 6, seed=5)])
    path = tmp_path / "told.jsonl"
    told = [said(sample, number % 2) for number, sample in enumerate(samples)]
    predictions.write(samples, told, path)
    assert predictions.read(str(path), samples) == told
    assert predictions.read(str(path), samples[::-1]) == told[::-1]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[1]["objects"] = [["a", 1, 2, 3, 1000, 0.5]]
    rows[2]["objects"] = 7
    path.write_text("".join(json.dumps(row) + "\n" for row in rows[:4]))
    with pytest.raises(BadInputError) as caught:
        predictions.read(str(path), samples)
    bad = list(map(str, caught.value.bad))
    assert f"{path}:2: an object" in bad[0] and "from 0 to 999" in bad[0] and f"{path}:3: objects 7" in bad[1]
    assert sum("nothing of image" in each for each in bad) == 4  # two that are not there, two that cannot be read


def test_two_ways_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = shapes.write(tmp_path, "test", 12, seed=5)
    samples = data.read([file])
    sides: dict[str, list[str]] = {"a": [], "b": []}
    for seed in range(3):
        for side, misses in (("a", 1), ("b", 0)):
            told = [said(sample, misses * ((number + seed) % 2)) for number, sample in enumerate(samples)]
            if side == "b" and seed == 0:
                told[0] = Detections((*told[0].objects, Detection("red circle", (0, 0, 1, 1))), (*told[0].scores, 0.1))
            path = tmp_path / f"{side}{seed}.jsonl"
            predictions.write(samples, told, path)
            sides[side].append(str(path))
    out = tmp_path / "out.json"
    words = ["boxes", "--data", str(file), "--a", *sides["a"], "--b", *sides["b"]]
    assert main([*words, "--replicates", "40", "--json", str(out)]) == 0
    assert "f1_50" in capsys.readouterr().out
    rows = {row["figure"]: row for row in json.loads(out.read_text())["rows"]}
    f1, precision = rows["f1_50"], rows["precision_50"]
    assert f1["a"] < f1["b"] and 0 < f1["low"] <= f1["difference"] <= f1["high"]
    assert precision["a"] == 1 and precision["low"] < 0 == precision["high"]  # a false one in one image of one seed
    assert main([*words[:-1], "--replicates", "40"]) == 2  # a seed of one side alone
    assert "as many files as --a, 3" in capsys.readouterr().err


def test_seeds_of_one_start_are_drawn_with_it(tmp_path: Path) -> None:
    """Of two starts one gains and one loses: three seeds of each make nothing surer than one would."""
    file = shapes.write(tmp_path, "test", 6, seed=5)
    samples = data.read([file])
    sides: dict[str, list[str]] = {"a": [], "b": []}
    for seed in range(6):
        for side in sides:
            path = tmp_path / f"{side}{seed}.jsonl"
            predictions.write(samples, [said(sample, (side == "a") == (seed < 3)) for sample in samples], path)
            sides[side].append(str(path))
    words = ["boxes", "--data", str(file), "--a", *sides["a"], "--b", *sides["b"], "--replicates", "200"]

    def width(*more: str) -> float:
        out = tmp_path / "out.json"
        assert main([*words, "--json", str(out), *more]) == 0
        rows = {row["figure"]: row for row in json.loads(out.read_text())["rows"]}
        return float(rows["recall_50"]["high"] - rows["recall_50"]["low"])

    assert width("--per-start", "3") > 1.2 * width()
    assert main([*words, "--per-start", "4"]) == 2
