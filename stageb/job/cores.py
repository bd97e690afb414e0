"""How much of a machine's CPU and memory this process may use, by affinity, a container's limits and the user's wish."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def count_cores() -> int:
    """Cores for this process, at least 1: those that it may run on, at most its container's quota and OMP_NUM_THREADS, by
    which people say how many cores a program may use."""
    counts = [len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1]
    with contextlib.suppress(OSError, ValueError):  # no such limit: "max", or no cgroup v2
        quota, period = (CGROUP / "cpu.max").read_text().split()
        counts.append(math.ceil(int(quota) / int(period)))
    with contextlib.suppress(ValueError):  # unset, or a list for nested regions, whose first number counts
        counts.append(int(os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]))
    return max(1, min(counts))


def free_memory() -> int:
    """Bytes of memory available to this process; 0 if the machine does not tell."""
    free = []
    with contextlib.suppress(OSError, StopIteration):
        lines = MEMINFO.read_text().splitlines()
        free.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with contextlib.suppress(OSError, ValueError):
        free.append(int((CGROUP / "memory.max").read_text()) - int((CGROUP / "memory.current").read_text()))
    return max(0, min(free, default=0))
