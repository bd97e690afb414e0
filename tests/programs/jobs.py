"""Start ``job.py`` under a launcher, wait for it to end, and see what it left: output, exit code,
processes, and when."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from programs.processes import Job, wait_until

PROGRAM = Path(__file__).with_name("job.py")
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
            return [
                sys.executable,
                "-m",
                "torch.distributed.run",
                ranks,
                f"--master_port={free_port()}",
                *program,
            ]
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
    """A port that nobody listens on, and none of those that the kernel gives to whoever asks for
    any."""
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def run_job(
    launcher: str,
    world_size: int,
    *arguments: str,
    send: signal.Signals | None = None,
    to: str = "",
    limit_s: float = 60.0,
) -> Ended:
    """Run the job to its end. ``send`` goes ``to`` "parent" (whatever was started here) or a rank
    ("0"), amid the work."""
    with tempfile.TemporaryDirectory() as name:
        ready = Path(name) / "job.ready"
        began = time.time()
        job = Job.start(
            [*command(launcher, world_size, *arguments), "--ready", str(ready)], Path(name)
        )
        if send:
            wait_until(ready.exists, 120.0)
            time.sleep(1.0)  # into the work
            processes = json.loads(ready.read_text())
            began = time.time()
            os.kill(job.parent.pid if to == "parent" else processes[int(to)], send)
        else:
            mishap = ready.with_suffix(".mishap")
            if (
                wait_until(lambda: mishap.exists() or job.parent.poll() is not None, 120.0)
                and mishap.exists()
            ):
                wait_until(lambda: bool(mishap.read_text()), 1.0)
                began = float(mishap.read_text())
        job.wait(began + limit_s - time.time())
        seconds = time.time() - began
        orphans = job.clear()
        return Ended(job.code, job.out, job.err, seconds, orphans)
