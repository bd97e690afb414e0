"""The benches of loop two_channel: packs beside their bound, and the usual detector beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.bench.__main__ import main
from stageb.two_channel.boxes import shapes


def test_packs_are_told_beside_the_fewest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = shapes.write(tmp_path, "train", 24, seed=1)
    out = tmp_path / "out.json"
    sizes = {"packing.global_max_length": 512, "packing.max_length": 512, "channel_b.max_new_tokens": 160}
    settings = {"data.train": train, "data.val": "", "data.test": "", "evaluation.every": 0, **sizes}
    keys = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert main(["two_channel", "packs", *keys, "--lot", "12", "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert (row["lots"], row["samples"]) == (2, 12) and row["packs"] > 1
    assert row["over_bound"] <= 0 and 0.8 < row["fill"] <= 1
    assert main(["two_channel", "packs", "--config", "configs/snake/5x5.yaml"]) == 2
    assert "of loop ppo; name one of two_channel" in capsys.readouterr().err


def test_learning_alone_is_told_with_and_without_an_order(tmp_path: Path) -> None:
    train, out = shapes.write(tmp_path, "train", 8, seed=1), tmp_path / "out.json"
    settings = {"data.train": train, "channel_a.samples_per_step": 4, "schedule.steps": 4}
    keys = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    assert main(["two_channel", "learn", *keys, "--steps", "4", "--json", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["order of sums"] for row in rows] == ["fixed", "any"] and all(row["step_s"] > 0 for row in rows)


def test_the_usual_detector_learns_and_is_judged(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="the extra bench is not installed", exc_type=ImportError)
    train, val, test = (shapes.write(tmp_path, split, 6, seed=1) for split in ("train", "val", "test"))
    out = tmp_path / "out.json"
    keys = ["--set", f"data.train={train}", "--set", f"data.val={val}", "--set", f"data.test={test}"]
    words = [
        "fcos",
        "--config",
        "configs/two_channel/shapes.yaml",
        *keys,
        "--set",
        "augmentation.turn=true",
        "--backbone",
        "resnet18",
        "--steps",
        "2",
    ]
    assert main([*words, "--batch", "2", "--seeds", "3", "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["seed"] == 3 and 15 < row["parameters_m"] < 25 and 0 <= row["mAP50"] <= 1 and row["train_s"] > 0
