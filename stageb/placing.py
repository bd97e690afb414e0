"""Where a rank stands: what Fabric is told under the launcher at hand, and the ranks that its own launcher starts.

Whichever launcher it is, ranks come out alike: a DDP strategy whose collectives never time out by themselves, since the
watchdog decides who is late, and whose objects travel over the CPU even where tensors go by NCCL.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
import warnings
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from lightning.fabric import Fabric
from lightning.fabric.strategies.ddp import DDPStrategy
from lightning.fabric.utilities.exceptions import MisconfigurationException

from stageb import launching
from stageb.config import FabricConfig
from stageb.errors import ConfigError, RankError
from stageb.watchdog import end_with, rank_error

LONGER_THAN_ANY_WORK = timedelta(days=1)


def launch(settings: FabricConfig) -> tuple[Fabric, Children]:
    """Make Fabric and launch: by its own launcher, or within ``fabric run``, torchrun or SLURM.

    Fabric's own launcher runs this same command line again for every further rank, so nothing may be written before this.
    Raises ConfigError, the same on every rank; RankError where the ranks do not find together.
    """
    threads_given, place = _threads_are_given(), _place(settings)
    fabric = _make(settings, place)
    children = Children(fabric)
    if "LT_CLI_USED" not in os.environ:  # under ``fabric run`` it has launched
        _start(fabric, settings)
    if place.world_size not in (None, fabric.world_size):
        amiss = f"{place.world_size} processes were started, Fabric made {fabric.world_size} of them"
        raise ConfigError("fabric", settings, amiss)
    if not threads_given and fabric.device.type == "cpu":
        torch.set_num_threads(max(1, _cores() // (place.local_world_size or fabric.world_size // settings.num_nodes)))
    return fabric, children


@dataclass(frozen=True)
class _Place:
    """What to tell Fabric, and what must come of it."""

    arguments: dict[str, Any]  # accelerator, devices, num_nodes, strategy: those that are ours to say
    world_size: int | None = None  # processes that were started for the job; None: Fabric starts them
    local_world_size: int | None = None  # of those, on this machine


def _place(settings: FabricConfig) -> _Place:
    """Fabric's arguments under the launcher at hand. Where processes exist already, devices and strategy must be said
    outright: with "auto" on CPU each of them would silently become a rank 0 of its own."""
    env, ours = os.environ, {"accelerator": settings.accelerator, "strategy": settings.strategy}
    if launching.under_torchrun():
        world, local = int(env["WORLD_SIZE"]), int(env["LOCAL_WORLD_SIZE"])
    elif launching.under_slurm():
        world = int(env["SLURM_NTASKS"])
        local = world // int(env.get("SLURM_NNODES", "1"))
    else:
        return _Place({**ours, "devices": settings.devices, "num_nodes": settings.num_nodes})
    if "LT_CLI_USED" in env:  # ``fabric run`` hands devices over by environment, and the rest if it was given any
        ours["accelerator"] = env.get("LT_ACCELERATOR", settings.accelerator)
        ours["strategy"] = env.pop("LT_STRATEGY", settings.strategy)  # its name may not stand beside the object made here
    if ours["strategy"] == "auto" and world > 1:
        ours["strategy"] = "ddp"
    if "LT_CLI_USED" in env:
        return _Place(ours, world, local)
    devices = local if settings.devices == "auto" else settings.devices
    if isinstance(devices, int) and devices != local:
        raise ConfigError("fabric.devices", devices, f"{local} processes were started on this machine: say {local}, or auto")
    return _Place({**ours, "devices": devices, "num_nodes": world // local}, world, local)


def _make(settings: FabricConfig, place: _Place) -> Fabric:
    """Fabric, as the config and the launcher at hand want it."""
    for library in ("lightning.fabric", "lightning.pytorch"):  # Fabric greets through either; warnings still come through
        logging.getLogger(library).setLevel(logging.WARNING)
    # Fabric's all_gather calls what torch would have it call by another name: nothing that a user could mend.
    warnings.filterwarnings("ignore", message="torch.distributed.nn.functional.all_gather is deprecated")
    arguments = {**place.arguments, "precision": settings.precision}
    try:
        if place.world_size is None and arguments["strategy"] == "auto":  # how many ranks it makes, only Fabric knows
            arguments["strategy"] = "ddp" if isinstance(Fabric(**arguments).strategy, DDPStrategy) else "auto"
        if arguments["strategy"] == "ddp":
            arguments["strategy"] = _ddp(arguments["accelerator"])
        return Fabric(**arguments)
    except torch.distributed.DistError as error:
        raise rank_error(_rank_to_be(), error, "launch") from error
    except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
        raise ConfigError("fabric", settings, str(error)) from error


def _ddp(accelerator: str) -> DDPStrategy:
    cuda = accelerator in ("cuda", "gpu") or (accelerator == "auto" and torch.cuda.is_available())
    # On a torch without CUDA the composite name raises.
    backend = "cpu:gloo,cuda:nccl" if cuda and torch.cuda.is_available() else "gloo"
    # Gradients lie where they are reduced, so that none is copied back from there.
    return DDPStrategy(process_group_backend=backend, timeout=LONGER_THAN_ANY_WORK, gradient_as_bucket_view=True)


def _start(fabric: Fabric, settings: FabricConfig) -> None:
    """Have Fabric start, or join, the other ranks."""
    os.environ[launching.PARENT] = str(os.getpid())
    try:
        fabric.launch()
    except (ValueError, TypeError) as error:
        raise ConfigError("fabric", settings, str(error)) from error
    except RuntimeError as error:
        raise rank_error(_rank_to_be(), error, "launch") from error
    finally:
        del os.environ[launching.PARENT]


def _rank_to_be() -> int:
    """This process's rank by its environment, for an error before Fabric knows."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", os.environ.get("LOCAL_RANK", "0"))))


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads_are_given() -> bool:
    """Whether the user, or torchrun, has set the number of threads. ``fabric run`` sets all cores for every rank."""
    given = os.environ.get("OMP_NUM_THREADS")
    return given is not None and not ("LT_CLI_USED" in os.environ and given == str(_cores()))


class Children:
    """The ranks that Fabric's own launcher started from this process; none under any other launcher.

    Fabric watches them too, every five seconds, and answers a death by killing rank 0 before it can say which rank was
    lost. So that observer is sent home and the watch kept here: by this thread until the watchdog is up, by that one then.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._launcher = fabric.strategy.launcher if "LT_CLI_USED" not in os.environ else None
        self._fabric = fabric
        self.watched = threading.Event()  # the watchdog is up
        if self._launcher:
            launching.before_end(self._kill)
            threading.Thread(target=self._watch, daemon=True, name="stageb-children").start()

    def how_ended(self, rank: int) -> str | None:
        """How the process of ``rank`` ended; None if it is not a child, or lives."""
        process = self._processes.get(rank)
        if process is None:
            return None
        try:
            code = process.wait(timeout=1.0)  # its connection closes a moment before it can be reaped
        except subprocess.TimeoutExpired:
            return None
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return f"its process exited with code {code} before the job was done"

    @property
    def _processes(self) -> dict[int, subprocess.Popen[bytes]]:
        """By global rank."""
        return dict(enumerate(getattr(self._launcher, "procs", ()), start=self._fabric.global_rank + 1))

    def _watch(self) -> None:
        while not self.watched.wait(0.2):
            for thread in threading.enumerate():
                if thread.name == "child-process-observer":
                    thread._child_processes = []  # type: ignore[attr-defined]  # it returns when all (none) have ended
            for rank, process in self._processes.items():
                if process.poll() is not None:
                    end_with(RankError(rank, "launch", str(self.how_ended(rank))))

    def _kill(self, code: int) -> None:
        """The last act: children that have not gone by themselves are made to, stopped ones too."""
        deadline = time.monotonic() + 0.5
        for process in self._processes.values():
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
