"""Where a rank stands: what Fabric is told under the launcher at hand, and the ranks that this
process starts itself.

Whichever launcher it is, ranks come out alike: a DDP strategy whose collectives never time out by
themselves, since the watchdog decides who is late, and whose broadcast objects travel over the CPU
even where tensors go by NCCL.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed

from stageb.config import FabricConfig
from stageb.errors import ConfigError, InputError, RankError
from stageb.job import lifetime, meeting
from stageb.job.watchdog import end_with, rank_error

# ``lightning`` brings Fabric under this name too, without the Trainer of ``lightning.fabric``. Both
# import torchmetrics, and so scipy and transformers, only to see its version, and torch's compiler
# to know a compiled module, which is never handed to Fabric here: most of the processor time in
# which a rank starts, so they look absent, unless something has imported them.
compiler = types.ModuleType("torch._dynamo")
compiler.OptimizedModule = type("OptimizedModule", (), {})  # type: ignore[attr-defined]
absent = {"torchmetrics": None, compiler.__name__: compiler}
absent = {name: module for name, module in absent.items() if name not in sys.modules}
sys.modules.update(absent)  # type: ignore[arg-type]
from lightning_fabric import Fabric as Fabric  # noqa: E402
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment  # noqa: E402
from lightning_fabric.strategies.ddp import DDPStrategy  # noqa: E402
from lightning_fabric.utilities.exceptions import MisconfigurationException  # noqa: E402

for name in absent:
    del sys.modules[name]

# set by srun, and not in a batch script
OF_SRUN = ("SLURM_STEP_ID", "SLURM_STEPID", "SLURM_SRUN_COMM_HOST")
LONGER_THAN_ANY_WORK = timedelta(days=1)
REACHABLE = (
    "every machine must reach that address, and be reached by the interface that "
    "GLOO_SOCKET_IFNAME names (NCCL_SOCKET_IFNAME for GPUs): docs/guides/gpus.md"
)
AT_LEAST_S = 60.0  # for the ranks to be started and to meet, however short ``fabric.timeout_s`` is


def launch(settings: FabricConfig, before_several: Callable[[], None]) -> tuple[Fabric, Children]:
    """Make Fabric and launch: with ranks that are started here, or within ``fabric run``, torchrun
    or SLURM.

    This same command line is run again for every further rank that is started here, so nothing may
    be written before this. Where there are to be several, ``before_several`` is called first.
    Raises ConfigError, the same on every rank; RankError where the ranks do not find together.
    """
    place = _place(settings)
    children = Children()
    with ExitStack() as until_met:

        def expect_several() -> None:
            before_several()
            until_met.enter_context(_limit_meeting(max(AT_LEAST_S, settings.timeout_s)))

        if (place.world_size or 1) > 1:
            expect_several()
        if place.num_nodes > 1:
            _face_the_other_machines()
        fabric = _make(settings, place)
        if place.world_size is None and _count_ranks(fabric, settings, place) > 1:
            expect_several()
        if "LT_CLI_USED" not in os.environ:  # under ``fabric run`` it has launched
            children.start(fabric, settings.num_nodes)
            _join(fabric, settings)
    if place.world_size not in (None, fabric.world_size):
        amiss = (
            f"{place.world_size} processes were started, Fabric made {fabric.world_size} of them"
        )
        raise ConfigError("fabric", settings, amiss)
    return fabric, children


@dataclass(frozen=True)
class _DevicePlace:
    """Arguments for Fabric, and how many ranks must result."""

    # accelerator, devices, num_nodes, strategy: those that are ours to say
    arguments: dict[str, Any]
    # processes that were started for the job; None: they are started here
    world_size: int | None = None
    num_nodes: int = 1


def _place(settings: FabricConfig) -> _DevicePlace:
    """Fabric's arguments under the launcher at hand. Where processes exist already, devices and
    strategy must be said outright: with "auto" on CPU each of them would silently become a rank 0
    of its own."""
    env, ours = os.environ, {"accelerator": settings.accelerator, "strategy": settings.strategy}
    if lifetime.under_torchrun():
        world, local = int(env["WORLD_SIZE"]), int(env["LOCAL_WORLD_SIZE"])
    elif lifetime.under_slurm():
        world = int(env["SLURM_NTASKS"])
        local = world // int(env.get("SLURM_NNODES", "1"))
        if world > 1 and not any(name in env for name in OF_SRUN):
            raise InputError(
                f"this allocation has {world} tasks (SLURM_NTASKS), but srun did not start this "
                f"process; put srun before the command, or for a single process set "
                "SLURM_JOB_NAME=interactive"
            )
    else:
        if settings.num_nodes > 1 and "MASTER_ADDR" not in env:
            remedy = (
                "start the job on every machine by torchrun, fabric run or srun: "
                "docs/guides/gpus.md"
            )
            raise ConfigError("fabric.num_nodes", settings.num_nodes, remedy)
        return _DevicePlace(
            {**ours, "devices": settings.devices, "num_nodes": settings.num_nodes},
            num_nodes=settings.num_nodes,
        )
    num_nodes = world // local
    # ``fabric run`` hands devices over by environment, and the rest if it was given any
    if "LT_CLI_USED" in env:
        ours["accelerator"] = env.get("LT_ACCELERATOR", settings.accelerator)
        # its name may not stand beside the object made here
        ours["strategy"] = env.pop("LT_STRATEGY", settings.strategy)
    if ours["strategy"] == "auto" and world > 1:
        ours["strategy"] = "ddp"
    if "LT_CLI_USED" in env:
        return _DevicePlace(ours, world, num_nodes)
    asked = local if settings.devices == "auto" else settings.devices
    if isinstance(asked, int) and asked != local:
        raise ConfigError(
            "fabric.devices",
            asked,
            f"{local} processes were started on this machine: set it to {local}, or auto",
        )
    return _DevicePlace({**ours, "devices": asked, "num_nodes": num_nodes}, world, num_nodes)


def _make(settings: FabricConfig, place: _DevicePlace) -> Fabric:
    """Fabric, as the config and the launcher at hand want it."""
    # they greet; warnings still come through
    for library in ("lightning_fabric", "lightning.fabric", "lightning.pytorch"):
        logging.getLogger(library).setLevel(logging.WARNING)
    arguments = {**place.arguments, "precision": settings.precision}
    try:
        # how many ranks it makes, only Fabric knows
        if place.world_size is None and arguments["strategy"] == "auto":
            tried = Fabric(**arguments)
            _check_restart(tried, settings, place)
            arguments["strategy"] = "ddp" if isinstance(tried.strategy, DDPStrategy) else "auto"
        if arguments["strategy"] == "ddp":
            arguments["strategy"] = _ddp(arguments["accelerator"])
        fabric = Fabric(**arguments)
        _check_restart(fabric, settings, place)
        return fabric
    except ImportError as error:  # of a TPU's
        remedy = f"cpu or cuda, since a package of this one is not installed: {error}"
        raise ConfigError("fabric.accelerator", arguments["accelerator"], remedy) from error
    except (ValueError, TypeError, RuntimeError, MisconfigurationException) as error:
        if _is_of_meeting(error):  # under ``fabric run``
            raise _explain_missing_ranks(error) from error
        raise ConfigError("fabric", settings, str(error)) from error


def _count_ranks(fabric: Fabric, settings: FabricConfig, place: _DevicePlace) -> int:
    """The number of ranks that the job has, or will have."""
    return place.world_size or getattr(fabric.strategy, "num_processes", 1) * settings.num_nodes


def _check_restart(fabric: Fabric, settings: FabricConfig, place: _DevicePlace) -> None:
    """Raise ``ConfigError`` where this process's command line would have to be run again, and
    cannot be."""
    if place.world_size is not None or _count_ranks(fabric, settings, place) == 1:
        return
    where = ""
    if hasattr(sys, "ps1"):
        where = "an interactive session or a notebook"
    elif (
        getattr(sys.modules["__main__"], "__spec__", None) is None
        and not Path(sys.argv[0]).is_file()
    ):
        where = "a program without a file"
    elif threading.current_thread() is not threading.main_thread():
        where = "a thread other than the main one"
    if where:
        remedy = (
            f"further ranks would rerun this program, which is impossible in {where}; set "
            f"it to 1, or run a script"
        )
        raise ConfigError("fabric.devices", settings.devices, remedy)


def _ddp(accelerator: str) -> DDPStrategy:
    cuda = accelerator in ("cuda", "gpu") or (accelerator == "auto" and torch.cuda.is_available())
    # On a torch without CUDA the composite name raises.
    backend = "cpu:gloo,cuda:nccl" if cuda and torch.cuda.is_available() else "gloo"
    # Gradients lie where they are reduced, so that none is copied back from there.
    return DDPStrategy(
        process_group_backend=backend, timeout=LONGER_THAN_ANY_WORK, gradient_as_bucket_view=True
    )


def _join(fabric: Fabric, settings: FabricConfig) -> None:
    """Have Fabric meet the other ranks."""
    try:
        fabric.launch()
    except (ValueError, TypeError) as error:
        raise ConfigError("fabric", settings, str(error)) from error
    except RuntimeError as error:
        raise (
            _explain_missing_ranks(error)
            if _is_of_meeting(error)
            else rank_error(_rank_to_be(), error, "launch")
        ) from error


def _is_of_meeting(error: Exception) -> bool:
    return isinstance(error, torch.distributed.DistError) or str(error).startswith("Gloo ")


def _explain_missing_ranks(error: Exception | str) -> RankError:
    """The error of a rank that does not find the others."""
    place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    return RankError(
        _rank_to_be(), "launch", f"the ranks did not meet at {place}: {error}; {REACHABLE}"
    )


@contextmanager
def _limit_meeting(seconds: float) -> Iterator[None]:
    """End this process where the ranks have not met in time. Collectives never time out by
    themselves, so torch would wait as long for a machine that cannot be reached, or that has
    ended."""

    def end() -> None:
        if not lifetime.leads_machine():
            time.sleep(1.0)
            lifetime.end(1)
        end_with(_explain_missing_ranks(f"{seconds:g} s have passed (fabric.timeout_s)"))

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _face_the_other_machines() -> None:
    """Make gloo use the interface that leads to the other machines, unless the user has named one.

    By default gloo takes the address of this machine's host name, on many machines 127.0.1.1, which
    no other machine reaches. If rank 0 knows no other address of itself, the interface of the
    default route is used. Raises RankError if rank 0's name resolves to this machine although it is
    another one.
    """
    host = SLURMEnvironment().main_address if lifetime.under_slurm() else os.environ["MASTER_ADDR"]
    try:
        address = ipaddress.ip_address(meeting.resolve(host))
    except (OSError, ValueError):  # not known here
        return
    node = os.environ.get(
        "GROUP_RANK", os.environ.get("SLURM_NODEID", os.environ.get("NODE_RANK", "0"))
    )
    if address.is_loopback and node != "0":
        amiss = f"rank 0's machine is called {host!r}, which is {address}, this machine itself; "
        remedy = (
            "start the job with an address of rank 0's machine that others reach "
            "(torchrun: --local-addr)"
        )
        raise RankError(_rank_to_be(), "launch", f"{amiss}{remedy}: docs/guides/gpus.md")
    interface = meeting.interface_to(address) if address.version == 4 else None
    if interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _rank_to_be() -> int:
    """This process's rank by its environment, for an error before Fabric knows."""
    return int(
        os.environ.get("RANK", os.environ.get("SLURM_PROCID", os.environ.get("LOCAL_RANK", "0")))
    )


class Children:
    """The ranks that this process starts, by running its own command line again; none under any
    other launcher.

    Fabric could start them as well, but answers the death of one by killing rank 0 before it can
    say which was lost. A thread watches here until the watchdog does.
    """

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}  # by global rank
        self.watched = threading.Event()  # the watchdog is up

    def start(self, fabric: Fabric, num_nodes: int) -> None:
        """Start those of this machine, and make this process the first of them: to Fabric they are
        then all there."""
        environment = getattr(fabric.strategy, "cluster_environment", None)
        if environment is None or environment.creates_processes_externally:
            return
        count, node = (
            len(getattr(fabric.strategy, "parallel_devices", [0])),
            environment.node_rank(),
        )
        os.environ |= {
            "MASTER_ADDR": environment.main_address,
            "MASTER_PORT": str(environment.main_port),
            "NODE_RANK": str(node),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(count * num_nodes),
        }
        lifetime.before_end(self._kill)
        with lifetime.defer_signals():
            for rank in range(1, count):
                environ = {**os.environ, "LOCAL_RANK": str(rank), lifetime.PARENT: str(os.getpid())}
                self._processes[node * count + rank] = subprocess.Popen(
                    _this_command(), env=environ
                )
        threading.Thread(target=self._watch, daemon=True, name="stageb-children").start()

    def how_ended(self, rank: int) -> str | None:
        """How the process of ``rank`` ended; None if it is not a child, or lives."""
        process = self._processes.get(rank)
        if process is None:
            return None
        try:
            # its connection closes a moment before it can be reaped
            code = process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return None
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return f"its process exited with code {code} before the job was done"

    def _watch(self) -> None:
        while not self.watched.wait(0.2):
            for rank, process in self._processes.items():
                if (code := process.poll()) is not None:
                    # of the signal that killed it, or that it was ended by
                    number = -code if code < 0 else code - 128
                    if number in lifetime.watch_signals.caught:
                        lifetime.end(128 + number, lifetime.interrupted(number))
                    end_with(RankError(rank, "launch", str(self.how_ended(rank))))

    def _kill(self, code: int) -> None:
        """The last act: children that have not gone by themselves are made to, stopped ones too."""
        deadline = time.monotonic() + 0.5
        for process in self._processes.values():
            try:
                process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()


def _this_command() -> list[str]:
    """The command line of this process."""
    module = sys.modules["__main__"].__spec__
    program = ["-m", module.name] if module else [str(Path(sys.argv[0]).absolute())]
    return [sys.executable, *program, *sys.argv[1:]]
