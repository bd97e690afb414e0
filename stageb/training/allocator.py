"""Keeps freed CPU memory in the process for the next allocation.

glibc returns large blocks to the system as soon as they are freed, and gets new ones page by page, each zeroed first. A
network in training allocates and frees all its activations at every step, so this takes much of its time.
"""

from __future__ import annotations

import contextlib
import ctypes

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
NEVER, NONE = -1, 0


def keep_freed(device: str) -> None:
    """Keep freed memory from now on, so that the process stays at its peak size, if it trains on a CPU (``device``).

    Does nothing on other devices, or without glibc.
    """
    if not device.startswith("cpu"):
        return
    with contextlib.suppress(AttributeError, TypeError):  # no mallopt; on Windows, no library by that name
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(MMAP_MAX, NONE)  # large pieces, too, are parts of the heap
        mallopt(TRIM_THRESHOLD, NEVER)
