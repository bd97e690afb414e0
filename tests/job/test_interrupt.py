"""Ctrl-C while a run goes on: it ends the job at once, and the same command goes on from the last
commit. To a program that calls stageb in a single process it is an exception, as Python has it."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conformance import commits, content
from guidance.commands.use import made
from hypothesis import given
from hypothesis import strategies as st
from programs import small
from programs.forks import Forks, run
from programs.models import HASTE
from programs.processes import Job, wait_until

import stageb
from stageb.job import lifetime

KEYS: dict[str, Any] = {
    "runner.epochs": 1,
    "split": {"train": 1.0, "val": 0.0, "test": 0.0},
    "sampler.samples_per_decode": 1,
    "reflection.batch_size": 20,
    "model.model_name_or_path": "programs.models:slow",
}


def has_commits(folder: Path, number: int) -> bool:
    return commits(folder) >= number


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_run_without_val_that_is_interrupted_learns_as_much_as_one_that_is_not(
    tmp_path: Path, world_size: int
) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    # a second or two are left to interrupt, however late a busy machine sends the signal
    keys = KEYS | {"runner.epochs": 3}
    whole = small.arguments(tickets, tmp_path / "whole", world_size, keys)
    assert set(run(whole, world_size, tmp_path / "job", environment=HASTE).codes) == {0}
    expected, moments = content(tmp_path / "whole" / "run"), random.Random(7)
    # after the third, the mission learns from what its last round brought
    for number, to_all in ((2, True), (3, False)):
        root = tmp_path / f"after-{number}"
        arguments = small.arguments(tickets, root, world_size, keys)
        job = Forks(arguments, world_size, root / "job")
        assert wait_until(partial(has_commits, root / "run", number), 60.0)
        time.sleep(moments.uniform(0.0, 0.1))
        # a terminal sends it to all, ``kill`` to one
        for rank in job.ranks if to_all else job.ranks[-1:]:
            assert rank.pid
            os.kill(rank.pid, signal.SIGINT)
        assert set(job.wait().codes) == {130}
        assert set(run(arguments, world_size, root / "again", environment=HASTE).codes) == {0}
        assert content(root / "run") == expected, f"interrupted after commit {number}"


PATH = {"PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[1:3]))}
CALLER = """
import json, os, signal, sys, threading
import stageb

keys = json.loads(sys.argv[1])
handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
try:
    stageb.predict(**keys)
except KeyboardInterrupt:
    print("an exception", flush=True)
finally:
    print("finally", flush=True)
assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
held = len(os.listdir("/proc/self/fd"))
found = []
thread = threading.Thread(target=lambda: found.append(stageb.predict(**keys)))
thread.start()
thread.join()
for row in found[0]:
    break
assert sum(1 for row in stageb.predict(**keys)) == 40
del row
assert len(os.listdir("/proc/self/fd")) <= held
assert not {"lightning.pytorch", "scipy", "torchmetrics", "transformers"} & {*sys.modules}  # twice as long to start
print("went on", flush=True)
"""


@pytest.mark.slow
def test_from_python_ctrl_c_is_an_exception_and_another_call_goes_on_in_any_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {
        "guidance": made.guidance(tmp_path / "g.json", {"valves": "Fail if state is torn."}),
        "tickets": made.tickets(tmp_path / "in.jsonl", "valves"),
        "round_size": 8,
        "model": {"engine": "scripted", "model_name_or_path": "programs.models:slow"},
        "fabric": {"accelerator": "cpu", "devices": 1},
    }
    program = tmp_path / "caller.py"
    program.write_text(CALLER)
    out, whole = tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    job = Job.start(
        [sys.executable, str(program), json.dumps({**keys, "output": str(out)})],
        tmp_path / "job",
        PATH,
    )
    assert wait_until(lambda: out.exists() and out.stat().st_size > 0, 60.0)
    os.kill(job.parent.pid, signal.SIGINT)
    assert job.wait(60.0)
    assert (job.code, job.out) == (0, "an exception\nfinally\nwent on\n"), job.err
    monkeypatch.setenv("ANSWER_S", HASTE["ANSWER_S"])
    stageb.predict(**keys, output=str(whole))
    assert out.read_bytes() == whole.read_bytes()


def test_the_command_line_says_in_one_line_how_to_go_on(tmp_path: Path) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    arguments = small.arguments(tickets, tmp_path / "out", 1, KEYS)
    job = Job.start([sys.executable, "-m", "stageb", *arguments], tmp_path / "job", PATH)
    assert wait_until(partial(has_commits, tmp_path / "out/run", 1), 60.0)
    os.kill(job.parent.pid, signal.SIGTERM)
    assert job.wait(10.0)
    assert job.code == 128 + signal.SIGTERM
    assert "Traceback" not in job.err
    last = job.err.strip().splitlines()[-1]
    assert last.startswith(
        "interrupted by SIGTERM; the last commit stands; to resume: python -m stageb fit --"
    )


WORD = st.sampled_from(["--fresh", "--config=a b.yaml", "--tickets", "*.csv", "it's", "$HOME"])


@given(st.sampled_from(["/opt/bin/stageb", "/lib/stageb/__main__.py"]), st.lists(WORD))
def test_what_is_said_to_resume_is_the_same_command_that_no_longer_begins_anew(
    program: str, words: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [program, *words])
        said = lifetime.command_line()
    begins = ["stageb"] if program.endswith("stageb") else ["python", "-m", "stageb"]
    assert shlex.split(said) == [*begins, *(word for word in words if word != "--fresh")]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU])
def test_what_else_asks_a_job_to_end_ends_it_as_sigterm_does(
    tmp_path: Path, number: signal.Signals
) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    job = Forks(small.arguments(tickets, tmp_path / "out", 1, KEYS), 1, tmp_path / "job")
    assert wait_until(partial(has_commits, tmp_path / "out/run", 1), 60.0)
    assert job.ranks[0].pid
    os.kill(job.ranks[0].pid, number)
    assert job.wait().codes == (128 + number,)


def test_the_first_commit_counts_from_the_moment_it_is_there(tmp_path: Path) -> None:
    """Not from when the process that made it gets to say so: a signal may fall in between."""
    commit = tmp_path / "commit.json"
    lifetime.set_resume(commit=commit)
    try:
        assert lifetime.interrupted(signal.SIGTERM) == "interrupted by SIGTERM"
        commit.touch()
        assert lifetime.interrupted(signal.SIGTERM).startswith(
            "interrupted by SIGTERM; the last commit stands; "
        )
    finally:
        lifetime.set_resume(None)


def test_before_the_first_commit_there_is_nothing_to_go_on_from_and_a_second_ctrl_c_ends_a_deep_call(
    tmp_path: Path,
) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    arguments = small.arguments(
        tickets, tmp_path / "out", 1, {**KEYS, "model.model_name_or_path": "programs.models:deep"}
    )
    job = Job.start([sys.executable, "-m", "stageb", *arguments], tmp_path / "job", PATH)
    assert wait_until(lambda: "deep" in job.err, 60.0)
    os.kill(job.parent.pid, signal.SIGINT)
    assert not job.wait(1.0)
    os.kill(job.parent.pid, signal.SIGINT)
    assert job.wait(2.0)
    assert (job.code, job.err.strip().splitlines()[-1]) == (130, "interrupted by SIGINT")


STARTING = """
import os, pathlib, time
if "LOCAL_RANK" in os.environ:
    (pathlib.Path(__file__).parent / "starting").write_text(str(os.getpid()))
    time.sleep(1.0)
"""


@pytest.mark.parametrize("to_all", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ctrl_c_while_the_python_of_another_rank_starts(tmp_path: Path, to_all: bool) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    (tmp_path / "sitecustomize.py").write_text(STARTING)
    line = [sys.executable, "-m", "stageb", *small.arguments(tickets, tmp_path / "out", 2, KEYS)]
    job = Job.start(line, tmp_path / "job", {"PYTHONPATH": f"{tmp_path}:{PATH['PYTHONPATH']}"})
    starting = tmp_path / "starting"
    assert wait_until(lambda: starting.exists() and bool(starting.read_text()), 60.0), job.err
    (os.killpg if to_all else os.kill)(
        job.parent.pid if to_all else int(starting.read_text()), signal.SIGINT
    )
    assert job.wait(10.0)
    assert (job.code, job.err) == (130, "interrupted by SIGINT\n")


ENDING = """
import atexit, pathlib, time

def slow():
    (pathlib.Path(__file__).parent / "ending").touch()
    time.sleep(5.0)

atexit.register(slow)
"""


def test_ctrl_c_while_python_shuts_down_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ENDING)
    shown = ["guidance", "show", str(made.guidance(tmp_path / "g.json", {"valves": "x"}))]
    job = Job.start(
        [sys.executable, "-m", "stageb", *shown], tmp_path / "job", {"PYTHONPATH": str(tmp_path)}
    )
    assert wait_until((tmp_path / "ending").exists, 60.0), job.err
    os.kill(job.parent.pid, signal.SIGINT)
    assert job.wait(3.0)
    assert (job.code, job.err) == (130, "")


def test_several_ranks_are_refused_where_no_program_can_be_run_again(tmp_path: Path) -> None:
    fabric = "{'devices': 2, 'accelerator': 'cpu'}"
    call = (
        f"import stageb; stageb.predict(guidance=sys.argv[1], tickets=sys.argv[2], fabric={fabric})"
    )
    given = [
        made.guidance(tmp_path / "g.json", {"valves": "x"}),
        made.tickets(tmp_path / "in.jsonl", "valves"),
    ]
    job = Job.start([sys.executable, "-c", f"import sys; {call}", *given], tmp_path / "job", PATH)
    assert job.wait(60.0)
    assert job.code == 1
    assert (
        "config: fabric.devices: 2: further ranks would rerun this program, which is impossible in"
        in job.err
    )


def test_a_library_that_swallows_an_interrupt_and_fails_of_it_is_still_interrupted() -> None:
    """As numpy does where it is interrupted while it is imported."""
    code = """
import os, signal, sys, time
from stageb import __main__
def fit(arguments):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    except KeyboardInterrupt:
        pass
    raise RecursionError("numpy.dtypes")
__main__.run = fit
sys.argv = ["stageb", "fit"]
sys.exit(__main__.main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (143, "interrupted by SIGTERM\n")


def test_the_message_is_the_last_line_whatever_other_threads_say() -> None:
    code = """
import sys, threading, time
import stageb
from stageb.job import lifetime
def talk():
    while True:
        sys.stderr.write("round 7/8\\n")  # in one piece
        time.sleep(0.01)
threading.Thread(target=talk, daemon=True).start()
lifetime.before_end(lambda code: time.sleep(0.3))
lifetime.end(143, "interrupted by SIGTERM")
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (143, "interrupted by SIGTERM")
