"""A run that is killed, or whose disk is full, goes on to leave the very bytes of one that was not."""

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from programs.processes import child

from stageb.errors import JournalError
from stageb.journal import Journal


def opened(root: Path) -> Journal:
    return Journal.open(root, "run", {"seed": 17})


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of a run that are to be equal, by file."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in (".lock", "timings.jsonl"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def work(root: Path, steps: int = 3) -> None:
    """A run of some steps, going on from its last commit: appended, whole and noted files, in folders and beside them."""
    with opened(root) as journal:
        done = journal.state["done"] if journal.state else 0
        journal.replace("config.yaml", "seed: 17\n")
        for step in range(done, steps):
            journal.append("metrics.jsonl", [{"step": step}])
            journal.append("m/rows.jsonl", [{"step": step, "n": n, "text": "é\n" * n} for n in range(3)])
            if step == 1:
                journal.append("m/late.jsonl", [{"late": step}])
            journal.replace("m/whole.json", json.dumps({"step": step}))
            journal.replace(f"m/old/{step}.json", str(step))
            journal.remove(f"m/old/{step - 1}.json")
            journal.note("timings.jsonl", [{"s": random.random()}])
            journal.commit({"done": step + 1})


@contextmanager
def killed_at(line: int) -> Iterator[list[int]]:
    """Kill this process before the ``line``-th line that journal.py and disk.py run; 0 only counts them."""
    count = [0]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.endswith(("stageb/journal.py", "stageb/disk.py")):
            return None
        if event == "line":
            count[0] += 1
            if count[0] == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk: what a killed process wrote is in the kernel's hands already."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.usefixtures("quick")
def test_a_run_killed_at_any_line_leaves_what_an_unbroken_one_leaves(tmp_path: Path) -> None:
    with killed_at(0) as count:
        work(tmp_path / "whole")
    expected = content(tmp_path / "whole" / "run")
    for line in range(1, count[0] + 1, 5):
        root = tmp_path / str(line)

        def broken(root: Path = root, line: int = line) -> None:
            with killed_at(line):
                work(root)

        assert os.waitpid(child(broken), 0)[1] == signal.SIGKILL
        work(root)
        assert content(root / "run") == expected, f"killed at line {line}"


@pytest.mark.usefixtures("quick")
def test_a_run_killed_at_random_moments_again_and_again(tmp_path: Path) -> None:
    moments = random.Random(3)
    ends = []
    for _ in range(15):
        pid = child(lambda: work(tmp_path / "broken", 600))
        time.sleep(moments.uniform(0.002, 0.03))
        os.kill(pid, signal.SIGKILL)
        ends.append(os.waitpid(pid, 0)[1])
    assert ends.count(signal.SIGKILL) > 3
    work(tmp_path / "broken", 600)
    work(tmp_path / "whole", 600)
    assert content(tmp_path / "broken" / "run") == content(tmp_path / "whole" / "run")


def over_the_limit(root: Path) -> None:
    """In a process that may write files of 4 kB: appends, replacements and commits fail cleanly, one after another."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    with opened(root) as journal:
        acts: list[Callable[[], None]] = [
            lambda: journal.append("metrics.jsonl", [{"n": "x" * 5000}]),
            lambda: journal.replace("m/whole.json", "x" * 5000),
            lambda: journal.commit({"done": "x" * 5000}),
            lambda: journal.append("new.jsonl", [{"n": "x" * 5000}]),
        ]
        for act in acts:
            with pytest.raises(JournalError, match="raise the limit on file sizes"):
                act()
        assert not list(root.rglob(".unfinished-*"))
        journal.append("metrics.jsonl", [{"n": "fits"}])
        assert journal.rows("metrics.jsonl")[-1] == {"n": "fits"}
        assert journal.state == {"done": 3}


def test_a_full_disk_leaves_the_last_commit_intact(tmp_path: Path) -> None:
    work(tmp_path)
    before = content(tmp_path / "run")
    assert os.waitpid(child(lambda: over_the_limit(tmp_path)), 0)[1] == 0
    opened(tmp_path).close()
    assert content(tmp_path / "run") == before
