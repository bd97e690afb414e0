"""Grown networks as plain PyTorch: every kind of host with every blueprint, and the command as a user gives it."""

from __future__ import annotations

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from growth.grown_hosts import KEYS, NAMES, examples, plan_of
from programs.growths import arguments

from stageb.__main__ import main
from stageb.growth import blocks, export
from stageb.growth.hosts import HOST, Plan, name_segment
from stageb.training.export import ExportError, write_onnx

FIND = importlib.util.find_spec


def grown(plan: Plan, number: int) -> export.Grown:
    """A network with other seeds for each ``number``; drawn as teachers are, so that no weight is 0."""
    many = len(plan.blueprints)
    active = tuple((number + 2 * slot) % (many + 1) - 1 for slot in range(3))
    names = [HOST, *(name_segment(plan, slot, index) for slot, index in enumerate(active) if index >= 0)]
    weights = {name: blocks.draw(plan, name, [KEYS[0]], teaching=True)[0] for name in names}
    noise = torch.Generator().manual_seed(number)
    for flat in weights.values():
        flat += 0.1 * torch.randn(flat.shape, generator=noise, dtype=flat.dtype)
    return export.Grown(plan, active, {name: flat.float() for name, flat in weights.items()})


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_network_answers_as_the_grown_one(name: str, tmp_path: Path) -> None:
    plan = plan_of(name)
    for number in range(len(plan.blueprints) + 1):
        one, x = grown(plan, number), examples(plan.form, 40, 1).inputs
        network = export.write(one, "A test.", tmp_path)
        assert export.compare(one, network, x) < 1e-9
        counted = sum(flat.numel() for flat in one.weights.values())
        assert sum(each.numel() for each in network.parameters()) == counted
        again = runpy.run_path(str(tmp_path / "network.py"))["load"]()
        assert torch.equal(again(x.float()), network(x.float())) and not again.training


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("second")])
def test_onnx_answers_the_same_for_any_number_of_examples(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    plan = plan_of(name)
    network, x = export.write(grown(plan, 2), "A test.", tmp_path), examples(plan.form, 9, 1).inputs.float()
    write_onnx(network, [x[:2]], tmp_path / "network.onnx")
    session = runtime.InferenceSession(tmp_path / "network.onnx")
    [logits] = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(logits), network(x).detach(), atol=1e-5, rtol=1e-5)


def test_a_network_that_answers_otherwise_is_told(tmp_path: Path) -> None:
    plan = plan_of("mlp")
    one = grown(plan, 1)
    network = export.write(one, "A test.", tmp_path)
    with torch.no_grad():
        next(network.parameters()).add_(1e-3)
    with pytest.raises(ExportError, match="logits differ from those of the grown one by"):
        export.compare(one, network, examples(plan.form, 40, 1).inputs)


def test_a_run_writes_a_network_that_needs_torch_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    keys = {"growth__updates": 1, "host__epochs": 6, "evaluation__environments": 1, "growth__controller": "heuristic"}
    assert main(arguments(root, **keys)) == 0
    assert main(["export", str(root / "run"), "--environment", "17"]) == 0
    said = capsys.readouterr().out
    place = root / "run" / "network-17"
    assert f"{place / 'network.py'}: mlp of width 4, " in said and "test accuracy" in said
    use = (
        "import sys, torch; from network import load; network = load(); "
        "print(tuple(network(torch.zeros(5, 16)).shape), any(name.startswith('stageb') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", use], cwd=place, capture_output=True, text=True, check=False)
    assert done.stdout == "(5, 8) False\n", done.stderr
    assert main(["play", str(root / "run"), "--environment", "17"]) == 0
    accuracy = said.split("test accuracy ")[1].split(";")[0]
    assert f"test accuracy {accuracy}," in capsys.readouterr().out  # the same network


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["--environment", "-1"], "--environment: -1: 0 or more"),
        (["--out", "file"], "file: file is no folder; give another --out"),
        (["--controller", "oracle"], "the right growth in the task digits is not known"),
        (["--onnx"], "--onnx needs the extra onnx, of which onnx, onnxruntime, onnxscript cannot be found"),
    ],
)
def test_what_cannot_be_exported_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: list[str], told: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("onnx") else FIND(name))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    keys = {"growth__updates": 1, "evaluation__environments": 1, "growth__controller": "random", "task__name": "digits"}
    assert main(arguments(tmp_path, **keys)) == 0
    assert main(["export", "run", *line]) == 2
    assert told in capsys.readouterr().err
