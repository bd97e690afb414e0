"""The ranks of a job as forks of a server that has imported torch and the loops: a start costs
tenths of a second.

For what a loop does. How jobs are launched, and end under every launcher, is tested with the real
commands. To the ranks this looks like torchrun.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from programs.jobs import free_port
from programs.nodes import Node
from programs.operations import watch
from programs.processes import clean_environment

SERVER = multiprocessing.get_context("forkserver")
LOOPS = [f"stageb.{loop}.loop" for loop in ("guidance", "ppo", "growth", "two_channel")]
# what many a command imports on its way, and each would anew
LATE = [
    "torch._dynamo",
    "matplotlib.backends.backend_svg",
    "sklearn.ensemble",
    "sklearn.feature_extraction.text",
    "sklearn.linear_model",
    "stageb.guidance.commands.report.page",
]
SERVER.set_forkserver_preload(["stageb.__main__", *LOOPS, *LATE, "programs.forks"])


@dataclass(frozen=True)
class Ended:
    """A job that has ended."""

    codes: tuple[int, ...]  # of the ranks, as a shell would see them: 128 + n for signal n
    out: str
    err: str
    operations: tuple[tuple[str, ...], ...]  # of each rank, in order: "open /the/path"
    # of each rank, in order: what it waited in for the others
    collectives: tuple[tuple[str, ...], ...]
    seconds: float


class Forks:
    """A job that goes on: ``stageb`` with ``arguments`` on every rank."""

    def __init__(
        self,
        arguments: Sequence[str],
        world_size: int,
        folder: Path,
        kill_before: int | None = None,
        nodes: Sequence[Node] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``folder`` is for what is printed and noted; rank 0 is killed just before that many file
        operations are done. Each of ``nodes`` has as many ranks as any other; without them all are
        here. ``environment`` is for all ranks."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._began = time.monotonic()
        local = world_size // max(1, len(nodes))
        place = {
            "MASTER_ADDR": nodes[0].name if nodes else "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(local),
            "TORCHELASTIC_RUN_ID": "tests",
        }
        self.ranks = [
            SERVER.Process(
                target=_rank,
                args=(
                    list(arguments),
                    dict(environment or {})
                    | {
                        **place,
                        "RANK": str(rank),
                        "LOCAL_RANK": str(rank % local),
                        "GROUP_RANK": str(rank // local),
                    }
                    if world_size > 1
                    else dict(environment or {}),
                    str(folder),
                    rank,
                    kill_before if rank == 0 else None,
                    nodes[rank // local] if nodes else None,
                ),
            )
            for rank in range(world_size)
        ]
        for process in self.ranks:
            process.start()

    def wait(self, seconds: float = 60.0) -> Ended:
        """Wait for the end of all ranks. Raises ``TimeoutError`` where one lives on (and kills
        it)."""
        deadline = time.monotonic() + seconds
        living: list[Any] = [process.sentinel for process in self.ranks]
        while living:
            ended = wait(living, max(0.0, deadline - time.monotonic()))
            if not ended:
                for process in self.ranks:
                    process.kill()
                raise TimeoutError(
                    f"{len(living)} of {len(self.ranks)} ranks live on after {seconds} s: "
                    f"{self._text('err')}"
                )
            living = [sentinel for sentinel in living if sentinel not in ended]
        took = time.monotonic() - self._began
        for process in self.ranks:
            process.join()
        codes = tuple(
            128 - code if (code := process.exitcode or 0) < 0 else code for process in self.ranks
        )
        operations, collectives = self._notes("operations"), self._notes("collectives")
        return Ended(codes, self._text("out"), self._text("err"), operations, collectives, took)

    def _notes(self, what: str) -> tuple[tuple[str, ...], ...]:
        return tuple(
            tuple(self._text(f"{what}.{rank}").splitlines()) for rank in range(len(self.ranks))
        )

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(errors="replace") if path.exists() else ""


def run(
    arguments: Sequence[str],
    world_size: int,
    folder: Path,
    kill_before: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """A job from start to end."""
    return Forks(arguments, world_size, folder, kill_before, environment=environment).wait()


def killed_after_a_commit(
    arguments: Sequence[str], world_size: int, folder: Path, committed: Path, seconds: float
) -> Ended:
    """A job whose rank 0 is killed once the file ``committed`` is there."""
    job, deadline = Forks(arguments, world_size, folder), time.monotonic() + seconds
    while not committed.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    job.ranks[0].kill()
    return job.wait()


def _rank(
    arguments: list[str],
    place: dict[str, str],
    folder: str,
    rank: int,
    kill_before: int | None,
    node: Node | None,
) -> None:
    """One rank, in its process."""
    if node:
        node.enter()
    kept = clean_environment()
    os.environ.clear()
    os.environ.update(kept | place)
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    notes = os.open(f"{folder}/operations.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    done = 0

    def note(what: str, path: str) -> None:
        nonlocal done
        if done == kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        os.write(notes, f"{what} {path}\n".encode())

    import programs.falling
    import programs.parting
    import programs.regression
    import programs.scribbling
    import programs.withering  # noqa: F401 - their loops are in the registry from now on

    from stageb.__main__ import main

    _note_waits(os.open(f"{folder}/collectives.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
    watch(note)
    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _note_waits(notes: int) -> None:
    """Have this process note what it waits in for other ranks."""
    from stageb.job import heartbeat

    at = heartbeat.at

    @contextmanager
    def noted(label: str, kind: heartbeat.Kind = "working") -> Iterator[None]:
        if kind == "waiting":
            os.write(notes, f"{label}\n".encode())
        with at(label, kind):
            yield

    heartbeat.at = noted
