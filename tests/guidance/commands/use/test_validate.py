"""``stageb validate``, as a command and as a function: what a fit would read and cost, and nothing
started."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from programs import small

import stageb
from stageb.__main__ import main
from stageb.cli.parsing import parse
from stageb.guidance.commands.use import validate
from stageb.store.commits import COMMIT, flatten


def test_a_sound_config_is_told_its_cost_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "stageb.engines.build", lambda model, device: pytest.fail("no model may be loaded")
    )
    path = small.write(tmp_path / "in.jsonl", "valves", "pumps")
    keys = {"model.engine": "transformers", "sampler.max_prompt_tokens": 121}
    arguments = small.arguments(path, tmp_path / "out", keys=keys)
    assert main(["validate", *arguments[1:]]) == 0
    said = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]
    found = stageb.validate(
        tickets=[path],
        output={"root": tmp_path / "out"},
        split={"train": 0.7, "val": 0.15, "test": 0.15},
        sampler={"samples_per_decode": 2, "micro_batch_size": 2, "max_prompt_tokens": 121},
        runner={"epochs": 2, "per_rank_rollout_batch_size": 24},
        reflection={"batch_size": 18, "num_proposals": 4},
        fabric={"accelerator": "cpu"},
    )
    assert (
        f"At most {found.rollouts:,} answers on tickets (rollouts), {found.reflections:,} that "
        f"propose" in said
    )
    assert f" and {found.verdicts:,} verdicts that test these (for the gate); what" in said
    assert {mission: sum(splits.values()) for mission, splits in found.tickets.items()} == {
        "valves": 160,
        "pumps": 160,
    }
    assert found.prompts is not None
    assert 0 < found.prompts.set_aside < 320
    longest = {"max_prompt_tokens": found.prompts.longest}
    whole = stageb.validate(tickets=[path], output={"root": tmp_path / "out"}, sampler=longest)
    assert whole.prompts is not None and whole.prompts.set_aside == 0
    assert f"{found.prompts.set_aside} tickets are longer than sampler.max_prompt_tokens" in said
    weights = json.loads((Path(stageb.__file__).parent / "tiny/checkpoint/config.json").read_text())
    per_token = (
        2 * weights["num_hidden_layers"] * weights["num_key_value_heads"] * weights["head_dim"] * 4
    )
    assert found.memory.caches is not None and found.memory.weights is not None
    tokens, remainder = divmod(found.memory.caches, per_token)
    assert remainder == 0
    answers = 2 * 2 * 96  # of two tickets at once, each at full length
    assert found.prompts.shortest + answers < tokens < 2 * 121 + answers
    assert (
        Path(stageb.__file__).parent / "tiny/checkpoint/model.safetensors"
    ).stat().st_size * 1.9 < found.memory.weights
    assert (found.rate, found.seconds) == (None, None)


def test_a_budget_caps_what_a_run_may_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small.write(tmp_path / "in.jsonl", "valves")
    given = {
        "tickets": [path],
        "model": {"engine": "scripted"},
        "sampler": {"samples_per_decode": 2},
    }
    found = stageb.validate(**given, budget={"rollouts": 500})
    splits = found.tickets["valves"]
    assert (found.budget, found.measuring) == (500, 2 * (splits["val"] + splits["test"]))
    assert (
        main(["validate", *small.arguments(path, tmp_path, keys={"budget.rollouts": 500})[1:]]) == 0
    )
    said = capsys.readouterr().out
    assert (
        "At most 500 rollouts and verdicts for the gate together until budget.rollouts ends "
        "learning, plus " in said
    )
    assert " to measure val and test" in said
    plenty = stageb.validate(**given, budget={"rollouts": 10**9})
    assert (plenty.budget, plenty.measuring) == (None, 0)


class Earlier:
    """Makes runs in ``output.root`` that ended with these timings: rows of tickets, bundles and
    seconds."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "out"
        self.path = small.write(folder / "in.jsonl", "valves")
        self.keys = {
            "model.engine": "scripted",
            "runner.judge": "both",
            "reflection.scope": "bundle",
        }

    def arguments(self, *options: str) -> list[str]:
        return ["validate", *small.arguments(self.path, self.root, keys=self.keys)[1:], *options]

    def make(self, name: str, timings: Sequence[tuple[int, int, float]], verdicts: int = 0) -> Path:
        run = self.root / name
        run.mkdir(parents=True)
        config = flatten(asdict(parse(self.arguments()[1:]).config))
        state = {"spent": {"rollouts": verdicts, "judged": 0, "reflections": 5, "tokens": 1}}
        commit = {"number": 1, "state": state, "config": config, "lengths": {}, "versions": {}}
        (run / COMMIT).write_text(json.dumps(commit))
        (run / "run.json").write_text('{"world_size": 2, "device_name": "cpu"}')
        rows = [
            {"tickets": tickets, "bundles": bundles, "seconds": s}
            for tickets, bundles, s in timings
        ]
        (run / "timings.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return run


@pytest.fixture
def earlier(tmp_path: Path) -> Earlier:
    return Earlier(tmp_path)


def test_an_earlier_run_in_which_code_judged_says_what_reflections_take(
    earlier: Earlier, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verdicts tell nothing there: this one asked the model for 7 in a minute, and thousands are
    forecast for the next."""
    run = earlier.make(
        "german", [(64, 0, 0.1), (0, 1, 20.0), (64, 0, 0.1), (0, 2, 40.0), (0, 0, 0.0)], verdicts=7
    )
    assert main(earlier.arguments()) == 0
    said = capsys.readouterr().out
    bundles = count_bundles(said)
    assert (
        f"Time: about {bundles * 20 // 60} min at the pace of {run} on 2 x cpu, reflections and "
        f"all; less where" in said
    )
    assert "code applies the rules and gives most of these answers and verdicts" in said


def count_bundles(said: str) -> int:
    """Bundles of a run that was told how many answers propose rules at most: four for each."""
    (found,) = re.findall(r"([\d,]+) that propose rules", said)
    return int(found) // 4


def test_of_earlier_runs_the_latest_counts_that_timed_all_that_is_to_come(
    earlier: Earlier, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*options: str) -> str:
        assert main(earlier.arguments(*options)) == 0
        return next(
            line for line in capsys.readouterr().out.splitlines() if line.startswith("Time: ")
        )

    assert told().startswith("Time: unknown")
    whole = earlier.make("whole", [(100, 0, 1.0), (0, 4, 64.0)])
    assert f"at the pace of {whole} on" in told()
    cut = earlier.make("cut", [(100, 0, 1.0), (0, 0, 64.0)])  # before its first reflection
    os.utime(cut / COMMIT, (3e9, 3e9))
    assert f"at the pace of {whole} on" in told()
    assert f"at the pace of {cut} on" in told("--runner.epochs=0")  # which reflects on nothing
    slow = earlier.make("slow", [(100, 0, 100.0), (0, 4, 640.0)])
    os.utime(slow / COMMIT, (1e9, 1e9))
    assert f"at the pace of {whole} on" in told()
    os.utime(slow / COMMIT, (4e9, 4e9))
    assert f"at the pace of {slow} on" in told()
    for other in (
        "--sampler.samples_per_decode=3",
        "--reflection.num_proposals=64",
        "--runner.judge=model",
    ):
        assert told(other).startswith("Time: unknown")


def test_a_budget_of_rollouts_shortens_what_an_earlier_run_took(earlier: Earlier) -> None:
    earlier.make("whole", [(100, 0, 100.0), (0, 4, 640.0)], verdicts=7400)
    found = validate.check_inputs(parse(earlier.arguments("--budget.rollouts=100")[1:]).config)
    assert found.seconds == (100 + found.measuring) / 10.0
    whole = validate.check_inputs(parse(earlier.arguments()[1:]).config)
    assert whole.rate is not None
    assert whole.seconds == whole.rate.seconds > found.seconds


def test_faults_of_all_files_and_of_the_model_come_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small.write(tmp_path / "in.jsonl", "valves")
    with path.open("a") as opened:
        opened.write("{\n")
    (tmp_path / "g.json").write_text('{"valves": {"experiences": {}}}')
    (tmp_path / "t.csv").write_text("mission,group_id,label,seal\nvalves,1,OK,new\n")
    files = f"[{path}, {tmp_path / 't.csv'}]"
    bad = [
        f"--tickets={files}",
        f"--guidance.path={tmp_path / 'g.json'}",
        f"--model.model_name_or_path={tmp_path}",
    ]
    assert main(["validate", *bad]) == 2
    said = capsys.readouterr().err
    assert "4 unusable places" in said
    for place in (
        "in.jsonl:161: not JSON",
        't.csv:2: label "OK"',
        "g.json:1: mission 'valves': no experiences",
        "model: ",
    ):
        assert place in said
    assert (
        main(["validate", *bad[:1], "--columns", "passes=OK,fails=NG", "--on_bad_record=skip"]) == 0
    )
    assert "1 unusable ticket lines would be set aside" in capsys.readouterr().out


def test_what_the_model_cannot_do_is_a_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small.write(tmp_path / "in.jsonl", "valves", groups=30)
    with path.open("a") as opened:
        long = {
            "mission": "valves",
            "group_id": "long",
            "label": "pass",
            "per_image": {"1": "word " * 4070},
        }
        opened.write(json.dumps(long) + "\n")
    keys = [f"--tickets=[{path}]", "--fabric.accelerator=cpu"]
    assert main(["validate", *keys, "--sampler.max_prompt_tokens=9000"]) == 2
    said = capsys.readouterr().err
    assert (
        "sampler.max_prompt_tokens: 1 prompts are longer than the model's 4,096 tokens leave "
        "beside an answer of 96" in said
    )
    assert "ticket long::pass of mission valves" in said
    assert "set it to 4000 to set such tickets aside" in said
    assert main(["validate", *keys, "--sampler.max_prompt_tokens=4000"]) == 0
    server = ["--model.engine=openai", "--model.base_url=http://localhost:9/v1"]
    server += ["--model.model_name_or_path=theirs"]
    assert main(["validate", *keys, *server, "--sampler.reasons=all"]) == 0
    assert "lengths are estimates; name the model's tokenizer" in capsys.readouterr().out
    for key, other, said in (
        ("--gate.judge_by=probability", ["--model.engine=scripted"], "scripted cannot give prob"),
        ("--sampler.reasons=wrong", server, "openai cannot resume an answer from its exact tokens"),
    ):
        assert main(["validate", *keys, "--sampler.max_prompt_tokens=4000", key]) == 0
        assert main(["validate", *keys, *other, key]) == 2
        assert f"engine {said}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_config_of_another_loop_is_checked_for_its_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("loop: ppo\n")
    assert main(["validate", "--config", str(tmp_path / "c.yaml")]) == 0
    assert (
        "The keys are valid, and so is snake: observations (144,) of uint8"
        in capsys.readouterr().out
    )
    assert main(["validate", "--config", str(tmp_path / "c.yaml"), "--tickets=[x]"]) == 2
    assert "there is no key tickets" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["validate", "fit"])
def test_where_no_mission_has_both_labels_nothing_can_be_learnt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    path = tmp_path / "in.csv"
    path.write_text(
        "mission,group_id,label,seal\n" + "".join(f"racks,{n},pass,s{n}\n" for n in range(40))
    )
    arguments = small.arguments(path, tmp_path / "out", keys={"model.engine": "scripted"})[1:]
    assert main([command, *arguments]) == 2
    said = capsys.readouterr()
    what = (
        "nothing can be learnt of mission 'racks': all its tickets are labelled pass; give "
        "tickets labelled fail too"
    )
    assert said.err.splitlines()[1:] == [f"  {path}: {what}"]
    assert said.out == ""
    assert main(["validate", *arguments, "--runner.epochs", "0"]) == 0
    with path.open("a") as opened:
        opened.writelines(f"hoses,{n},{'fail' if n % 2 else 'pass'},s{n}\n" for n in range(40))
    assert main(["validate", *arguments]) == 0
    assert (
        "racks: all 40 tickets are labelled pass: nothing can be learnt" in capsys.readouterr().out
    )
