"""Memory that a process has freed stays its own: on a CPU every pass of a model asks for the same few MiB again.

By default glibc hands large blocks back to the kernel as they are freed, and every page of the next one is a page fault.
With these thresholds they stay on the heap, which takes huge pages where the kernel lets it: ``lab/notes/speed.md``.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import platform

# Parameters of mallopt(3), as <malloc.h> numbers them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3

LARGEST = 32 << 20  # bytes of a block on the heap, the most that glibc lets us ask for; larger ones are mapped as before
KEPT = 1 << 30  # bytes free at the heap's end that stay there
RESERVED = 512 << 20  # bytes that the heap grows by, of which only those that are used take memory
HUGE_PAGE = 2 << 20


@functools.cache
def keep_freed() -> None:
    """Have this process keep on its heap what it frees from now on. Does nothing without glibc."""
    if platform.libc_ver()[0] != "glibc":
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_THRESHOLD, LARGEST)
    libc.mallopt(_TRIM_THRESHOLD, KEPT)
    libc.mallopt(_TOP_PAD, RESERVED)
    _take_huge_pages(libc)


def _take_huge_pages(libc: ctypes.CDLL) -> None:
    """Grow the heap by what is reserved, and ask for huge pages there; where that is refused, small ones do."""
    libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
    start = libc.sbrk(0)
    blocks: list[int | None] = []
    while libc.sbrk(0) == start and len(blocks) < KEPT // LARGEST:
        blocks.append(libc.malloc(ctypes.c_size_t(LARGEST // 2)))
    for block in blocks:
        libc.free(ctypes.c_void_p(block))
    first = -(-start // HUGE_PAGE) * HUGE_PAGE
    libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(libc.sbrk(0) - first), mmap.MADV_HUGEPAGE)
