"""Ctrl-C while a run goes on: once lets the round end, twice ends the job at once."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from conformance import content
from programs import small, snakes
from programs.forks import Forks, run
from programs.processes import wait_until

from stageb.commits import committed

KEYS: dict[str, Any] = {
    "runner.epochs": 1,
    "sampler.samples_per_decode": 1,
    "model.model_name_or_path": "programs.models:slow",
}


@pytest.mark.parametrize(("world_size", "rank"), [(1, 0), (2, 1)])
def test_a_first_ctrl_c_lets_the_round_end_and_says_how_to_go_on(tmp_path: Path, world_size: int, rank: int) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    arguments = small.arguments(tickets, tmp_path / "out", world_size, KEYS)
    job = Forks([*arguments, "--fresh"], world_size, tmp_path / "job")
    assert wait_until(lambda: committed(tmp_path / "out/run")["number"] >= 2, 60.0)
    process = job.ranks[rank].pid
    assert process
    os.kill(process, signal.SIGINT)
    os.kill(process, signal.SIGINT)  # a wrapper's copy of the same press
    ended = job.wait()
    assert ended.codes == (130,) * world_size
    assert re.search(r"\nfinishing this round( \(about \d+ s\))?; Ctrl-C again stops at once\n", ended.err)
    last = committed(tmp_path / "out/run")
    done = re.search(r"\nstopped after (\d+) of (\d+) rounds, all committed", ended.err)
    assert done
    assert 0 < int(done[1]) < int(done[2])
    assert not last["state"]["finished"]
    assert run(arguments, world_size, tmp_path / "again").codes == (0,) * world_size
    assert (
        run([*arguments, f"--output.root={tmp_path}/undisturbed"], world_size, tmp_path / "other").codes == (0,) * world_size
    )
    assert content(tmp_path / "out/run") == content(tmp_path / "undisturbed/run")


def test_a_second_ctrl_c_ends_the_job_at_once(tmp_path: Path) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=30)
    keys = {**KEYS, "model.model_name_or_path": "programs.models:stuck"}
    job = Forks(small.arguments(tickets, tmp_path / "out", 2, keys), 2, tmp_path / "job")
    said = tmp_path / "job/err"
    assert wait_until(lambda: said.exists() and said.read_text().count("stuck") == 2, 60.0)
    process = job.ranks[0].pid
    assert process
    os.kill(process, signal.SIGINT)
    assert wait_until(lambda: "finishing this round; Ctrl-C again stops at once\n" in said.read_text(), 10.0)
    time.sleep(0.5)
    assert all(rank.is_alive() for rank in job.ranks)
    os.kill(process, signal.SIGINT)
    ended = job.wait(10.0)
    assert ended.codes == (130, 130)
    assert ended.err.strip().splitlines()[-1] == "interrupted by SIGINT; run the same command to go on"


def test_snake_goes_on_to_its_next_commit(tmp_path: Path) -> None:
    long = {"runner__total_steps": snakes.GAMES * 4 * 4000, "runner__commit_every": 8, "evaluation__every": 0}
    job = Forks(snakes.arguments(tmp_path / "out", 2, **long), 2, tmp_path / "job")
    assert wait_until(lambda: committed(tmp_path / "out/run")["number"] >= 1, 60.0)
    process = job.ranks[0].pid
    assert process
    os.kill(process, signal.SIGINT)
    ended = job.wait()
    assert ended.codes == (130, 130)
    last = committed(tmp_path / "out/run")["state"]
    assert last["update"] % 8 == 0
    assert not last["finished"]
    assert re.search(r"\ngoing on to the next commit \(about \d+ s\); Ctrl-C again stops at once\n", ended.err)
    assert f"stopped after {last['update']} of 4000 updates, all committed" in ended.err
