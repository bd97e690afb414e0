"""What a process frees stays its own, so that the next pass of a model meets no page fault."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PASSES = """
import ctypes, resource
from stageb.engines.native import memory

def passes(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        blocks = [ctypes.create_string_buffer(4 << 20) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

passes(2)
print(passes(3))
memory.keep_freed()
memory.keep_freed()
passes(2)
print(passes(3))
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")
def test_a_pass_takes_the_pages_of_the_last_one() -> None:
    """In a process of its own, which is as it was afterwards."""
    ran = subprocess.run([sys.executable, "-c", PASSES], capture_output=True, text=True, check=True)
    given_back, kept = map(int, ran.stdout.split())
    assert kept < 1000 < given_back
