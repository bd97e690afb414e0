"""The growth loop on all GPUs of this machine: each works and holds memory.

Skipped below two GPUs. ``JOB_ACCELERATOR=cpu`` runs the same on two processes of the CPU, but for
what only GPUs can show.
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
TIMEOUT_S = 140.0  # of a job, on a machine that has just begun
DEVICES = [f"cuda:{index}" for index in range(COUNT)] if ACCELERATOR == "cuda" else ["cpu"] * COUNT

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(COUNT < 2, reason="needs two GPUs")]


def done(arguments: list[str], folder: Path) -> Job:
    """``python -m stageb`` with ``arguments``, at its end; nothing of it is left."""
    path = os.pathsep.join([str(Path(__file__).parent.parent), *filter(None, sys.path)])
    job = Job.start(
        [sys.executable, "-m", "stageb", *arguments], folder / "said", {"PYTHONPATH": path}
    )
    ended = job.wait(TIMEOUT_S)
    assert job.clear() == 0, job.err
    assert ended, job.err
    return job


def test_every_gpu_works_and_holds_memory(tmp_path: Path) -> None:
    keys = {
        "growth__updates": 2,
        "growth__environments": 4 * COUNT,
        "fabric__accelerator": ACCELERATOR,
    }
    job = done(growths.arguments(tmp_path, COUNT, **keys), tmp_path)
    assert job.code == 0, job.err
    rows = [
        json.loads(row) for row in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()
    ]
    assert len(rows) == 2
    for row in rows:
        assert [rank["device"] for rank in row["ranks"]] == DEVICES
        assert [rank["environments"] for rank in row["ranks"]] == [4] * COUNT
        assert ACCELERATOR == "cpu" or min(rank["peak_bytes"] for rank in row["ranks"]) > 100_000
    for rank, device in enumerate(DEVICES):
        assert f"rank {rank} on {device}: 4 environments" in job.err


def test_more_gpus_than_there_are_cannot_be_asked_for(tmp_path: Path) -> None:
    job = done(growths.arguments(tmp_path, COUNT + 1, fabric__accelerator="cuda"), tmp_path)
    assert job.code == 2
    assert "fabric." in job.err
    assert not (tmp_path / "run").exists()
