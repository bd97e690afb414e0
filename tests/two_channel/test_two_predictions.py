"""What was said of images, written and read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stageb.errors import BadInputError
from stageb.two_channel.boxes import data, predictions
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.boxes.text import list_true_objects
from stageb.two_channel.commands.boxes import write_shapes
from stageb.two_channel.types import Sample


def said(sample: Sample, misses: int) -> Detections:
    """The truth, but for its first ``misses`` objects."""
    objects = list_true_objects(sample)[misses:]
    return Detections(objects, tuple(0.9 - 0.01 * number for number in range(len(objects))))


def test_predictions_come_back_as_they_were(tmp_path: Path) -> None:
    samples = data.read([write_shapes(tmp_path, "test", 6, seed=5)])
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
