"""Networks as ONNX files, which other programs run without torch."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stageb.errors import InputError, StagebError
from stageb.store import disk

NEEDS = ("onnx", "onnxruntime", "onnxscript")


class ExportError(StagebError):
    """What was exported does not answer as what it was made from."""


def check_onnx(asked: str) -> None:
    """Raise ``InputError`` where what ``asked`` for an ONNX file cannot have one."""
    if missing := [name for name in NEEDS if importlib.util.find_spec(name) is None]:
        remedy = "python -m pip install 'stageb[onnx]', or in a checkout: pip install -e '.[onnx]'"
        raise InputError(f"{asked} needs the extra onnx, of which {', '.join(missing)} cannot be found: {remedy}")


def write_onnx(
    network: nn.Module, examples: Sequence[Tensor], path: Path, reads: Sequence[str] = (), answers: Sequence[str] = ()
) -> None:
    """The network as ONNX, of any number of rows; ``reads`` and ``answers`` name its inputs and outputs."""
    rows = torch.export.Dim("N")
    program = torch.onnx.export(
        network,
        tuple(examples),
        dynamo=True,
        dynamic_shapes=tuple({0: rows} for _ in examples),
        input_names=reads or None,
        output_names=answers or None,
        verbose=False,
    )
    assert program is not None, "it was exported by dynamo"
    with disk.reporting(path):
        disk.place(path, lambda beside: program.save(beside))


def read_onnx(path: Path) -> Any:
    """What computes an ONNX file: ``run(None, {name: array})``."""
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
