"""The growth loop on all GPUs of this machine: each works and holds memory, replicas are one over NCCL, and a rank that
parts ends the run.

Skipped below two GPUs. ``JOB_ACCELERATOR=cpu`` runs the same on two processes of the CPU, but for what only GPUs can show.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from programs import growths
from programs.processes import Job

ACCELERATOR = os.environ.get("JOB_ACCELERATOR", "cuda")
COUNT = torch.cuda.device_count() if ACCELERATOR == "cuda" else 2
TIMEOUT_S, START_S = 20.0, 120.0  # of a rank that hangs; for a job to come so far, on a machine that has just begun
DEVICES = [f"cuda:{index}" for index in range(COUNT)] if ACCELERATOR == "cuda" else ["cpu"] * COUNT

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.skipif(COUNT < 2, reason="needs two GPUs")]


def done(arguments: list[str], folder: Path, module: str = "stageb") -> Job:
    """``python -m module`` with ``arguments``, at its end; nothing of it is left."""
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path)])
    job = Job.start([sys.executable, "-m", module, *arguments], folder / "said", {"PYTHONPATH": path})
    ended = job.wait(START_S + TIMEOUT_S)
    assert job.clear() == 0, job.err
    assert ended, job.err
    return job


@pytest.mark.parametrize("ddp", [False, True])
def test_every_gpu_works_and_holds_memory(ddp: bool, tmp_path: Path) -> None:
    keys = {"growth__updates": 2, "growth__environments": 4 * COUNT, "growth__ddp": ddp, "fabric__accelerator": ACCELERATOR}
    job = done(growths.arguments(tmp_path, COUNT, **keys), tmp_path)
    assert job.code == 0, job.err
    rows = [json.loads(row) for row in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        assert [rank["device"] for rank in row["ranks"]] == DEVICES
        assert [rank["environments"] for rank in row["ranks"]] == [4 * COUNT if ddp else 4] * COUNT
        assert ACCELERATOR == "cpu" or min(rank["peak_bytes"] for rank in row["ranks"]) > 100_000
    for rank, device in enumerate(DEVICES):
        assert f"rank {rank} on {device}: {4 * COUNT if ddp else 4} environments" in job.err


def test_more_gpus_than_there_are_cannot_be_asked_for(tmp_path: Path) -> None:
    job = done(growths.arguments(tmp_path, COUNT + 1, fabric__accelerator="cuda"), tmp_path)
    assert job.code == 2
    assert "fabric." in job.err
    assert not (tmp_path / "run").exists()


def test_replicas_are_equal_to_the_bit_through_a_hundred_lifecycle_operations(tmp_path: Path) -> None:
    job = done([ACCELERATOR, str(COUNT)], tmp_path, "programs.replicas")
    assert job.code == 0, job.err
    first, *others = json.loads(job.out)
    assert [each["device"] for each in [first, *others]] == DEVICES
    assert len(first["operations"]) >= 100
    for other in others:
        assert (other["operations"], other["held"]) == (first["operations"], first["held"])


@pytest.mark.parametrize("mishap", ["weights", "lifecycle", "absent"])
def test_a_run_whose_ranks_part_ends_in_time(mishap: str, tmp_path: Path) -> None:
    keys = {"growth__ddp": True, "mishap": mishap, "fabric__timeout_s": TIMEOUT_S, "host__epochs": 6}
    given = growths.arguments(tmp_path, COUNT, "diverging", fabric__accelerator=ACCELERATOR, **keys)
    job = done(given, tmp_path, "programs.diverging")
    assert job.code == 1, job.err
    assert "rank" in job.err.strip().splitlines()[-1]
