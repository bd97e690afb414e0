"""The usual detector beside that of loop two_channel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.bench.__main__ import main
from stageb.two_channel.boxes import shapes


def test_the_usual_detector_learns_and_is_judged(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="the extra bench is not installed", exc_type=ImportError)
    train, val, test = (shapes.write(tmp_path, split, 6, seed=1) for split in ("train", "val", "test"))
    out = tmp_path / "out.json"
    keys = ["--set", f"data.train={train}", "--set", f"data.val={val}", "--set", f"data.test={test}"]
    words = ["fcos", "--config", "configs/two_channel/shapes.yaml", *keys, "--set", "augmentation.turn=true"]
    assert main([*words, "--backbone=resnet18", "--steps=2", "--batch=2", "--seeds=3", f"--json={out}"]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["seed"] == 3 and 15 < row["parameters_m"] < 25 and 0 <= row["mAP50"] <= 1 and row["train_s"] > 0
