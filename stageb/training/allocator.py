"""Memory that this process has freed, on the CPU: kept for what is allocated next.

glibc gives large pieces back to the system as soon as they are freed, and gets the next ones page by page, each of them
cleared first. A network that learns allocates and frees all its activations at every step, so much of its time goes there.
"""

from __future__ import annotations

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
NEVER, NONE = -1, 0


def keep_freed(device: str) -> None:
    """From now on this process, which learns on ``device``, keeps what it frees: what it holds stays at its peak.

    Does nothing where that is no CPU, or without glibc.
    """
    if not device.startswith("cpu"):
        return
    with contextlib.suppress(AttributeError, TypeError):  # no mallopt; on Windows, no library by that name
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_MAX, NONE)  # large pieces, too, are parts of the heap
        mallopt(TRIM_THRESHOLD, NEVER)
