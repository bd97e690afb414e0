"""The benchmarks as a user calls them, on the smallest workload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engines import fake_vllm

from lab.bench import contestants
from lab.bench.__main__ import main
from lab.bench.contestants import Contestant
from lab.bench.workloads import Workload
from stageb.engines.protocol import Completion, Request
from stageb.guidance.rules.guidance_json import to_json
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.types import Demonstration

SMALL = ["--workload", "small", "--accelerator", "cpu", "--repeats", "1", "--tickets", "6"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def bench(*arguments: str) -> int:
    return main([arguments[0], *SMALL, *arguments[1:]])


@pytest.mark.slow
def test_rollout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert (
        bench(
            "rollout",
            "--engines",
            "ours,generate:4,generate-n",
            "--check",
            "4",
            "--json",
            str(file),
        )
        == 0
    )
    record = json.loads(file.read_text())
    assert [row["engine"] for row in record["engines"]] == ["ours", "generate", "generate-n"]
    assert record["prompt_tokens"] == 6 * 48
    for row in record["engines"]:
        assert row["new_tokens"] == row["tickets"] * 2 * 16  # nothing ends an answer early
        assert row["greedy_equal"] == 1.0
        assert row["rollouts_per_s"] > 0
        assert 0 < row["floor_share"] < 1
    assert record["engines"][0]["keys_equal"] == 1.0
    assert record["engines"][1]["keys_equal"] is None
    assert "ours" in capsys.readouterr().out


class Wrong:
    """Answers right but for one greedy token, and draws from the batch's size."""

    def __init__(self, workload: Workload, device: str) -> None:
        self._right = contestants.CONTESTANTS["generate"].load(workload, device)

    def generate(self, requests: Sequence[Request]) -> list[tuple[Completion, ...]]:
        answers = self._right.generate(requests)
        if requests[0].decode.temperature > 0:
            return [
                (Completion(f"w{len(requests)}", 16, "length"),) * len(request.keys)
                for request in requests
            ]
        (first,) = answers[0]
        words = first.text.split()
        words[5] = "w1" if words[5] != "w1" else "w2"
        return [(Completion(" ".join(words), 16, "length"),), *answers[1:]]


def test_the_checks_tell_wrong_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        contestants.CONTESTANTS, "wrong", Contestant(Wrong, keyed=True, in_batches=True)
    )
    file = tmp_path / "out.json"
    assert bench("rollout", "--engines", "wrong", "--check", "4", "--json", str(file)) == 0
    (row,) = json.loads(file.read_text())["engines"]
    assert (row["greedy_equal"], row["greedy_first_difference"], row["keys_equal"]) == (
        0.75,
        5,
        0.0,
    )


@pytest.mark.slow
def test_vllm_is_given_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", fake_vllm)
    monkeypatch.setattr(fake_vllm.LLM, "forgot", 0)
    file = tmp_path / "out.json"
    assert bench("rollout", "--engines", "ours,vllm-n", "--check", "2", "--json", str(file)) == 0
    # before every pass: the tickets of an earlier one would be read for nothing
    assert fake_vllm.LLM.forgot >= 2
    ours, plain = json.loads(file.read_text())["engines"]
    assert ours["new_tokens"] > 0
    assert plain["new_tokens"] == 6 * 2 * 16
    # it has random weights of its own
    assert plain["keys_equal"] is None and plain["greedy_equal"] is None


@pytest.mark.slow
@pytest.mark.parametrize(("new", "tokens"), [("1", [0, 6, 6, 6]), ("8", None)])
def test_prompts_of_a_run_ask_every_engine_for_verdicts(
    new: str, tokens: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", fake_vllm)
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    guidance, tickets, file = (
        tmp_path / "guidance.json",
        tmp_path / "tickets.jsonl",
        tmp_path / "out.json",
    )
    rules = replace(
        make_neutral("caps", WORDS["en"]),
        demonstrations=(Demonstration("a0::fail", (("image_1", "cap 0"),), "fail"),),
    )
    guidance.write_text(json.dumps(to_json(rules)))
    rows = [
        {
            "mission": "caps",
            "group_id": f"a{i}",
            "label": "fail",
            "per_image": {"image_1": f"cap {i}"},
        }
        for i in range(9)
    ]
    tickets.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    engines = "rounds,vllm-run,vllm-run-lines,vllm-run-cascade"
    options = (
        f"--workload run --accelerator cpu --repeats 1 --warmup 0 --tickets 6 --check 0 "
        f"--new-tokens {new}".split()
    )
    options += ["--guidance", str(guidance), "--data", str(tickets), "--engines", engines]
    assert main(["rollout", *options, "--json", str(file)]) == 0
    record = json.loads(file.read_text())
    assert record["workload"]["guidance"] == str(guidance)
    assert not record["failed"]
    assert tokens is None or [row["new_tokens"] for row in record["engines"]] == tokens


@pytest.mark.slow
def test_precision(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(["precision", "--tickets", "4", "--new-tokens", "6", "--json", str(file)]) == 0
    ways = {(row["way"], row["dtype"]): row for row in json.loads(file.read_text())["ways"]}
    assert set(ways) == {
        ("ours", "float32"),
        ("ours", "bfloat16"),
        ("ours", "float8"),
        ("generate", "bfloat16"),
    }
    ours = ways["ours", "float32"]
    assert (ours["as_generate"], ours["as_float32"]) == (1.0, 1.0)
    assert (
        ours["lead_most"]
        < 1e-4
        < ways["ours", "bfloat16"]["lead_mean"]
        < ways["ours", "float8"]["lead_mean"]
        < 1
    )
    assert ours["verdicts"] == 1
    assert "stageb-tiny: 4 tickets" in capsys.readouterr().out


@pytest.mark.slow
def test_scale_over_two_ranks(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        "lab.bench",
        "scale",
        *SMALL,
        "--devices",
        "2",
        "--json",
        str(file),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, check=True, env=environment, timeout=120)
    rows = json.loads(file.read_text())["rounds"]
    assert [row["ranks"] for row in rows] == [1, 2]
    assert rows[0]["share_of_linear"] == 1.0
    assert all(0 <= row["orchestration_share"] < 1 for row in rows)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no-such-benchmark"],
        ["rollout", "--engines", "nobody"],
        ["rollout", "--engines", "ours:9999"],
        ["rollout", "--repeats", "0"],
        ["rollout", "--workload", "demo-cpu", "--shared-tokens", "5"],
        ["precision", "--checkpoint", "/no/such/folder"],
        ["precision", "--checkpoint", "/no/such/file.gguf"],
    ],
)
def test_bad_input(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("lab.bench: ")
