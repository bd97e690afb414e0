"""A run that is killed, or whose disk is full, goes on to leave the very bytes of one that was
not."""

import json
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from programs.processes import child

from stageb.errors import JournalError
from stageb.store.journal import Journal

JOURNAL = ("stageb/store/journal.py", "stageb/store/commits.py", "stageb/store/disk.py")


def opened(root: Path) -> Journal:
    return Journal.open(root, "run", {"seed": 17})


def content(folder: Path) -> dict[str, bytes]:
    """The bytes of a run that are to be equal, by file."""
    files = (
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (".lock", "timings.jsonl")
    )
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def work(root: Path, steps: int = 3, committed: Callable[[Journal], None] = lambda _: None) -> None:
    """A run of some steps, going on from its last commit: files of every kind and parts, in folders
    and beside them."""
    with opened(root) as journal:
        done = journal.state["done"] if journal.state else 0
        journal.replace("config.yaml", "seed: 17\n")
        for step in range(done, steps):
            journal.append("metrics.jsonl", [{"step": step}])
            journal.append(
                "m/rows.jsonl", [{"step": step, "n": n, "text": "é\n" * n} for n in range(3)]
            )
            if step == 1:
                journal.append("m/late.jsonl", [{"late": step}])
            journal.put("weights/policy.bin", partial(halves, step=step))
            if step % 2 == 0:
                journal.put("optimizer", partial(halves, step=step + 100))
            journal.replace("m/whole.json", json.dumps({"step": step}))
            journal.replace(f"m/old/{step}.json", str(step))
            journal.remove(f"m/old/{step - 1}.json")
            journal.note("timings.jsonl", [{"s": random.random()}])
            trail = journal.part("挡风板") or []
            parts = {
                "挡风板": [*trail, step],
                f"mission {step}": {"step": step},
                f"mission {step - 2}": None,
            }
            journal.commit({"done": step + 1}, parts)
            committed(journal)


def halves(path: Path, step: int) -> None:
    """Write some weights, the first half first."""
    with path.open("wb", buffering=0) as opened:
        opened.write(bytes([step % 256]) * 40)
        opened.write(bytes([(step + 1) % 256]) * 40)


def belongs_to_a_commit(file: str) -> bool:
    """Whether a commit says what a file of ``work`` holds; whole files may be ahead of it."""
    return file not in ("config.yaml", "m/whole.json") and not file.startswith("m/old/")


@contextmanager
def before_each_line(act: Callable[[int], None]) -> Iterator[None]:
    """Call ``act`` before each line that changes a run's folder or may do so, with the line's
    number, counted from 1."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        code = frame.f_code
        if code is not halves.__code__ and not code.co_filename.endswith(JOURNAL):
            return None
        if event == "line":
            count += 1
            act(count)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def killed_at(root: Path, line: int) -> int:
    """Do ``work`` in a process that is killed before that line; how it ended."""

    def kill(now: int) -> None:
        if now == line:
            os.kill(os.getpid(), signal.SIGKILL)

    def broken() -> None:
        with before_each_line(kill):
            work(root)

    return os.waitpid(child(broken), 0)[1]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waiting for the disk: what a killed process wrote is in the kernel's hands already."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_run_killed_between_any_two_changes_of_its_folder_stands_at_its_last_commit(
    tmp_path: Path,
) -> None:
    whole = tmp_path / "whole"
    states: dict[int, dict[str, bytes]] = {0: {}}  # what each commit left
    # each thing that the folder ever was, and the line before which it was
    places: list[tuple[int, dict[str, bytes]]] = []

    def watch(line: int) -> None:
        now = {str(path): path.read_bytes() if path.is_file() else b"" for path in whole.rglob("*")}
        if not places or places[-1][1] != now:
            places.append((line, now))

    def committed(journal: Journal) -> None:
        states[journal.number] = content(journal.folder)

    with before_each_line(watch):
        work(whole, committed=committed)
    expected = content(whole / "run")
    assert len(places) > 90
    for line, _ in places:
        root = tmp_path / str(line)
        assert killed_at(root, line) == signal.SIGKILL
        with opened(root) as journal:
            state, found = states[journal.number], content(root / "run")
            assert journal.state == (json.loads(state["commit.json"])["state"] if state else None)
            assert journal.part("挡风板") == (list(range(journal.number)) or None)
        assert {file: data for file, data in found.items() if belongs_to_a_commit(file)} == {
            file: data for file, data in state.items() if belongs_to_a_commit(file)
        }, f"killed at line {line}"
        work(root)
        assert content(root / "run") == expected, f"killed at line {line}"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_run_killed_again_while_it_is_brought_back_to_its_commit(tmp_path: Path) -> None:
    work(tmp_path / "whole")
    expected = content(tmp_path / "whole" / "run")
    for line in range(100, 1500, 200):
        for again in range(20, 200, 30):
            root = tmp_path / f"{line}-{again}"
            assert killed_at(root, line) == signal.SIGKILL
            assert killed_at(root, again) == signal.SIGKILL
            work(root)
            assert content(root / "run") == expected, f"killed at line {line}, then at line {again}"


def over_the_limit(root: Path) -> None:
    """In a process that may write files of 4 kB: appends, replacements and commits fail cleanly,
    one after another."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    with opened(root) as journal:
        acts: list[Callable[[], None]] = [
            lambda: journal.append("metrics.jsonl", [{"n": "x" * 5000}]),
            lambda: journal.replace("m/whole.json", "x" * 5000),
            lambda: journal.commit({"done": "x" * 5000}),
            lambda: journal.append("new.jsonl", [{"n": "x" * 5000}]),
            lambda: journal.put("weights/policy.bin", lambda path: path.write_bytes(b"x" * 5000)),
            lambda: journal.commit({"done": 4}, {"fits": 1, "挡风板": "x" * 5000}),
        ]
        for act in acts:
            with pytest.raises(JournalError, match="raise the limit on file sizes"):
                act()
        assert not list(root.rglob(".unfinished-*"))
        journal.append("metrics.jsonl", [{"n": "fits"}])
        assert journal.rows("metrics.jsonl")[-1] == {"n": "fits"}
        assert (journal.state, journal.part("fits"), journal.part("挡风板")) == (
            {"done": 3},
            None,
            [0, 1, 2],
        )


def test_a_full_disk_leaves_the_last_commit_intact(tmp_path: Path) -> None:
    work(tmp_path)
    before = content(tmp_path / "run")
    assert os.waitpid(child(lambda: over_the_limit(tmp_path)), 0)[1] == 0
    opened(tmp_path).close()
    assert content(tmp_path / "run") == before
