"""Whether this machine has the devices that a job asks for, and how many ranks its cores and memory
allow."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from dataclasses import replace

import torch

from stageb.config import FabricConfig
from stageb.errors import ConfigError
from stageb.job import lifetime
from stageb.job.process import count_cores, free_memory


def read_load(device: str) -> dict[str, float]:
    """Return a GPU's peak memory in GiB, and how busy it was of late (percent) where nvidia-ml-py
    tells; nothing for a CPU. Neither waits for the GPU."""
    if not device.startswith("cuda"):
        return {}
    load = {"device/peak_gib": round(torch.cuda.max_memory_allocated(device) / 2**30, 3)}
    if importlib.util.find_spec("pynvml"):
        # its errors are its own; a part of a GPU (MIG) does not tell
        with contextlib.suppress(Exception):
            load["device/busy_percent"] = torch.cuda.utilization(device)
    return load


IN_FP16 = ("16-mixed", "16")
# How Fabric calls strategies that make ranks of a process, as notebooks need it.
COPIES = ("_spawn", "_fork", "_notebook")


def check(fabric: FabricConfig) -> None:
    """Raise ``ConfigError`` if ``fabric`` asks for GPUs that this machine lacks, a precision that
    its CPU cannot train in, or a strategy by which this process would copy itself.

    Initialises no device: that would take memory there.
    """
    if fabric.strategy.endswith(COPIES):
        remedy = "further ranks run this command again, and are no copies of its process; give ddp"
        raise ConfigError("fabric.strategy", fabric.strategy, remedy)
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
            raise ConfigError(
                "fabric.devices", fabric.devices, f"{remedy}, by indices from 0 to {count - 1}"
            )
        if str(devices).isdigit() and int(str(devices)) > count:
            raise ConfigError("fabric.devices", devices, remedy)
    elif fabric.accelerator == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(
            "fabric.accelerator",
            "mps",
            "this machine has no Apple GPU that torch can use; give cpu",
        )
    elif fabric.accelerator in ("auto", "cpu") and fabric.precision in IN_FP16:
        remedy = "a CPU does not train in float16; give bf16-mixed, or 32-true"
        raise ConfigError("fabric.precision", fabric.precision, remedy)


def spread_over_cores(settings: FabricConfig, most: int, rank_bytes: int | None) -> FabricConfig:
    """``settings``, with a rank for each CPU core if they leave the number of ranks open and there
    is no GPU.

    Many ranks with few threads are faster than one with many: threads of one process wait for each
    other, and whenever other work takes a core away, all of them wait. ``most`` is the number of
    ranks that have something to do; ``rank_bytes`` is the memory of one rank, or None if unknown:
    then there is one rank. There is also no spreading under another launcher, which decides on the
    number, or in a user's own program, which may not be fit to run once more for each rank.
    """
    left_open = (
        settings.devices == "auto"
        and settings.accelerator in ("auto", "cpu")
        and settings.num_nodes == 1
    )
    launched = lifetime.under_agent()
    if not left_open or launched or not lifetime.is_command():
        return settings
    if settings.accelerator == "auto" and torch.cuda.device_count():
        return settings
    if lifetime.PARENT in os.environ:  # rank 0 has counted
        return replace(settings, devices=int(os.environ["WORLD_SIZE"]))
    if rank_bytes is None:
        return settings
    ranks = min(most, count_cores() // settings.threads, free_memory() // rank_bytes)
    return replace(settings, devices=max(1, ranks))


def check_precision(device: torch.device, precision: str | None) -> None:
    """Raise ``ConfigError`` if ``device``, this rank's own, does not support ``precision``
    natively."""
    if device.type == "cuda" and precision and precision.startswith("bf16"):
        with torch.cuda.device(device):
            if torch.cuda.is_bf16_supported(including_emulation=False):
                return
        remedy = (
            f"{torch.cuda.get_device_name(device)} does not compute in bfloat16; give "
            f"32-true, or 16-mixed"
        )
        raise ConfigError("fabric.precision", precision, remedy)
