"""Whether a machine has the devices that a job asks for, and whether they compute in the precision that it asks for."""

from __future__ import annotations

import torch

from stageb.config import FabricConfig, require
from stageb.errors import ConfigError

IN_FP16 = ("16-mixed", "16")


def check(fabric: FabricConfig) -> None:
    """Raise ``ConfigError`` where ``fabric`` asks for GPUs that this machine lacks, or for what its CPU cannot compute in.

    Looks at no device: a process that did would hold memory there.
    """
    count = torch.cuda.device_count()
    on_gpus = fabric.accelerator in ("cuda", "gpu") or (fabric.accelerator == "auto" and count > 0)
    if on_gpus:
        require(count > 0, "fabric.accelerator", fabric.accelerator, "this machine has no GPU that torch can use; give cpu")
        _check_count(fabric.devices, count)
    elif fabric.accelerator == "mps":
        there = torch.backends.mps.is_available()
        require(there, "fabric.accelerator", "mps", "this machine has no Apple GPU that torch can use; give cpu")
    elif fabric.precision in IN_FP16:
        remedy = "a CPU does not train in float16; give bf16-mixed, or 32-true"
        raise ConfigError("fabric.precision", fabric.precision, remedy)


def check_precision(device: torch.device, precision: str | None) -> None:
    """Raise ``ConfigError`` where ``device``, which is this rank's, does not compute in ``precision`` by itself."""
    if device.type == "cuda" and precision and precision.startswith("bf16"):
        with torch.cuda.device(device):
            able = torch.cuda.is_bf16_supported(including_emulation=False)
        name = torch.cuda.get_device_name(device)
        require(able, "fabric.precision", precision, f"{name} does not compute in bfloat16; give 32-true, or 16-mixed")


def _check_count(devices: int | str | list[int], count: int) -> None:
    remedy = f"this machine has {count} GPU{'s' * (count > 1)}; ask for at most as many"
    asked = devices
    if isinstance(asked, str) and "," in asked:
        asked = [int(each) for each in asked.split(",") if each.strip().isdigit()]
    if isinstance(asked, list):
        there = all(0 <= index < count for index in asked)
        require(there, "fabric.devices", devices, f"{remedy}, by indices from 0 to {count - 1}")
    elif str(asked).isdigit():
        require(int(asked) <= count, "fabric.devices", devices, remedy)
