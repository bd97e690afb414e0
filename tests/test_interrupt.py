"""Ctrl-C while a run goes on: it ends the job at once, and the same command goes on from the last commit."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conformance import commits, content
from programs import small
from programs.forks import Forks, run
from programs.processes import wait_until

KEYS: dict[str, Any] = {
    "runner.epochs": 1,
    "split": {"train": 1.0, "val": 0.0, "test": 0.0},
    "sampler.samples_per_decode": 1,
    "reflection.batch_size": 20,
    "model.model_name_or_path": "programs.models:slow",
}


def has_commits(folder: Path, number: int) -> bool:
    return commits(folder) >= number


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_run_without_val_that_is_interrupted_learns_as_much_as_one_that_is_not(tmp_path: Path, world_size: int) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    whole = small.arguments(tickets, tmp_path / "whole", world_size, KEYS)
    assert set(run(whole, world_size, tmp_path / "job").codes) == {0}
    expected, moments = content(tmp_path / "whole" / "run"), random.Random(7)
    for number, to_all in ((2, True), (3, False)):  # after the third, the mission learns from what its last round brought
        root = tmp_path / f"after-{number}"
        arguments = small.arguments(tickets, root, world_size, KEYS)
        job = Forks(arguments, world_size, root / "job")
        assert wait_until(partial(has_commits, root / "run", number), 60.0)
        time.sleep(moments.uniform(0.0, 0.1))
        for rank in job.ranks if to_all else job.ranks[-1:]:  # a terminal sends it to all, ``kill`` to one
            assert rank.pid
            os.kill(rank.pid, signal.SIGINT)
        assert set(job.wait().codes) == {130}
        assert set(run(arguments, world_size, root / "again").codes) == {0}
        assert content(root / "run") == expected, f"interrupted after commit {number}"
