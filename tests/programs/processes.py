"""Command lines that tests start: each with everything that comes of it, so that what is left
behind can be found."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARKER = "STAGEB_TEST_JOB"
LAUNCHERS = (
    "LT_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "NODE_RANK",
    "TORCHELASTIC",
    "SLURM_",
    "STAGEB_",
)


@dataclass(frozen=True)
class Job:
    """A command line that was started, in a process group of its own."""

    parent: subprocess.Popen[bytes]
    marker: str
    folder: Path  # holds what it prints

    @classmethod
    def start(
        cls, line: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> Job:
        """Start ``line``; output goes to files in ``folder``."""
        marker = uuid.uuid4().hex
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            parent = subprocess.Popen(
                line,
                env=clean_environment() | {MARKER: marker} | dict(environment or {}),
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=heed_interrupts,
            )
        return cls(parent, marker, folder)

    def processes(self) -> dict[int, int]:
        """The living processes that came of it: process id -> rank."""
        found = {}
        for pid, environment in _environments():
            if f"{MARKER}={self.marker}".encode() in environment:
                ranks = [
                    entry.partition(b"=")[2]
                    for entry in environment
                    if entry.startswith(b"LOCAL_RANK=")
                ]
                found[pid] = int(ranks[0]) if ranks else 0
        return found

    def wait(self, seconds: float) -> bool:
        """Wait until nothing of it is left; whether that was so in time."""
        return wait_until(lambda: self.parent.poll() is not None and not self.processes(), seconds)

    def clear(self) -> int:
        """Kill what is left of it; how many processes these were."""
        left = self.processes()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.parent.wait()
        return len(left)

    @property
    def code(self) -> int:
        """How it ended, as a shell would see it: 128 + n for signal n."""
        code = self.parent.wait()
        return 128 - code if code < 0 else code

    @property
    def out(self) -> str:
        """What it printed."""
        return (self.folder / "out").read_text(errors="replace")

    @property
    def err(self) -> str:
        """What it printed on standard error."""
        return (self.folder / "err").read_text(errors="replace")


def clean_environment() -> dict[str, str]:
    """This process's environment without what a launcher, this tests' own included, may have put
    there; one thread each."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    return kept | {"OMP_NUM_THREADS": "1"}


def heed_interrupts() -> None:
    """A shell's background jobs, such as tests may be part of, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    """Whether ``holds`` came true in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def child(act: Callable[[], None]) -> int:
    """Fork a process that does ``act``; its id. It exits 0 if ``act`` returns."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
        os._exit(0)
    finally:
        os._exit(1)


def _environments() -> list[tuple[int, list[bytes]]]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                found.append((int(folder.name), (folder / "environ").read_bytes().split(b"\0")))
        except OSError:
            continue
    return found
