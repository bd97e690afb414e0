"""Whether a machine has the devices that a job asks for, and whether they compute in the precision that it asks for."""

from __future__ import annotations

import torch

from stageb.config import FabricConfig
from stageb.errors import ConfigError

IN_FP16 = ("16-mixed", "16")


def check(fabric: FabricConfig) -> None:
    """Raise ``ConfigError`` where ``fabric`` asks for GPUs that this machine lacks, or for what its CPU cannot compute in.

    Looks at no device: a process that did would hold memory there.
    """
    count = torch.cuda.device_count()
    if fabric.accelerator in ("cuda", "gpu") or (fabric.accelerator == "auto" and count > 0):
        if count == 0:
            remedy = "this machine has no GPU that torch can use; give cpu"
            raise ConfigError("fabric.accelerator", fabric.accelerator, remedy)
        remedy = f"this machine has {count} GPU{'s' * (count > 1)}; ask for at most as many"
        devices = fabric.devices
        if isinstance(devices, str) and "," in devices:
            devices = [int(each) for each in devices.split(",") if each.strip().isdigit()]
        if isinstance(devices, list) and not all(0 <= index < count for index in devices):
            raise ConfigError("fabric.devices", fabric.devices, f"{remedy}, by indices from 0 to {count - 1}")
        if str(devices).isdigit() and int(str(devices)) > count:
            raise ConfigError("fabric.devices", devices, remedy)
    elif fabric.accelerator == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("fabric.accelerator", "mps", "this machine has no Apple GPU that torch can use; give cpu")
    elif fabric.accelerator in ("auto", "cpu") and fabric.precision in IN_FP16:
        remedy = "a CPU does not train in float16; give bf16-mixed, or 32-true"
        raise ConfigError("fabric.precision", fabric.precision, remedy)


def check_precision(device: torch.device, precision: str | None) -> None:
    """Raise ``ConfigError`` where ``device``, which is this rank's, does not compute in ``precision`` by itself."""
    if device.type == "cuda" and precision and precision.startswith("bf16"):
        with torch.cuda.device(device):
            if torch.cuda.is_bf16_supported(including_emulation=False):
                return
        remedy = f"{torch.cuda.get_device_name(device)} does not compute in bfloat16; give 32-true, or 16-mixed"
        raise ConfigError("fabric.precision", precision, remedy)
