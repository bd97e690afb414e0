"""How many ranks a command starts on a CPU where nobody says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stageb.config import FabricConfig
from stageb.engines.config import ModelConfig
from stageb.engines.outline import COPY, PROCESS_BYTES, rank_bytes
from stageb.job import lifetime, process
from stageb.job.devices import spread_over_cores

CPU = FabricConfig(accelerator="cpu")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A command on a machine of 8 cores, of which a container may use 5.5, with 64 GB free."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(process, "CGROUP", tmp_path)
    monkeypatch.setattr(process, "MEMINFO", tmp_path / "meminfo")
    (tmp_path / "cpu.max").write_text("550000 100000\n")
    (tmp_path / "meminfo").write_text("MemTotal: 99 kB\nMemAvailable:   64000000 kB\n")
    monkeypatch.setattr(lifetime, "_of_command", True)
    for name in (
        "OMP_NUM_THREADS",
        "WORLD_SIZE",
        "TORCHELASTIC_RUN_ID",
        "SLURM_NTASKS",
        lifetime.PARENT,
    ):
        monkeypatch.delenv(name, raising=False)


def ranks(
    settings: FabricConfig = CPU, most: int = 24, rank_bytes: int | None = 10**9
) -> int | str | list[int]:
    return spread_over_cores(settings, most, rank_bytes).devices


def test_a_command_has_a_rank_for_each_core_that_it_may_use() -> None:
    assert ranks() == 6
    assert ranks(FabricConfig(accelerator="cpu", threads=2)) == 3


def test_no_more_ranks_than_have_work_or_memory() -> None:
    assert ranks(most=2) == 2
    assert ranks(rank_bytes=20 * 10**9) == 3
    assert ranks(rank_bytes=200 * 10**9) == 1
    (process.CGROUP / "memory.max").write_text("5000000000\n")
    (process.CGROUP / "memory.current").write_text("1000000000\n")
    assert ranks() == 4


def test_omp_num_threads_says_how_many_cores_a_program_keeps_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for said, count in {"1": 1, "4,2": 4, "16": 6, "many": 6}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", said)
        assert ranks() == count, said


def test_what_the_user_or_another_launcher_says_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks(FabricConfig(accelerator="cpu", devices=3)) == 3
    assert ranks(FabricConfig(accelerator="cuda")) == "auto"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    assert ranks() == "auto"


def test_a_call_from_python_stays_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "_of_command", False)
    assert ranks() == "auto"


def test_a_rank_that_was_started_counts_as_rank_0_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(lifetime.PARENT, "1")
    monkeypatch.setenv("WORLD_SIZE", "5")
    assert ranks(most=1) == 5


def test_a_model_that_nobody_has_measured_is_loaded_once(tmp_path: Path) -> None:
    assert ranks(rank_bytes=rank_bytes(ModelConfig(model_name_or_path="some/model"))) == "auto"
    assert (
        rank_bytes(
            ModelConfig(engine="openai", base_url="http://localhost/v1", model_name_or_path="x")
        )
        is None
    )
    (tmp_path / "model.safetensors").write_bytes(b"1" * 1000)
    assert rank_bytes(ModelConfig(model_name_or_path=str(tmp_path))) == PROCESS_BYTES + COPY * 1000
    assert rank_bytes(ModelConfig()) is not None
