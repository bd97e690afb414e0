"""Devices that a machine lacks, and what its devices cannot compute in, are refused before any
work."""

from __future__ import annotations

import pytest
import torch

from stageb.config import FabricConfig
from stageb.errors import ConfigError
from stageb.job import devices
from stageb.job.world import run


@pytest.mark.parametrize(
    ("count", "asked", "said"),
    [
        (
            2,
            FabricConfig(accelerator="cuda", devices=4),
            "fabric.devices: 4: this machine has 2 GPUs; ask",
        ),
        (
            2,
            FabricConfig(accelerator="cuda", devices=[0, 2]),
            r"fabric.devices: \[0, 2\]: .* indices from 0 to 1",
        ),
        (
            2,
            FabricConfig(accelerator="gpu", devices="0,2"),
            "fabric.devices: '0,2': .* indices from 0 to 1",
        ),
        (1, FabricConfig(devices="3"), "fabric.devices: '3': this machine has 1 GPU;"),
        (
            0,
            FabricConfig(accelerator="cuda"),
            "fabric.accelerator: 'cuda': this machine has no GPU",
        ),
        (
            0,
            FabricConfig(accelerator="mps"),
            "fabric.accelerator: 'mps': this machine has no Apple GPU",
        ),
        (
            0,
            FabricConfig(accelerator="tpu"),
            "fabric.accelerator: 'tpu': cpu or cuda, since a package of this one is not",
        ),
        (
            0,
            FabricConfig(precision="16-mixed"),
            "fabric.precision: '16-mixed': a CPU does not train in float16",
        ),
    ],
)
def test_what_a_machine_lacks_is_refused_before_any_rank_starts(
    monkeypatch: pytest.MonkeyPatch, count: int, asked: FabricConfig, said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=said):
        run(asked, lambda world: pytest.fail("it was launched"))
    for fine in (
        FabricConfig(),
        FabricConfig(accelerator="cpu", devices=7, precision="bf16-mixed"),
    ):
        devices.check(fine)


@pytest.mark.parametrize("able", [True, False])
def test_bfloat16_is_refused_on_a_gpu_that_only_emulates_it(
    monkeypatch: pytest.MonkeyPatch, able: bool
) -> None:
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: able or including_emulation
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(torch.cuda, "device", torch.device)
    devices.check_precision(torch.device("cuda:0"), "32-true")
    devices.check_precision(torch.device("cpu"), "bf16-mixed")
    if able:
        devices.check_precision(torch.device("cuda:0"), "bf16-mixed")
    else:
        with pytest.raises(
            ConfigError, match="'bf16-mixed': Tesla T4 does not compute in bfloat16; give 32-true"
        ):
            devices.check_precision(torch.device("cuda:0"), "bf16-mixed")
