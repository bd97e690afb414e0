"""Whether the devices that a run asks for are there, and which of its environments each of them trains."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stageb.config import FabricConfig
from stageb.errors import ConfigError


def check(fabric: FabricConfig) -> None:
    """Raise ``ConfigError`` where ``fabric.devices`` asks for GPUs that this machine does not have."""
    there = torch.cuda.device_count()
    wants_gpus = fabric.accelerator in ("cuda", "gpu") or (fabric.accelerator == "auto" and there > 0)
    if not wants_gpus:
        return
    if there == 0:
        raise ConfigError("fabric.accelerator", fabric.accelerator, "this machine has no GPU that torch can use; give cpu")
    devices, remedy = fabric.devices, f"this machine has {there} GPU{'s' * (there > 1)}; ask for at most as many"
    count = int(str(devices)) if str(devices).isdigit() else None
    if count is not None and count > there:
        raise ConfigError("fabric.devices", devices, remedy)
    if isinstance(devices, list) and any(not 0 <= index < there for index in devices):
        raise ConfigError("fabric.devices", devices, f"{remedy}, by indices from 0 to {there - 1}")


def told(places: Sequence[str], environments: Sequence[int], block: int) -> list[str]:
    """The assignment of an update's environments in lines: ``places`` are the ranks' devices. A lopsided one is said."""
    lines = [
        f"rank {rank} on {place}: {count} environments of an update, in {-(-count // block)} blocks"
        for rank, (place, count) in enumerate(zip(places, environments, strict=True))
    ]
    if len(set(environments)) > 1:
        idle = 1 - sum(environments) / (max(environments) * len(environments))
        lines.append(
            f"lopsided: ranks wait for the busiest, and {idle:.0%} of their time is idle; make the number of blocks "
            f"(growth.environments / growth.block) a multiple of {len(environments)}"
        )
    return lines
