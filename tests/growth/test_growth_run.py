"""Whole runs by the command: what they leave, how they go on, what they refuse, and what can be
asked of them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conformance import content, differing, read_rows
from PIL import Image
from programs import forks
from programs.growths import arguments
from safetensors.torch import load_file, save_file

from stageb.__main__ import main
from stageb.growth import observation, run
from stageb.growth.config import GrowthConfig, GrowthSection, HostConfig, PolicyConfig
from stageb.growth.deciding import estimate_learning_cost
from stageb.growth.environment import Block
from stageb.growth.observation import SIZE
from stageb.growth.policy import Policy, PolicyLearner
from stageb.growth.run import CURVES

UPDATES, ENVIRONMENTS = 3, 4
BRIEF = {"growth__updates": UPDATES, "evaluation__every": 2, "evaluation__environments": 3}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small run, with all that it can leave."""
    root = tmp_path_factory.mktemp("finished")
    assert main(arguments(root, **BRIEF, curves=True)) == 0
    return root / "run"


def test_a_run_leaves_rows_that_add_up(finished: Path) -> None:
    rows, episodes = read_rows(finished), read_rows(finished, "episodes.jsonl")
    assert [row["episodes"] for row in rows] == [
        ENVIRONMENTS * (update + 1) for update in range(UPDATES)
    ]
    assert [each["environment"] for each in episodes] == list(range(ENVIRONMENTS * UPDATES))
    for row in rows:
        of = [each for each in episodes if each["update"] == row["update"]]
        for name in ("accuracy", "objective", "reward", "fossilized"):
            assert row[name] == pytest.approx(
                sum(each[name] for each in of) / ENVIRONMENTS, abs=1e-5
            )
        assert row["none"] == sum(not each["kept"] for each in of) / ENVIRONMENTS
        assert row["right"] == sum(each["kept"] == [each["truth"]] for each in of) / ENVIRONMENTS
    assert rows[-1]["flops_so_far"] == pytest.approx(
        sum(each["flops"] for each in episodes), rel=1e-4
    )
    assert [row["eval/episodes"] for row in rows] == [0, 3, 3]
    assert {"policy_loss", "approx_kl", "clip_frac", "entropy", "explained_variance"} <= rows[
        0
    ].keys()
    assert not any("time" in name for row in rows for name in row)
    timings = read_rows(finished, "timings.jsonl")
    assert [sum(rank["environments"] for rank in row["ranks"]) for row in timings] == [4, 4, 4]
    for row in timings:
        assert (
            0
            < max(rank["play_s"] for rank in row["ranks"]) + row["learn_s"]
            <= row["seconds"] + 0.01
        )
    assert rows[0]["learning_rate"] == GrowthConfig().ppo.learning_rate
    assert rows[-1]["learning_rate"] == GrowthConfig().ppo.learning_rate_end


def test_a_run_leaves_curves_and_a_checkpoint(finished: Path) -> None:
    with Image.open(finished / "curves.png") as picture:
        assert picture.size == (1200, 650)
    [path] = finished.glob("checkpoint-*.pt")
    config = yaml.safe_load((finished / "config.yaml").read_text())
    learner = PolicyLearner(GrowthConfig(policy=PolicyConfig(**config["policy"])))
    learner.load(torch.load(path, weights_only=True))
    # decisions: after every epoch but the last
    assert learner.normaliser.moments[0, 0] == UPDATES * ENVIRONMENTS * 3


def test_nothing_that_a_run_shows_is_of_the_test_set(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A person who chooses by what is shown chooses by the validation set; the test set is left for
    ``evaluate``."""
    shown = [
        *read_rows(finished)[-1],
        *read_rows(finished, "episodes.jsonl")[-1],
        *CURVES.tested.values(),
    ]
    shown += [text for panel in CURVES.panels for text in panel]
    assert [name for name in shown if "test" in name] == []
    judge = Block.judge

    def watched(block: Block, test: bool) -> list[tuple[float, float]]:
        assert not test
        return judge(block, test)

    monkeypatch.setattr(Block, "judge", watched)
    assert (
        main(arguments(tmp_path, **{**BRIEF, "growth__updates": 2}, output__run_name="trial")) == 0
    )
    assert (
        main(arguments(tmp_path, **{**BRIEF, "growth__updates": 2}, output__run_name="trial")) == 0
    )
    said = capsys.readouterr().err
    assert said.count("validation accuracy") >= 3
    assert "test" not in said.replace(str(tmp_path), "")


def test_updates_may_be_raised_and_never_lowered(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    before = read_rows(finished)
    more = {**BRIEF, "curves": True}
    assert main(arguments(tmp_path, **{**more, "growth__updates": UPDATES + 2})) == 0
    assert f"resuming after {UPDATES} of {UPDATES + 2} updates" in capsys.readouterr().err
    rows = read_rows(tmp_path / "run")
    assert rows[:UPDATES] == before and len(rows) == UPDATES + 2
    assert (
        rows[-1]["learning_rate"]
        == GrowthConfig().ppo.learning_rate_end
        < rows[UPDATES]["learning_rate"]
    )
    assert (
        yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["growth"]["updates"]
        == UPDATES + 2
    )
    assert main(arguments(tmp_path, **more)) == 2
    assert f"growth.updates: {UPDATES + 2} there, {UPDATES} now" in capsys.readouterr().err
    assert main(arguments(tmp_path, **{**more, "growth__updates": UPDATES + 2})) == 0
    assert "already finished" in capsys.readouterr().err


@pytest.mark.parametrize("controller", ["heuristic", "probe-1", "oracle"])
def test_controllers_that_do_not_learn_run_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], controller: str
) -> None:
    """Long enough for a seed to be kept."""
    keys = {**BRIEF, "growth__updates": 1, "host__epochs": 6, "evaluation__environments": 1}
    assert main(arguments(tmp_path, **keys, growth__controller=controller)) == 0
    [row] = read_rows(tmp_path / "run")
    assert row["entropy"] is None
    assert row["fossilized"] >= 1
    if controller == "oracle":
        assert row["right"] == 1
    assert "rank 0 on cpu: 4 environments of an update, in 2 blocks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"growth__environments": 5}, "growth.environments: 5: a multiple of growth.block, 2"),
        ({"growth__updates": 0}, "growth.updates: 0: at least 1"),
        ({"host__epochs": 1}, "host.epochs: 1: at least 2"),
        (
            {"host__blueprints": ["attention"]},
            "host.blueprints: 'attention': a host of kind mlp can hold",
        ),
        (
            {"fabric__precision": "bf16-mixed"},
            "fabric.precision: 'bf16-mixed': null: hosts are trained in float32",
        ),
        (
            {"growth__controller": "oracle", "task__name": "digits"},
            "the right growth in the task digits is not known",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], told: str
) -> None:
    assert main(arguments(tmp_path, **keys)) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# The assignment


def test_the_assignment_is_told_and_a_lopsided_one_said() -> None:
    section = GrowthSection(environments=16, block=4)
    even = run.describe_assignment(["cuda:0", "cuda:1"], [8, 8], section)
    assert even == [
        f"rank {rank} on cuda:{rank}: 8 environments of an update, in 2 blocks" for rank in (0, 1)
    ]
    *_, said = run.describe_assignment(["cpu"] * 3, [8, 4, 4], section)
    assert said.startswith("lopsided: ranks wait for the busiest, and 33% of their time is idle")
    assert said.endswith("a multiple of 3")


# Evaluating and playing


def test_evaluate_compares_at_equal_flops_and_the_same_on_two_ranks(
    finished: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(finished, tmp_path / "other")

    def asked(ranks: int, out: str) -> list[str]:
        line = [
            "evaluate",
            str(finished),
            "--environments",
            "3",
            "--also",
            str(other),
            "--out",
            str(tmp_path / out),
        ]
        return [
            *line,
            "--accelerator=cpu",
            f"--devices={ranks}",
            "--against=heuristic,static-final,oracle",
        ]

    before = content(finished)
    alone, both = (forks.run(asked(n, f"{n}.jsonl"), n, tmp_path / f"job-{n}") for n in (1, 2))
    assert (alone.codes, both.codes) == ((0,), (0, 0)), alone.err + both.err
    assert alone.out == both.out
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()
    assert differing(content(finished), before) == []
    assert "after 3 updates, and 1 like it; 3 held-out environments, 10000 to 10002" in alone.out
    rows = read_rows(tmp_path, "1.jsonl")
    assert len(rows) == 2 * 4 * 3
    budgets = {row["environment"]: row["flops"] for row in rows if row["controller"] == "ppo"}
    kept = {row["environment"]: row["kept"] for row in rows if row["controller"] == "ppo"}
    for row in rows:
        assert 0.5 * budgets[row["environment"]] < row["flops"] <= budgets[row["environment"]]
        assert row["controller"] != "static-final" or sorted(row["kept"]) == sorted(
            kept[row["environment"]]
        )


def test_evaluate_draws_accuracy_over_flops_and_the_best_and_the_worst_episode(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, pictures = tmp_path / "rows.jsonl", tmp_path / "new" / "pictures"
    line = [
        "evaluate",
        str(finished),
        "--environments",
        "3",
        "--against",
        "heuristic,static-small",
        "--accelerator",
        "cpu",
    ]
    assert main([*line, "--out", str(out), "--pictures", str(pictures)]) == 0
    said = capsys.readouterr().out
    for name, size in {"accuracy": (1100, 600), "best": (1100, 550), "worst": (1100, 550)}.items():
        assert str(pictures / f"{name}.png") in said
        with Image.open(pictures / f"{name}.png") as shown:
            assert shown.size == size
    rows = read_rows(tmp_path, "rows.jsonl")
    for row in rows:
        flops, accuracies = zip(*row["course"], strict=True)
        assert len(flops) == row["epochs"] + 1 and list(flops) == sorted(flops)
        assert (flops[-1], accuracies[-1]) == (row["flops"], row["accuracy"])
    assert main([*line, "--pictures", str(out)]) == 2
    assert "give another --pictures" in capsys.readouterr().err


def test_learning_is_charged_with_episodes_and_the_policys_own_work(finished: Path) -> None:
    config = GrowthConfig(
        policy=PolicyConfig(hidden=8),
        host=HostConfig(epochs=5),
        growth=GrowthSection(environments=4, block=2),
    )
    policy, products = Policy(8, len(config.host.blueprints), 0), []
    for module in policy.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(
                lambda layer, seen, out: products.append(layer.in_features * out.numel())
            )
    policy(
        torch.zeros(1, SIZE),
        observation.make_blank(1),
        torch.ones(1, 4, 3, dtype=torch.bool),
        torch.zeros(1, 3, dtype=torch.int64),
    )
    rows = read_rows(finished)
    assert all(row["epochs"] == 1 for row in rows)
    # to act, to begin, and one pass forward and backward
    forwards = UPDATES * ENVIRONMENTS * 4 * (2 + 3)
    expected = sum(row["flops"] for row in rows) + forwards * 2 * sum(products)
    assert estimate_learning_cost(finished, config) == pytest.approx(expected)
    assert (
        estimate_learning_cost(
            finished, replace(config, growth=replace(config.growth, controller="heuristic"))
        )
        == 0
    )


def test_play_shows_an_episode_and_writes_it_as_a_picture(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "episode.png"
    assert main(["play", str(finished), "--controller", "heuristic", "--out", str(place)]) == 0
    said = capsys.readouterr().out
    assert "teacher, held-out environment 0: heuristic; right:" in said
    assert "early " in said
    assert str(place) in said
    with Image.open(place) as shown:
        assert shown.size == (1100, 550)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["play", "young"], "young: its run has committed nothing yet"),
        (["play", "young", "--out", "a.gif"], "give a name that ends in .png"),
        (
            ["evaluate", "young", "--against", "nobody"],
            "--against: 'nobody': of: probe-1, probe-2, heuristic",
        ),
        (
            ["evaluate", "young", "--against", "probe-2"],
            "--against: 'probe-2': its trials of 2 epochs need",
        ),
        (
            ["evaluate", "young", "--against", "oracle"],
            "--against: 'oracle': the right growth in the task digits",
        ),
        (["evaluate", "young", "--environments", "0"], "--environments: 0: 1 to 1000000"),
        (
            ["evaluate", "young", "--environments", "999999999999"],
            "--environments: 999999999999: 1 to 1000000",
        ),
        (["evaluate", "young", "--block", "0"], "--block: 0: at least 1"),
    ],
)
def test_what_cannot_be_played_or_evaluated_is_told(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    line: list[str],
    told: str,
) -> None:
    (tmp_path / "young").mkdir()
    (tmp_path / "young" / "config.yaml").write_text(
        "loop: growth\ntask: {name: digits}\ngates: {training_epochs: 1}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(line) == 2
    assert told in capsys.readouterr().err


def test_weights_of_another_policy_and_unlike_runs_are_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text(
        (finished / "config.yaml").read_text().replace("hidden: 8", "hidden: 9")
    )
    shutil.copy(finished / "commit.json", other)
    shutil.copytree(finished / "weights", other / "weights")
    assert main(["play", str(other)]) == 2
    assert "not the weights of the policy that config.yaml tells of" in capsys.readouterr().err
    assert main(["evaluate", str(finished), "--also", str(other)]) == 2
    assert "only seeds may differ" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "told"), [("policy", "holds NaN"), ("normaliser.moments", "size mismatch")]
)
def test_weights_that_decide_nothing_are_refused(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    bent = Path(shutil.copytree(finished, tmp_path / "bent"))
    (path,) = (bent / "weights").glob("*.safetensors")
    weights = load_file(path)
    key = next(key for key in weights if key.startswith(name))
    save_file(
        {
            **weights,
            key: torch.full_like(weights[key], torch.nan) if "NaN" in told else torch.zeros(3, 7),
        },
        path,
    )
    assert main(["evaluate", str(bent), "--environments", "2", "--against", "random"]) == 2
    said = capsys.readouterr().err
    assert "not the weights of the policy that config.yaml tells of" in said and told in said


def test_a_run_counts_once(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "again").symlink_to(finished)
    for again in (finished, tmp_path / "again"):
        assert main(["evaluate", str(finished), "--environments", "2", "--also", str(again)]) == 2
        assert "--also" in (said := capsys.readouterr().err) and "each once" in said
