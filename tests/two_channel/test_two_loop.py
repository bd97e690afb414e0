"""The loop as users run it: fits from end to end, at several world sizes; evaluation;
checkpoints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from conformance import content, differing, read_rows
from programs import detectors, forks
from safetensors.torch import load_file

from stageb.__main__ import main
from stageb.cli.parsing import parse_run
from stageb.runs import progress
from stageb.runs.folder import RunScore, find_score
from stageb.two_channel.boxes import metrics
from stageb.two_channel.boxes.text import fill_prompt
from stageb.two_channel.model.stored import find_model

APART = 5e-5  # weights, by rounding, where the learning rate is 5e-4


def weights(run: Path) -> dict[str, torch.Tensor]:
    (path,) = (run / "model").glob("weights-*.safetensors")
    return load_file(path)


def apart(run: Path, other: Path) -> float:
    """How far the weights of two runs are from each other."""
    one, two = weights(run), weights(other)
    return max(float((one[name] - two[name]).abs().max()) for name in one)


def data_of(run: Path) -> str:
    """The file that a run was evaluated on."""
    return str(parse_run(run).config.data.test)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run, whose answers are made up."""
    root = tmp_path_factory.mktemp("whole")
    ended = forks.run(detectors.arguments(root, 1, "scribbling"), 1, root / "job")
    assert set(ended.codes) == {0}, ended.err
    return root / "run"


@pytest.mark.slow
def test_a_run_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "PAUSE_S", 0.0)
    arguments = detectors.arguments(tmp_path, curves=True)
    assert main(arguments) == 0
    err = capsys.readouterr().err
    told = read_rows(tmp_path / "run")
    assert [row["stage2/channel_b"] for row in told] == [0, 0, 1, 0, 0, 1]
    assert [row.get("stage2/raw_rollouts") for row in told] == [None, None, 5, None, None, 5]
    assert [row.get("rollout/weight_version") for row in told] == [None, None, 2, None, None, 5]
    assert told[-1]["loss/text"] < told[0]["loss/text"]
    assert (
        min((tmp_path / "run" / picture).stat().st_size for picture in ("boxes.png", "curves.png"))
        > 1000
    )
    evaluate = [
        "evaluate",
        str(tmp_path / "run"),
        "--accelerator=cpu",
        f"--told={tmp_path / 'told.jsonl'}",
    ]
    assert main(evaluate) == 2  # a folder does not choose what is read and drawn
    assert f"add: --data {data_of(tmp_path / 'run')}" in capsys.readouterr().err
    assert main([*evaluate, f"--data={data_of(tmp_path / 'run')}"]) == 0
    assert len((tmp_path / "told.jsonl").read_text().splitlines()) == 3
    assert f"mAP      {told[-1]['eval/mAP']:.3f}" in capsys.readouterr().out
    says_how_it_went(err, told, f"{tmp_path}/run")
    assert main(arguments) == 0
    again = capsys.readouterr().err.splitlines()
    assert again == [f"{tmp_path}/run: already finished", err.splitlines()[-1]]


def says_how_it_went(err: str, told: list[dict[str, Any]], place: str) -> None:
    """A line for every row: the loss and the last rollouts' F1, or what the test images came to."""
    opening, *lines, result = err.splitlines()
    assert opening == f"{place}: 6 steps over 12 images, channels A A B"
    found = ""
    for row, line in zip(told, lines, strict=True):
        if "rollout/f1" in row:
            found = f", rollouts F1 {row['rollout/f1']:.2f}"
        said = f"loss {row['loss/text']:.3f} + {row['loss/coordinates']:.3f}{found}"
        if "eval/mAP" in row:
            said = (
                f"evaluated: mAP {row['eval/mAP']:.3f}, mAP50 {row['eval/mAP50']:.3f}, F1 "
                f"{row['eval/f1_50']:.3f}"
            )
        assert re.fullmatch(
            rf"step {row['step']}/6: {re.escape(said)}, \d+\.\d\d s, 0:\d\d:\d\d left", line
        )
    assert result.startswith("6 steps, ")
    assert (
        "it finds nothing on test (F1 0): raise schedule.steps: its loss was not low yet after 6"
        in result
    )
    assert result.endswith(f"; the checkpoint: {place}/model")


def test_what_answers_came_to_is_told(whole: Path) -> None:
    told = read_rows(whole)[2]
    assert 0 < told["rollout/f1"] < 1
    assert told["rollout/parse_truncated_rate"] + told["rollout/parse_malformed_rate"] > 0
    assert told["rollout/predicted_per_true"] > 0
    assert read_rows(whole)[-1]["eval/recall_50"] > 0


@pytest.mark.slow
def test_adapters_of_a_checkpoint_are_saved_merged_and_go_on_after_a_kill(tmp_path: Path) -> None:
    """What transformers loads answers as what has learnt did."""
    base, keys = (
        tmp_path / "base",
        {"model__lora_rank": 16, "schedule__commit_every": 2, "schedule__steps": 4},
    )
    assert main(detectors.arguments(base, schedule__steps=2)) == 0
    for name, seconds in (("whole", {}), ("parts", {"budget__seconds": 0.01})):
        start = {"model__model_name_or_path": str(base / "run" / "model"), **keys}
        assert main(detectors.arguments(tmp_path / name, **start, **seconds)) == 0
    while (
        json.loads((tmp_path / "parts" / "run" / "commit.json").read_text())["state"]["step"] != 4
    ):
        assert main(detectors.arguments(tmp_path / "parts", **start)) == 0
    one, other = weights(tmp_path / "whole" / "run"), weights(tmp_path / "parts" / "run")
    assert all(torch.equal(each, other[name]) for name, each in one.items())
    assert (
        one.keys() == weights(base / "run").keys()
        and apart(base / "run", tmp_path / "whole" / "run") > 0
    )
    run, last = tmp_path / "whole" / "run", read_rows(tmp_path / "whole" / "run")[-1]
    told = tmp_path / "told.jsonl"
    evaluate = [
        "evaluate",
        str(run),
        f"--data={data_of(run)}",
        "--accelerator=cpu",
        "--pictures=0",
        f"--told={told}",
    ]
    assert main(evaluate) == 0 and last["eval/f1_50"] >= 0
    assert ", by LoRA," in (run / "README.md").read_text()


def test_adapters_need_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = detectors.arguments(tmp_path, model__lora_rank=16)
    assert main(["validate", *arguments[1:]]) == 2
    assert (
        "model.lora_rank: 16" in (err := capsys.readouterr().err)
        and "model.model_name_or_path is null" in err
    )
    base = ["--model.model_name_or_path=base", "--model.compile=true"]
    assert (
        main(["validate", *arguments[1:], *base]) == 2
        and "model.compile: True" in capsys.readouterr().err
    )


def test_boxes_may_stand_before_names(tmp_path: Path) -> None:
    """On both channels, and for ``stageb evaluate``."""
    assert main(detectors.arguments(tmp_path, answer__box_first=True, schedule__steps=3)) == 0
    run, told = tmp_path / "run", read_rows(tmp_path / "run")
    assert [row["stage2/channel_b"] for row in told] == [0, 0, 1] and told[-1]["loss/text"] < told[
        0
    ]["loss/text"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    assert len(tokenizer('{"bbox_2d": [', add_special_tokens=False)["input_ids"]) == 1
    assert (
        main(["evaluate", str(run), f"--data={data_of(run)}", "--accelerator=cpu", "--pictures=0"])
        == 0
    )


@pytest.mark.slow
def test_a_run_leaves_a_model_card_and_may_name_its_categories_in_the_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = looking(
        tmp_path,
        "two_channel",
        schedule__steps=2,
        data__prompt="Find: {categories}.",
        packing__max_length=256,
    )
    assert main([*made, "--data.val="]) == 2 and "evaluation.every: 1" in capsys.readouterr().err
    assert main([*made, "--budget.seconds=0.01"]) == 0
    assert "Test was measured" not in (tmp_path / "run" / "README.md").read_text()
    assert main(made) == 0
    run, told = tmp_path / "run", read_rows(tmp_path / "run")
    card = (run / "README.md").read_text()
    assert (
        "\nTest was measured 2 times, as the run ended before and went on: it is sealed no "
        "longer.\n" in card
    )
    names = json.loads((run / "commit.json").read_text())["state"]["categories"]
    assert (
        card.startswith("# run\n\nA detector")
        and len(names) > 2
        and all(f"| {each} | " in card for each in names)
    )
    assert (
        "| images | 12 | 12 | 3 |" in card
        and f"| mAP (COCO) | {told[0]['val/mAP']:.3f} | {told[1]['eval/mAP']:.3f} |" in card
    )
    assert "12 of 12 images of val stand in train, too" in card and "was trained on." not in card
    assert "On val, F1 is largest for boxes with scores of at least" in card
    assert fill_prompt("Find: {categories}.", ["a", "b"]) == "Find: a, b."
    evaluate = ["evaluate", str(run), f"--data={data_of(run)}", "--accelerator=cpu", "--pictures=0"]
    assert main(evaluate) == 0  # and asks what was taught
    assert f"mAP      {told[-1]['eval/mAP']:.3f}" in capsys.readouterr().out


def test_the_best_checkpoint_by_val_is_kept_and_test_is_judged_with_it(tmp_path: Path) -> None:
    """Val alone is looked at on the way; test once, at the end."""
    ended = forks.run(looking(tmp_path, schedule__steps=4), 1, tmp_path / "job")
    assert set(ended.codes) == {0}, ended.err
    run, told = tmp_path / "run", read_rows(tmp_path / "run")
    scores = [row["val/f1_50"] for row in told]
    best = scores.index(max(scores))
    assert max(scores) > scores[-1], scores
    assert find_score(run) == RunScore("val/f1_50", max(scores))
    assert [("eval/f1_50" in row) for row in told] == [False] * 3 + [True]
    assert find_model(run) == (run / "best", best + 1) and find_model(run, last=True) == (
        run / "model",
        4,
    )
    (kept,) = (run / "best").glob("weights-*.safetensors")
    model = transformers.AutoModelForImageTextToText.from_pretrained(run / "best")
    held, state = load_file(kept), model.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in held.items())
    assert any(not torch.equal(weight, held[name]) for name, weight in weights(run).items())


@pytest.mark.slow
def test_evaluate_takes_the_best_checkpoint_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The best by a made-up F1; of equals the last, for which patience does not wait anew."""
    scores = (f1 for f1 in (0.5, 0.5, 0.25, 0.5, 0.25) for _ in ("choose", "record"))
    known = metrics.compute_f1
    monkeypatch.setattr(
        metrics, "compute_f1", lambda counts: {**known(counts), "f1_50": next(scores)}
    )
    keys = {"schedule__steps": 9, "evaluation__patience": 4, "evaluation__pictures": 0}
    made = [
        each
        for each in looking(tmp_path, "two_channel", **keys)
        if not each.startswith("--data.test=")
    ]
    assert main(made) == 0
    monkeypatch.undo()
    run = tmp_path / "run"
    assert len(read_rows(run)) == 5
    evaluate = [
        "evaluate",
        str(run),
        f"--data={run.parent.parent}/shapes/test.jsonl",
        "--accelerator=cpu",
        "--pictures=0",
    ]
    for options, steps in (([], 4), (["--last"], 5)):
        assert main([*evaluate, *options]) == 0
        assert f"after {steps} steps" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_ends_where_val_no_longer_rises_and_so_does_one_that_was_killed(
    tmp_path: Path,
) -> None:
    keys = {"evaluation__patience": 2, "schedule__steps": 12}
    ended = forks.run(looking(tmp_path / "whole", **keys), 1, tmp_path / "whole" / "job")
    assert set(ended.codes) == {0}, ended.err
    told = read_rows(tmp_path / "whole" / "run")
    scores = [row["val/f1_50"] for row in told]
    assert len(told) == scores.index(max(scores)) + 3 < 12 and "eval/mAP" in told[-1]
    assert f"val F1 has not risen for 2 evaluations: ended after step {len(told)}" in ended.err
    count = len(ended.operations[0])
    for point in (count // 2, count - 2):
        folder = tmp_path / str(point)
        assert forks.run(looking(folder, **keys), 1, folder / "job", point).codes[0] == 137
        # as a tokenizer leaves that is killed while it is written
        (folder / "run" / "model" / ".tmpS2WCVd").touch()
        resumed = forks.run(looking(folder, **keys), 1, folder / "job")
        assert set(resumed.codes) == {0}, resumed.err
        assert differing(content(folder / "run"), content(tmp_path / "whole" / "run")) == []


@pytest.mark.slow
def test_two_ranks_paste_what_one_does(tmp_path: Path) -> None:
    keys = {
        "augmentation__copy_paste": 3,
        "schedule__steps": 3,
        "packing__max_length": 256,
        "evaluation__pictures": 0,
    }
    for ranks in (1, 2):
        root = tmp_path / str(ranks)
        ended = forks.run(
            detectors.arguments(root, ranks, "scribbling", **keys), ranks, root / "job"
        )
        assert set(ended.codes) == {0}, ended.err
    one, other = (read_rows(tmp_path / each / "run") for each in ("1", "2"))
    assert [row["loss/text"] for row in one] == pytest.approx(
        [row["loss/text"] for row in other], rel=1e-4
    )
    assert apart(tmp_path / "1" / "run", tmp_path / "2" / "run") < APART


def test_ranks_stop_together_and_judge_test_with_the_best_weights(tmp_path: Path) -> None:
    keys = {"evaluation__patience": 2, "schedule__steps": 12, "evaluation__pictures": 0}
    ended = forks.run(looking(tmp_path, "scribbling", 2, **keys), 2, tmp_path / "job")
    assert set(ended.codes) == {0}, ended.err
    told = read_rows(tmp_path / "run")
    scores = [row["val/f1_50"] for row in told]
    assert len(told) == scores.index(max(scores)) + 3 < 12 and "eval/mAP" in told[-1]


def looking(folder: Path, loop: str = "scribbling", ranks: int = 1, /, **keys: Any) -> list[str]:
    """Of a run that looks at val after every step."""
    made = detectors.arguments(folder, ranks, loop, evaluation__every=1, **keys)
    return [
        *made,
        next(each for each in made if each.startswith("--data.train=")).replace("train", "val", 1),
    ]


@pytest.mark.slow
def test_what_is_wrong_is_said_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for keys, said in (
        ({"packing__max_length": 36}, "packing.max_length: 36: at least"),
        (
            {"packing__max_length": 48, "schedule__pattern": ["A"]},
            "samples are longer than packing.max_length 48",
        ),
        ({"augmentation__copy_paste": 20}, "samples are longer than packing.max_length 192"),
        ({"data__train": ""}, "data.train: '': name the JSON Lines"),
        ({"evaluation__every": 2}, "evaluation.every: 2: 0, or set data.val"),
        ({"evaluation__patience": 2}, "evaluation.patience: 2: 0, or evaluation.every above 0"),
    ):
        assert main(detectors.arguments(tmp_path, **keys)) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "run" / "metrics.jsonl").exists()
