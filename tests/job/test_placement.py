"""What Fabric is told under each launcher."""

from __future__ import annotations

import os
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from programs.processes import child

from stageb.config import FabricConfig
from stageb.errors import ConfigError, InputError
from stageb.job import lifetime, meeting, placement
from stageb.job.placement import _place

LAUNCHERS: dict[str, dict[str, str]] = {
    "own": {},
    "torchrun": {
        "TORCHELASTIC_RUN_ID": "none",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
    },
    "slurm": {
        "SLURM_NTASKS": "4",
        "SLURM_NNODES": "2",
        "SLURM_PROCID": "0",
        "SLURM_JOB_NAME": "fit",
        "SLURM_STEP_ID": "0",
    },
    "salloc": {
        "SLURM_NTASKS": "4",
        "SLURM_NNODES": "2",
        "SLURM_PROCID": "0",
        "SLURM_JOB_NAME": "interactive",
    },
}
LAUNCHERS["fabric"] = {
    **LAUNCHERS["torchrun"],
    "LT_CLI_USED": "1",
    "LT_DEVICES": "2",
    "LT_ACCELERATOR": "cpu",
}
LAUNCHERS["fabric with a strategy"] = {**LAUNCHERS["fabric"], "LT_STRATEGY": "ddp"}


@pytest.fixture
def under(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the environment of a launcher."""

    def choose(name: str) -> None:
        for key in {
            "MASTER_ADDR",
            *(key for environment in LAUNCHERS.values() for key in environment),
        }:
            monkeypatch.delenv(key, raising=False)
        for key, value in LAUNCHERS[name].items():
            monkeypatch.setenv(key, value)

    return choose


@pytest.mark.parametrize(
    ("launcher", "world_size", "arguments"),
    [
        (
            "own",
            None,
            {"accelerator": "auto", "strategy": "auto", "devices": "auto", "num_nodes": 1},
        ),
        (
            "salloc",
            None,
            {"accelerator": "auto", "strategy": "auto", "devices": "auto", "num_nodes": 1},
        ),
        ("torchrun", 4, {"accelerator": "auto", "strategy": "ddp", "devices": 2, "num_nodes": 2}),
        ("slurm", 4, {"accelerator": "auto", "strategy": "ddp", "devices": 2, "num_nodes": 2}),
        ("fabric", 4, {"accelerator": "cpu", "strategy": "ddp"}),
        ("fabric with a strategy", 4, {"accelerator": "cpu", "strategy": "ddp"}),
    ],
)
def test_what_fabric_is_told(
    under: Any, launcher: str, world_size: int | None, arguments: dict[str, object]
) -> None:
    under(launcher)
    place = _place(FabricConfig())
    assert (place.world_size, place.arguments) == (world_size, arguments)
    assert lifetime.leads() == (launcher in ("own", "salloc", "slurm"))
    assert "LT_STRATEGY" not in os.environ, (
        "Fabric refuses a strategy object beside a strategy by environment"
    )


def test_a_strategy_that_was_named_is_kept(under: Any) -> None:
    under("slurm")
    assert _place(FabricConfig(strategy="fsdp")).arguments["strategy"] == "fsdp"


def test_devices_must_fit_the_processes_that_exist(under: Any) -> None:
    under("slurm")
    assert _place(FabricConfig(devices=[4, 5])).arguments["devices"] == [4, 5]
    with pytest.raises(ConfigError, match="set it to 2, or auto"):
        _place(FabricConfig(devices=3))


def test_an_allocation_without_srun_is_told(under: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    under("slurm")
    monkeypatch.delenv("SLURM_STEP_ID")
    with pytest.raises(
        InputError,
        match=r"has 4 tasks .*put srun before the command, or .* SLURM_JOB_NAME=interactive",
    ):
        _place(FabricConfig())
    monkeypatch.setenv("SLURM_NTASKS", "1")
    monkeypatch.setenv("SLURM_NNODES", "1")
    assert _place(FabricConfig()).world_size == 1


def test_a_process_that_was_not_launched_may_outlive_its_parent(under: Any) -> None:
    under("own")
    lifetime.die_with_launcher()
    assert lifetime._launcher is None
    assert Path("/proc/self").exists() == ("/" in lifetime.machine())


def test_several_machines_want_a_launcher(under: Any) -> None:
    under("own")
    with pytest.raises(ConfigError, match="on every machine by torchrun, fabric run or srun"):
        _place(FabricConfig(num_nodes=2))


ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0102000A 0003 0 0 0 00000000 0 0 0
ib0 0001A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
eth1 0001A8C0 00000000 0001 0 0 9 00FFFFFF 0 0 0
"""


@pytest.mark.parametrize(
    ("address", "interface"), [("192.168.1.7", "ib0"), ("10.0.2.9", "eth0"), ("127.0.1.1", "eth0")]
)
def test_the_interface_that_leads_to_a_machine(
    address: str, interface: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "route").write_text(ROUTES)
    monkeypatch.setattr(meeting, "ROUTES", tmp_path / "route")
    assert meeting.interface_to(IPv4Address(address)) == interface
    (tmp_path / "route").write_text(ROUTES.splitlines()[0])
    assert meeting.interface_to(IPv4Address(address)) is None


def test_a_single_process_has_nobody_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long its devices take to come up, nothing ends it: it may be a notebook."""
    monkeypatch.setattr(
        placement, "_limit_meeting", lambda seconds: pytest.fail("a deadline for one process")
    )
    fabric, _ = placement.launch(
        FabricConfig(accelerator="cpu", devices=1),
        lambda: pytest.fail("one process is not several"),
    )
    assert fabric.world_size == 1


def test_the_ranks_that_do_not_meet_end_and_say_what_to_look_at(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def wait_for_ever() -> None:
        with placement._limit_meeting(0.1):
            time.sleep(60.0)

    pid = child(wait_for_ever)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
    assert "rank 0 failed at launch: the ranks did not meet at" in (err := capfd.readouterr().err)
    assert "GLOO_SOCKET_IFNAME" in err
