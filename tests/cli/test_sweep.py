"""Sweeps over keys, of small runs."""

from __future__ import annotations

import csv
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import growths, small

from stageb.__main__ import main
from stageb.cli import sweep
from stageb.cli.parsing import parse
from stageb.guidance.commands.fit.accuracies import find_score
from stageb.guidance.rules.guidance_json import format_file
from stageb.guidance.words.types import Guidance, Rule
from stageb.job import lifetime
from stageb.store.journal import Journal, safe_name

CARTPOLE = (
    "--loop=ppo --env.name=CartPole-v1 --agent.hidden=8 --runner.envs=6 "
    "--runner.rollout_steps=16 --runner.total_steps=384 "
    "--runner.global_batch=48 --evaluation.episodes=5 --curves=false --fabric.accelerator=cpu "
    "--fabric.devices=1 --loggers=[]"
).split()
OVER = [
    "--over=ppo.learning_rate=1e-4..1e-1:log",
    "--over=runner.rollout_steps=16,32",
    "--over=ppo.epochs=1..3",
]
ASKED = [*CARTPOLE, *OVER]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of fit are made in this process."""
    pytest.importorskip("optuna")
    monkeypatch.setattr(subprocess, "call", lambda words: main(words[3:]))


def read_table(root: Path) -> list[list[str]]:
    with (root / "run-sweep" / "trials.csv").open(newline="") as file:
        return list(csv.reader(file))


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_sweep_tries_values_and_writes_the_best_config_and_an_interrupted_one_goes_on_with_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["sweep", *ASKED, f"--output.root={tmp_path}/whole"]
    assert main([*words, "--trials=3"]) == 0
    said = capsys.readouterr().out
    head, *rows = read_table(tmp_path / "whole")
    assert head == [
        "trial",
        "ppo.learning_rate",
        "runner.rollout_steps",
        "ppo.epochs",
        "eval/return",
    ]
    assert sorted(row[0] for row in rows) == ["0", "1", "2"] and len({row[1] for row in rows}) == 3
    assert [float(row[-1]) for row in rows] == sorted(
        (float(row[-1]) for row in rows), reverse=True
    )
    assert all(
        1e-4 <= float(row[1]) <= 0.1 and row[2] in ("16", "32") and row[3] in "123" for row in rows
    )
    best = tmp_path / "whole" / "run-sweep" / "best.yaml"
    assert said.endswith(f"{best}: the config of trial {rows[0][0]}\n")
    assert main(["fit", f"--config={best}", f"--output.root={tmp_path}/again"]) == 0
    assert f"return {float(rows[0][-1]):.2f}" in capsys.readouterr().err

    words[-1] = f"--output.root={tmp_path}/part"
    assert main([*words, "--trials=1"]) == 0
    with monkeypatch.context() as interrupted:
        last = list[str]()

        def interrupt(words: object) -> int:
            last.append(lifetime.interrupted(15))
            return -15

        interrupted.setattr(subprocess, "call", interrupt)
        assert main([*words, "--trials=3"]) == 143
    assert "; what its runs have committed stands; to resume: " in last[0]
    capsys.readouterr()
    assert main([*words, "--trials=3"]) == 0
    assert "trial 0" not in capsys.readouterr().err
    assert read_table(tmp_path / "part") == [head, *rows]
    for others in ([*words[:-2], words[-1]], [*words, "--ppo.gamma=0.5"]):
        assert main(others) == 2
        assert "holds a sweep over other values, or from another config" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_last_line_of_a_study_that_is_half_written_is_dropped_and_another_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sweep",
        *CARTPOLE,
        f"--output.root={tmp_path}",
        "--over=agent.hidden=4,8",
        "--trials=1",
    ]
    assert main(words) == 0
    (study,) = tmp_path.glob("*/study.log")
    os.truncate(study, study.stat().st_size - 7)
    capsys.readouterr()
    assert main(words) == 0
    assert f"{study}: its last line was half written, and is dropped" in capsys.readouterr().err
    lines = study.read_bytes().splitlines(keepends=True)
    study.write_bytes(b"".join([lines[0], lines[1][:-5] + b"\n", *lines[2:]]))
    assert main(words) == 2
    assert f"{study}:2: not a line of a study; take the line out" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_trial_that_fails_is_left_out_and_a_sweep_of_nothing_else_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", *CARTPOLE, f"--output.root={tmp_path}", "--trials=2"]
    assert main([*words, "--over=runner.global_batch=47,49"]) == 1
    said = capsys.readouterr().err
    assert said.count("failed, exit code 2; the sweep goes on without it") == 2
    assert "runner.global_batch: 4" in said and "every trial failed" in said


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("signal", [1, 2, 9, 15])
def test_a_run_that_was_killed_has_not_failed_and_goes_on_at_the_next_call(
    signal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever signal it was: a closed terminal, Ctrl-C, too little memory, a time limit."""
    seeds = ["fit", *CARTPOLE, f"--output.root={tmp_path}", "--seeds=2"]
    sweep = ["sweep", *CARTPOLE, f"--output.root={tmp_path}", "--trials=2"]
    sweep.append("--over=runner.global_batch=47,49")  # no run can begin so: it fails at once
    with monkeypatch.context() as killed:
        killed.setattr(subprocess, "call", lambda words: -signal)
        assert main(seeds) == 128 + signal
        capsys.readouterr()
        for _ in range(2):
            assert main(sweep) == 128 + signal
    said = capsys.readouterr().err
    (tried,) = {line for line in said.splitlines() if line.startswith("trial")}
    assert "failed" not in said and tried.startswith("trial 0: ")
    assert main(sweep) == 1
    again = capsys.readouterr().err
    assert again.startswith(tried) and again.count("failed, exit code 2") == 2


def test_each_trial_tries_values_of_its_own_which_the_seed_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.setattr(subprocess, "call", lambda words: 2)  # every run fails at once

    def list_tried(name: str, seed: int) -> list[str]:
        words = [f"--output.root={tmp_path / name}", "--trials=5", f"--seed={seed}"]
        assert main(["sweep", *CARTPOLE, OVER[0], *words]) == 1
        said = capsys.readouterr().err.splitlines()
        return [line.split()[-1] for line in said if "ppo.learning_rate" in line]

    tried = list_tried("one", 1)
    assert len(tried) == len({*tried}) == 5
    assert list_tried("again", 1) == tried
    assert {*list_tried("other", 2)}.isdisjoint(tried)


@settings(max_examples=20)
@given(st.lists(st.sampled_from([None, 0.0, 0.25, 0.5]), min_size=1, max_size=7).filter(any))
def test_the_best_trial_is_the_first_of_those_with_the_highest_figure(
    values: list[float | None],
) -> None:
    """``None`` is the figure of a trial that failed."""
    optuna = pytest.importorskip("optuna")
    study, spans = optuna.create_study(direction="maximize"), [sweep.Span("seed", (0, 99), True)]
    study.set_user_attr("figure", "eval/return")
    for value in values:
        spans[0].suggest(begun := study.ask())
        study.tell(begun, value, optuna.trial.TrialState.FAIL if value is None else None)
    with tempfile.TemporaryDirectory() as folder:
        sweep.show(study, Path(folder), spans, CARTPOLE)
        with Path(folder, "trials.csv").open(newline="") as file:
            _, *rows = csv.reader(file)
        best = parse([f"--config={folder}/best.yaml"]).config
    whole = [(number, value) for number, value in enumerate(values) if value is not None]
    ranked = sorted(whole, key=lambda each: each[1], reverse=True)  # stable: ties stay as they are
    assert [(int(row[0]), float(row[2])) for row in rows] == ranked
    assert {int(row[0]): int(row[1]) for row in rows} == {
        trial.number: trial.params["seed"] for trial in study.trials if trial.values
    }
    assert best.seed == int(rows[0][1])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("loop", ["guidance", "growth"])
def test_other_loops_are_judged_by_their_own_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], loop: str
) -> None:
    if loop == "growth":
        words, over = growths.arguments(tmp_path, growth__updates=2), "ppo.learning_rate=0.001,0.01"
    else:
        tickets = small.write(tmp_path / "tickets.jsonl", "valves", "pumps")
        words, over = (
            small.arguments(tickets, tmp_path, keys={"runner.epochs": 1}),
            "reflection.batch_size=12,18",
        )
    assert main(["sweep", *words[1:], f"--over={over}", "--trials=1"]) == 0
    head, [_, tried, value] = read_table(tmp_path)
    said = capsys.readouterr()
    assert tried in over.partition("=")[2].split(",")
    if loop == "growth":
        assert head[-1] == "eval/objective" and f"held out: J {float(value):.3f}" in said.err
    else:
        assert head[-1] == "1 - cost on val" and 0.5 < float(value) <= 1


JUDGED = st.fixed_dictionaries(
    {
        "split": st.sampled_from(["val", "val", "test"]),
        "guidance_step": st.integers(0, 1),
        "costs": st.lists(st.integers(0, 20), min_size=1, max_size=40),
    }
)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 1), st.lists(JUDGED, max_size=4)), min_size=1, max_size=3))
def test_each_val_ticket_weighs_the_same_in_a_runs_figure_whatever_its_mission(
    missions: list[tuple[int, list[dict[str, Any]]]],
) -> None:
    """Counted once, as the final guidance of its mission was last judged."""
    counted = list[int]()
    with tempfile.TemporaryDirectory() as folder:
        with Journal.open(folder, "run", {}) as journal:
            journal.replace("config.yaml", "loop: guidance\n")
            for number, (step, judged) in enumerate(missions):
                mission = f"mission {number}"
                guidance = Guidance(mission, step, (Rule("G0", "Judge it."),), 1)
                files = safe_name(mission)
                journal.replace(f"{files}/guidance.json", format_file([guidance]))
                costs = [(len(each["costs"]), sum(each["costs"])) for each in judged]
                rows = [
                    {**each, "n": n, "cost": total / n}
                    for each, (n, total) in zip(judged, costs, strict=True)
                ]
                journal.append(f"{files}/metrics.jsonl", rows)
                wanted = ("val", step)
                last = [x for x in judged if (x["split"], x["guidance_step"]) == wanted][-1:]
                counted += [cost for each in last for cost in each["costs"]]
            journal.commit({})
        score = find_score(Path(folder, "run"))
    assert (score is None) == (not counted)
    if score:
        assert score.value == pytest.approx(1 - sum(counted) / len(counted))


@pytest.mark.parametrize(
    ("over", "told"),
    [
        (
            "ppo.learning_rate",
            "name a key that results depend on, and two values or more: KEY=A,B,C",
        ),
        ("ppo.learning_rate=0.1", "two values or more"),
        ("output.root=a,b", "name a key that results depend on"),
        ("ppo.learningrate=0.1,0.2", "--over ppo.learningrate=0.1,0.2: "),
        ("ppo.learning_rate=0.1,fast", "ppo.learning_rate: 'fast': expected a number"),
        ("ppo.clip=0..1", "--over ppo.clip=0..1: config: ppo.clip: 0"),
        (
            "ppo.learning_rate=1e-2..1e-4",
            "a range goes from a number to a higher one; or write KEY=A,B,C",
        ),
        ("ppo.entropy_weight=0..1:log", "a range goes from a number to a higher one, both above 0"),
        ("env.name=CartPole-v1..Acrobot-v1", "a range goes from a number"),
    ],
)
def test_values_that_cannot_be_are_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], over: str, told: str
) -> None:
    assert main(["sweep", "--loop=ppo", f"--output.root={tmp_path}/out", f"--over={over}"]) == 2
    said = capsys.readouterr().err
    assert f"--over {over}: " in said and told in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("over", "ends"),
    [
        ("ppo.epochs=1..3", (1, 3)),
        ("runner.envs_per_rank=2..8:log", (2, 8)),  # or null
        ("ppo.entropy_weight=0..2", (0.0, 2.0)),
        ("ppo.target_kl=1..2", (1.0, 2.0)),  # or null
        ("ppo.target_kl=1e-3..0.1:log", (1e-3, 0.1)),
    ],
)
def test_a_range_is_of_whole_numbers_where_its_key_takes_no_others(
    over: str, ends: tuple[float, float]
) -> None:
    given = ["--loop=ppo"]
    span = sweep.read_span(over, type(parse(given).config), given)
    assert [*map(repr, span.values)] == [*map(repr, ends)]
    assert (span.is_range, span.is_log) == (True, over.endswith(":log"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "the following arguments are required: --over"),
        ([*OVER, "--trials=none"], "invalid int value: 'none'"),
        ([*OVER, "--trials=0"], "--trials: 0: 1 or more"),
        ([*OVER, "--seeds=3"], "takes no --seeds and no --fresh"),
        ([*OVER, "--log_levl=info"], "log_levl"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "--loop=ppo", *words]) == 2
    assert told in capsys.readouterr().err


def test_without_its_extra_nothing_is_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "optuna" else find(name)
    )
    assert main(["sweep", *ASKED]) == 2
    assert (
        "stageb sweep needs the extra sweep, of which optuna cannot be found"
        in capsys.readouterr().err
    )


def test_help_says_how_values_are_written() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stageb", "sweep", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "KEY=LOW..HIGH" in done.stdout
