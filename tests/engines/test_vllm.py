"""The vllm engine against a little vLLM (``fake_vllm.py``); with the real one where it is installed and there is a GPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engines import fake_vllm, tiny_models
from engines.contract import check_contract, check_resumer, check_scorer, requests
from programs.forks import SERVER

from stageb.engines import Decode, Engine, Prompt, Question, Request, build
from stageb.engines.config import ModelConfig
from stageb.engines.remote import vllm as engine
from stageb.errors import ConfigError, EngineError
from stageb.job import heartbeat, lifetime


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_models.save(tmp_path_factory.mktemp("qwen3"), "qwen3")


@pytest.fixture(autouse=True)
def little_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", fake_vllm)
    for name in ("CUDA_VISIBLE_DEVICES", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_WORKER_MULTIPROC_METHOD"):
        monkeypatch.delenv(name, raising=False)
    for name in ("VLLM_NO_USAGE_STATS", "VLLM_LOGGING_LEVEL"):
        monkeypatch.setenv(name, "1" if name.endswith("STATS") else "WARNING")


def load(folder: str, device: str = "cuda:0", **options: Any) -> Engine:
    return build(ModelConfig(engine="vllm", model_name_or_path=folder, **options), device)


def test_contract(folder: str) -> None:
    check_contract(load(folder))


def test_resumer(folder: str) -> None:
    resumer = load(folder)
    assert isinstance(resumer, engine.VllmEngine)
    check_resumer(resumer, draws_anew=True)


def test_scorer(folder: str) -> None:
    scorer = load(folder)
    assert isinstance(scorer, engine.VllmEngine)
    check_scorer(scorer)


def test_prompts_are_counted_as_by_transformers(folder: str) -> None:
    prompts = [request.prompt for request in requests()]
    theirs = build(ModelConfig(model_name_or_path=folder), "cpu")
    assert load(folder).count_tokens(prompts) == theirs.count_tokens(prompts)


def test_a_score_is_that_of_the_answer_behind_its_prompt(folder: str) -> None:
    """Greedy decoding took each token for the most probable: what it wrote must score above any other answer."""
    one = load(folder)
    assert isinstance(one, engine.VllmEngine)
    prompt = Prompt("rules", "a red valve")
    ((greedy,),) = one.generate([Request(prompt, Decode(temperature=0.0, max_new_tokens=1), (1,))])
    others = tuple(letter for letter in "abcdefgh" if letter != greedy.text)
    assert one.score([Question(prompt, (greedy.text, *others))])[0][0] == max(
        one.score([Question(prompt, (greedy.text, *others))])[0]
    )


def test_every_step_is_a_sign_of_life(folder: str) -> None:
    one = load(folder)
    before = heartbeat.now().count
    one.generate([Request(Prompt("rules", "a red valve"), Decode(max_new_tokens=2), tuple(range(5)))])
    assert heartbeat.now().count == before + 5


def test_equal_requests_are_asked_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    answer = fake_vllm.LLM.generate

    def counting(self: fake_vllm.LLM, prompts: Any, params: Any, **options: Any) -> Any:
        asked.append(len(prompts))
        return answer(self, prompts, params, **options)

    monkeypatch.setattr(fake_vllm.LLM, "generate", counting)
    request = Request(Prompt("rules", "x"), Decode(temperature=1.0, max_new_tokens=3), (1, 2, 1))
    load(folder).generate([request, request, replace(request, decode=Decode(temperature=0.0, max_new_tokens=3))])
    assert asked == [3]  # two keys, and one for all three greedy samples


def test_settings_reach_vllm(folder: str) -> None:
    load(folder, torch_dtype="bfloat16", quantize="fp8", memory_share=0.4, trust_remote_code=True)
    made = fake_vllm.LLM.made
    assert (made["model"], made["dtype"], made["gpu_memory_utilization"]) == (folder, "bfloat16", 0.4)
    assert made["quantization"] == "fp8"
    assert (made["trust_remote_code"], made["enable_prefix_caching"]) == (True, True)


@pytest.mark.parametrize(
    ("device", "seen", "expected"),
    [("cuda:1", None, "1"), ("cuda:1", "4,6", "6"), ("cuda", "5", "5"), ("cuda:0", None, "0"), ("cpu", "4,6", "4,6")],
)
def test_an_engine_sees_its_rank_s_device_alone(
    folder: str, monkeypatch: pytest.MonkeyPatch, device: str, seen: str | None, expected: str
) -> None:
    if seen:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    before = dict(os.environ)
    load(folder, device)
    assert fake_vllm.LLM.made["CUDA_VISIBLE_DEVICES"] == expected
    assert dict(os.environ) == before  # for whatever starts next in this process


def test_a_second_device_needs_a_process_of_its_own(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    load(folder, "cuda:0")
    with pytest.raises(EngineError, match="VLLM_ENABLE_V1_MULTIPROCESSING"):
        load(folder, "cuda:1")


def test_the_worker_is_told_whose_it_is(folder: str) -> None:
    one = load(folder)
    assert one.llm.calls == [("die_with_rank", (os.getpid(),))]  # type: ignore[attr-defined]


WORKER = """
import os, pathlib, sys, time
from stageb.engines.remote.vllm import DiesWithRank
DiesWithRank().die_with_rank(os.getppid())
pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))
time.sleep(60)
"""
RANK = """
import os, pathlib, subprocess, sys, time
note = pathlib.Path(sys.argv[2])
subprocess.Popen([sys.executable, sys.argv[1], note])
while not note.exists() or not note.read_text():
    time.sleep(0.05)
os.kill(os.getpid(), 9)
"""


def test_a_worker_dies_with_its_rank(tmp_path: Path) -> None:
    """A rank that is killed outright leaves no worker behind."""
    for name, code in (("worker.py", WORKER), ("rank.py", RANK)):
        (tmp_path / name).write_text(code)
    note = tmp_path / "pid"
    subprocess.run([sys.executable, tmp_path / "rank.py", tmp_path / "worker.py", note], check=False, timeout=60)
    assert ended(int(note.read_text()), seconds=20)


def ended(process: int, seconds: float) -> bool:
    """Whether ``process`` is gone, or waits to be reaped, in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


def test_a_worker_in_the_rank_s_own_process_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "die_with_launcher", lambda: pytest.fail("it would watch for its own end"))
    engine.DiesWithRank().die_with_rank(os.getpid())


def test_close_ends_the_engine(folder: str) -> None:
    one = load(folder)
    assert isinstance(one, engine.VllmEngine)
    one.close()
    with pytest.raises(AssertionError):
        one.generate(requests()[-1:])


@pytest.mark.parametrize("reason", ["abort", "error", "repetition"])
def test_a_request_that_vllm_gives_up_is_an_error(folder: str, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr(fake_vllm.LLM, "finish_reason", reason)
    with pytest.raises(EngineError, match=reason):
        load(folder).generate(requests()[-1:])


def test_without_vllm(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match=r"model\.engine.*0\.22 or later.*pip install 'stageb\[vllm\]'"):
        load(folder)


@pytest.mark.parametrize("version", ["0.21.3", "0.9.2"])
def test_an_old_vllm(folder: str, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(fake_vllm, "__version__", version)
    with pytest.raises(ConfigError, match=f"model\\.engine.*{version} is too old.*0\\.22"):
        load(folder)


@pytest.mark.parametrize("version", ["0.23.0", "1.0", "dev"])
def test_a_later_vllm(folder: str, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(fake_vllm, "__version__", version)
    load(folder)


def test_settings_that_are_vllm_s_own(folder: str) -> None:
    with pytest.raises(ConfigError, match="attn_implementation"):
        load(folder, attn_implementation="sdpa")


def test_a_missing_folder_is_told_before_vllm_starts() -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        load("./no/such/folder")


def test_a_checkpoint_that_vllm_cannot_load(folder: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in Path(folder).iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    with pytest.raises(EngineError, match="could not be loaded by vLLM on cuda:0: Engine core initialization failed"):
        load(str(broken))


def test_naming_other_engines_imports_no_vllm() -> None:
    code = "import sys, stageb.engines.native.transformers; sys.exit('vllm' in sys.modules)"
    process = SERVER.Process(target=exec, args=(code,))  # of a server that knows torch, and no stand-in for vllm
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vllm is not installed")
def test_greedy_answers_are_those_of_transformers_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm")
    prompts = [Prompt("Answer in two lines.", f"image_1: valve {place}; seal: worn") for place in range(8)]
    asked = [Request(prompt, Decode(temperature=0.0, max_new_tokens=16), (1,)) for prompt in prompts]
    ours = build(ModelConfig(torch_dtype="float32"), "cuda:0").generate(asked)
    one = build(ModelConfig(engine="vllm", torch_dtype="float32", memory_share=0.3), "cuda:0")
    assert one.generate(asked) == ours
    one.close()  # type: ignore[attr-defined]
