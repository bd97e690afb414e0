"""What every loop owes, whatever it learns, as checks that any loop can be put to: list it in
``test_conformance.py``.

A loop is a command line that runs to its end within a second or so and leaves a run's folder
(``stageb/store/journal.py``).

Equal bytes are owed at the same world size, whatever was killed and resumed on the way. Across
world sizes they are owed by loops that reduce no gradients; the others owe the same files, and
weights that agree within their tolerance.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from programs import forks
from programs.processes import Job, wait_until
from safetensors.torch import load

from stageb.__main__ import main
from stageb.guidance.commands.report import REPORT
from stageb.runs.folder import TESTED, VAL
from stageb.store.commits import COMMIT, LOCK
from stageb.store.journal import Journal

NOT_COMPARED = frozenset(
    {"config.yaml", "run.json", "timings.jsonl", REPORT, LOCK}
)  # how and when it ran, rather than what came of it
VIEWS = "logs.d"  # of loggers, which note the time
WEIGHTS = ".safetensors"
GONE_S = 15.0  # after a raise or a kill, on a busy machine


@dataclass(frozen=True)
class Loop:
    """A loop, as the checks start it."""

    name: str
    module: str  # ``python -m module`` is its command
    # (root, world size) -> what follows the command; it runs in root/run
    arguments: Callable[[Path, int], list[str]]
    # (root, world size, rank) -> the same; that rank raises amid the work
    raising: Callable[[Path, int, int], list[str]]
    says: str  # what is said of it then: a pattern, with {rank}
    another: str  # an option that makes another run of it
    refused: str  # what is said of that then
    # by which weights may differ between world sizes; None: all bytes are equal there
    tolerance: float | None = None
    stride: int = 1  # a loop whose runs take longer is killed at so many times fewer places
    learns_weights: bool = True  # by which a run may end when its time is up, and go on
    starts_slowly: bool = False  # its real command is left to the slow tests


class Bench:
    """A loop, room to run it in, and what an undisturbed run of it leaves."""

    def __init__(self, loop: Loop, folder: Path) -> None:
        self.loop = loop
        self.folder = folder
        self._whole: dict[int, forks.Ended] = {}
        self._places = 0

    def place(self) -> Path:
        """A new folder."""
        self._places += 1
        return self.folder / f"{self._places:04d}"

    def root(self, world_size: int) -> Path:
        """Where the undisturbed run at this world size lies."""
        return self.folder / f"whole-{world_size}"

    def whole(self, world_size: int = 1) -> forks.Ended:
        """The undisturbed run; made once."""
        if world_size not in self._whole:
            root = self.root(world_size)
            self._whole[world_size] = forks.run(
                self.loop.arguments(root, world_size), world_size, root / "job"
            )
        return self._whole[world_size]

    def faults(self, folder: Path, world_sizes: Collection[int]) -> list[str]:
        """The files of a run on ``world_sizes``, one after the other, that are not as they must
        be."""
        alone = 1 if self.loop.tolerance is None else next(iter(world_sizes))
        self.whole(alone)
        expected = self.root(alone) / "run"
        if self.loop.tolerance is None or len(set(world_sizes)) == 1:
            return differing(content(folder), content(expected))
        return far_apart(folder, expected, self.loop.tolerance)


def content(folder: Path, not_compared: frozenset[str] = NOT_COMPARED) -> dict[str, bytes]:
    """The bytes of a run that are to be equal, by file."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in not_compared)
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in files
        if VIEWS not in path.parts
    }


def read_rows(folder: Path, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The rows of a run's file."""
    return [json.loads(line) for line in (folder / file).read_text("utf-8").splitlines()]


def differing(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """The files that are not as they must be."""
    return sorted(
        file for file in found.keys() | expected.keys() if found.get(file) != expected.get(file)
    )


def far_apart(folder: Path, expected: Path, tolerance: float) -> list[str]:
    """The files that one of the two lacks, and those whose weights differ by more than
    ``tolerance``."""
    found, wanted = content(folder), content(expected)
    shared = [file for file in found.keys() & wanted.keys() if file.endswith(WEIGHTS)]
    assert shared, f"{folder} holds no weights"
    pairs = {file: (load(found[file]), load(wanted[file])) for file in shared}
    far = [
        file
        for file, (one, other) in pairs.items()
        if any((one[k] - other[k]).abs().max() > tolerance for k in one)
    ]
    return sorted({*far, *(found.keys() ^ wanted.keys())})


def check_world_size(bench: Bench, world_size: int) -> None:
    """The same bytes, or weights, whatever the world size."""
    ended = bench.whole(world_size)
    assert set(ended.codes) == {0}, ended.err
    assert bench.faults(bench.root(world_size) / "run", [1, world_size]) == []


def check_collectives(bench: Bench, world_size: int) -> None:
    """Every rank takes the same collectives in the same order."""
    first, *others = bench.whole(world_size).collectives
    assert first or world_size == 1
    assert others == [first] * (world_size - 1)


def check_only_rank_0_writes(bench: Bench, world_size: int) -> None:
    """The others write nothing, anywhere; rank 0 writes under the root that it was given."""
    first, *others = bench.whole(world_size).operations
    assert first
    assert all(
        path.startswith((str(bench.root(world_size)), "descriptor"))
        for _, _, path in map(_parted, first)
    )
    assert others == [()] * (world_size - 1)


def check_a_raise(bench: Bench, world_size: int, rank: int) -> None:
    """Whichever rank raises, all end, soon, and it is said once which rank it was, at what, and
    why."""
    root = bench.place()
    ended = forks.run(bench.loop.raising(root, world_size, rank), world_size, root / "job")
    assert set(ended.codes) == {1}, ended.err
    assert ended.seconds < GONE_S
    assert len(re.findall(bench.loop.says.format(rank=rank), ended.err)) == 1, ended.err


def check_another_call(bench: Bench) -> None:
    """A finished run is shown again, and another config is refused with both values; neither
    changes a byte, nor what it says that it ran on."""
    assert set(bench.whole().codes) == {0}
    root = bench.root(1)
    (root / "run" / "run.json").write_text('{"stageb": "of another machine"}\n')
    line, before = bench.loop.arguments(root, 1), content(root / "run", frozenset({LOCK}))
    again = forks.run(line, 1, bench.place())
    assert again.codes == (0,), again.err
    assert bench.loop.module != "stageb" or "already finished" in again.err, again.err
    other = forks.run([*line, bench.loop.another], 1, bench.place())
    assert other.codes == (2,) and bench.loop.refused in other.err, other.err
    assert differing(content(root / "run", frozenset({LOCK})), before) == []


def check_out_of_time(bench: Bench, world_size: int) -> None:
    """A run whose time is up ends in good order, is shown again, and goes on with more to what it
    would have come to: its end tested it once more, and nothing else."""
    line = bench.loop.arguments(root := bench.place(), world_size)
    for number, said in enumerate(
        ("budget.seconds, 0.01, ended it: more go on", "already finished", "resuming after 1 of ")
    ):
        limit = ["--budget.seconds=0.01"] if number < 2 else []
        ended = forks.run([*line, *limit], world_size, root / f"job-{number}")
        assert set(ended.codes) == {0} and said in ended.err, ended.err
        assert ("budget.seconds" in ended.err) == bool(limit)
    bench.whole(world_size)
    found, wanted = (
        [
            {name: value for name, value in row.items() if not name.startswith((VAL, TESTED))}
            for row in read_rows(place / "run")
        ]
        for place in (root, bench.root(world_size))
    )
    assert found == wanted


def check_killed_before_an_operation(
    bench: Bench, number: int, world_size: int, resumed_at: int
) -> None:
    """Rank 0 gone before its file operation ``number``, the run resumed at another world size: the
    same bytes."""
    root = bench.place()
    job = forks.Forks(
        bench.loop.arguments(root, world_size), world_size, root / "killed", kill_before=number
    )
    ended = job.wait(GONE_S)
    assert ended.codes[0] == 137, ended.err
    assert 0 not in ended.codes
    _check_resumed(bench, root, ended, world_size, resumed_at)


def check_ended_after_a_commit(
    bench: Bench, number: signal.Signals, commit: int, world_size: int, victim: int, resumed_at: int
) -> None:
    """Any rank gone by a signal at or soon after a commit, or one of the last where there are
    fewer; resumed at another world size: the same bytes."""
    assert bench.whole().codes == (0,)
    commit = min(commit, commits(bench.root(1) / "run") - 4)
    root = bench.place()
    job = forks.Forks(bench.loop.arguments(root, world_size), world_size, root / "killed")
    deadline = time.monotonic() + GONE_S
    while commits(root / "run") < commit and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(job.ranks[victim].pid or 0, number)
    ended = job.wait(GONE_S)
    assert ended.codes[victim] == 128 + number, ended.err
    assert 0 not in ended.codes
    if number != signal.SIGKILL:
        assert ended.err.strip().splitlines()[-1].startswith(f"interrupted by {number.name}"), (
            ended.err
        )
        assert "Traceback" not in ended.err
    _check_resumed(bench, root, ended, world_size, resumed_at)


def check_stopped_after_any_commit(line: Callable[[Path], list[str]], folder: Path) -> None:
    """A run in this process, of the command that ``line`` makes for a root; stopped after each of
    its commits in turn and gone on with, it leaves the same bytes. For what a test makes up of
    results, which no run comes to within a second."""
    commit, number = Journal.commit, 0

    def stop(journal: Journal, *given: Any, **named: Any) -> None:
        commit(journal, *given, **named)
        if journal.number == number:
            raise KeyboardInterrupt

    assert main(line(folder / "whole")) == 0
    expected = content(folder / "whole" / "run")
    for number in range(1, commits(folder / "whole" / "run")):
        root = folder / f"{number}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Journal, "commit", stop)
            assert main(line(root)) == 128 + signal.SIGINT
        assert main(line(root)) == 0
        assert differing(content(root / "run"), expected) == [], number


def check_the_command(bench: Bench, world_size: int) -> None:
    """The real command, its ranks launched by itself; killed amid its commits, and called again."""
    root = bench.place()
    line = [sys.executable, "-m", bench.loop.module, *bench.loop.arguments(root, world_size)]
    offered = {"OMP_NUM_THREADS": "4"}  # forks are offered one thread: no byte may rest on that
    job = Job.start(line, root / "killed", {"PYTHONPATH": os.pathsep.join(sys.path), **offered})
    wait_until(lambda: job.parent.poll() is not None or commits(root / "run") > 1, 120.0)
    job.parent.kill()
    assert (job.wait(GONE_S), job.clear(), job.code) == (True, 0, 128 + signal.SIGKILL), job.err
    job = Job.start(line, root / "resumed", {"PYTHONPATH": os.pathsep.join(sys.path), **offered})
    in_time = job.wait(120.0)
    assert (in_time, job.clear(), job.code) == (True, 0, 0), job.err
    found = bench.faults(root / "run", [world_size])
    assert found == [], found


def check_equal_bytes(
    folder: Path,
    line: Callable[[str, int], list[str]],
    written: Callable[[str], object],
    sizes: Sequence[int] = (1, 2),
    kills: Sequence[tuple[float, int, int]] = ((0.5, 2, 1),),
) -> list[forks.Ended]:
    """A command writes the same at each of ``sizes``, and where rank 0 was killed and the same
    command goes on.

    ``line`` is the command for a name and a world size; ``written``, what lies under a name. A kill
    is a share of rank 0's file operations, the world size of the job that it ends, and that of the
    one that goes on. What ended well is returned, in order.
    """
    whole = [forks.run(line(str(size), size), size, folder / f"job-{size}") for size in sizes]
    for size, ended in zip(sizes, whole, strict=True):
        assert set(ended.codes) == {0}, ended.err
        assert len({*ended.collectives}) == 1 and not any(ended.operations[1:])
        assert written(str(size)) == written(str(sizes[0])), size
    count = len(whole[0].operations[0])
    for share, killed_at, resumed_at in kills:
        name, number = f"killed-{share}", max(1, int(share * count))
        killed = forks.run(line(name, killed_at), killed_at, folder / f"job-{name}", number)
        assert killed.codes[0] == 137, killed.err
        whole.append(forks.run(line(name, resumed_at), resumed_at, folder / f"job-{name}-on"))
        assert set(whole[-1].codes) == {0}, whole[-1].err
        assert written(name) == written(str(sizes[0])), name
    return whole


def commits(folder: Path) -> int:
    """The number of a run's last commit; 0 before the first."""
    try:
        found = re.match(rb'{"number": (\d+),', (folder / COMMIT).read_bytes())
    except FileNotFoundError:
        return 0
    return int(found[1]) if found else 0


def _check_resumed(
    bench: Bench, root: Path, killed: forks.Ended, killed_at: int, world_size: int
) -> None:
    """The same command, perhaps at another world size, brings the run to its proper end, doing
    nothing over again."""
    ended = forks.run(bench.loop.arguments(root, world_size), world_size, root / "resumed")
    assert set(ended.codes) == {0}, ended.err
    faults = bench.faults(root / "run", [killed_at, world_size])
    assert faults == [], faults
    assert {path.name for path in root.iterdir() if path.is_dir()} == {"killed", "resumed", "run"}
    made = _commits_made(killed) + _commits_made(ended)
    assert made - _commits_made(bench.whole()) in (0, 1)  # 1: killed in the middle of one


def _commits_made(ended: forks.Ended) -> int:
    return sum(
        operation.startswith("os.rename") and operation.endswith(f"/{COMMIT}")
        for operation in ended.operations[0]
    )


def _parted(operation: str) -> tuple[str, str, str]:
    return operation.partition(" ")
