"""The loop as users run it: a fit from end to end, killed and gone on with, at two world sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from programs import detectors, forks
from safetensors.torch import load_file

from stageb.__main__ import main


def rows(run: Path, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / file).read_text().splitlines()]


def weights(run: Path) -> dict[str, torch.Tensor]:
    (path,) = (run / "model").glob("weights-*.safetensors")
    return load_file(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    root = tmp_path_factory.mktemp("whole")
    assert main(detectors.arguments(root)) == 0
    return root / "run"


def test_a_run_from_end_to_end(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = rows(whole)
    assert [row["stage2/channel_b"] for row in told] == [0, 0, 1, 0, 0, 1]
    assert [row.get("stage2/raw_rollouts") for row in told] == [None, None, 5, None, None, 5]
    assert [row.get("rollout/weight_version") for row in told] == [None, None, 2, None, None, 5]
    assert told[-1]["loss/text"] < told[0]["loss/text"]
    assert 0 <= told[-1]["eval/mAP50"] <= 1
    assert (whole / "boxes.png").stat().st_size > 1000
    assert main(["evaluate", str(whole), "--accelerator=cpu"]) == 0
    assert f"mAP      {told[-1]['eval/mAP']:.3f}" in capsys.readouterr().out


def test_the_checkpoint_loads_in_transformers_as_it_is(whole: Path) -> None:
    model = transformers.AutoModelForImageTextToText.from_pretrained(whole / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(whole / "model")
    held, state = weights(whole), model.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in held.items())
    assert tokenizer.convert_tokens_to_ids("<|coord_999|>") == tokenizer.convert_tokens_to_ids("<|coord_0|>") + 999


def test_two_ranks_learn_what_one_does(whole: Path, tmp_path: Path) -> None:
    ended = forks.run(detectors.arguments(tmp_path, 2), 2, tmp_path / "job")
    assert set(ended.codes) == {0}, ended.err
    one, two = weights(whole), weights(tmp_path / "run")
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-4


@pytest.mark.parametrize(("learn", "rollout", "staleness"), [(1, 2, 0), (1, 1, 1), (2, 1, 1)])
def test_ranks_that_only_answer_change_nothing(whole: Path, tmp_path: Path, learn: int, rollout: int, staleness: int) -> None:
    """Pipelined as serial: the same weights, but for rounding."""
    serial = whole
    if staleness:
        assert main(detectors.arguments(tmp_path / "serial", topology__staleness=1)) == 0
        serial = tmp_path / "serial" / "run"
    keys = {"topology__learn": learn, "topology__rollout": rollout, "topology__staleness": staleness}
    ended = forks.run(detectors.arguments(tmp_path, learn + rollout, **keys), learn + rollout, tmp_path / "job")
    assert set(ended.codes) == {0}, ended.err
    one, two = weights(serial), weights(tmp_path / "run")
    assert max(float((one[name] - two[name]).abs().max()) for name in one) < 1e-4
    versions = [row["rollout/weight_version"] for row in rows(tmp_path / "run") if row["stage2/channel_b"]]
    assert versions == ([2, 2] if staleness else [2, 5])
