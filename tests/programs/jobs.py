"""Start ``job.py`` under a launcher, wait for it to end, and see what it left: output, exit code, processes, and when."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PROGRAM = Path(__file__).with_name("job.py")
MARKER = "STAGEB_TEST_JOB"
FABRIC = Path(sys.executable).with_name("fabric")


@dataclass(frozen=True)
class Ended:
    """A job that has ended, or was made to."""

    code: int  # what a shell would see: 128 + n for a signal
    out: str
    err: str
    seconds: float  # from the mishap, or the start if there was none, until no process was left
    orphans: int  # processes that had to be killed after ``limit_s``

    @property
    def last(self) -> str:
        """The last line on stderr."""
        return (self.err.strip().splitlines() or [""])[-1]


def command(launcher: str, world_size: int, *arguments: str) -> list[str]:
    """The command line that starts the job."""
    program = [str(PROGRAM), *arguments]
    match launcher:
        case "own":
            return [sys.executable, *program, "--devices", str(world_size)]
        case "torchrun":
            ranks = f"--nproc_per_node={world_size}"
            return [sys.executable, "-m", "torch.distributed.run", ranks, f"--master_port={free_port()}", *program]
        case "fabric":
            place = [
                f"--accelerator={os.environ.get('JOB_ACCELERATOR', 'cpu')}",
                f"--devices={world_size}",
                f"--main-port={free_port()}",
            ]
            return [str(FABRIC), "run", *place, *program]
        case _:
            raise ValueError(launcher)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def run_job(
    launcher: str, world_size: int, *arguments: str, send: signal.Signals | None = None, to: str = "", limit_s: float = 60.0
) -> Ended:
    """Run the job to its end. ``send`` goes ``to`` "parent" (whatever was started here) or a rank ("0"), amid the work."""
    marker = uuid.uuid4().hex
    given = ("LT_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "NODE_RANK", "TORCHELASTIC", "SLURM_", "STAGEB_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(given)}
    environment |= {MARKER: marker, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ready = folder / "job.ready"
        line = command(launcher, world_size, *arguments, "--ready", str(ready))
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            began = time.time()
            parent = subprocess.Popen(
                line, env=environment, stdout=out, stderr=err, stdin=subprocess.DEVNULL, preexec_fn=_heed_interrupts
            )
        if send:
            _wait_until(ready.exists, 120.0)
            time.sleep(1.0)  # into the work
            processes = json.loads(ready.read_text())
            began = time.time()
            os.kill(parent.pid if to == "parent" else processes[int(to)], send)
        else:
            mishap = ready.with_suffix(".mishap")
            if _wait_until(lambda: mishap.exists() or parent.poll() is not None, 120.0) and mishap.exists():
                _wait_until(lambda: bool(mishap.read_text()), 1.0)
                began = float(mishap.read_text())
        _wait_until(lambda: parent.poll() is not None and not marked(marker), began + limit_s - time.time())
        seconds = time.time() - began
        orphans = marked(marker)
        for process in orphans:
            os.kill(process, signal.SIGKILL)
        code = parent.wait()
        return Ended(
            128 - code if code < 0 else code,
            (folder / "out").read_text(errors="replace"),
            (folder / "err").read_text(errors="replace"),
            seconds,
            len(orphans),
        )


def _heed_interrupts() -> None:
    """A shell's background jobs, such as these tests may be part of, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def marked(marker: str) -> list[int]:
    """Living processes with the marker in their environment."""
    wanted = f"{MARKER}={marker}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _wait_until(holds: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
