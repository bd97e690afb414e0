"""Conditions come in one order whatever the hash seed of a process: which of several that say the
same is learnt hangs on it."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from stageb.guidance.rules.candidates import SearchSpace, find_conditions, reading
from stageb.guidance.words.types import Ticket
texts = ["pump leaks badly at the seal", "seal of the pump leaks badly", "loose guard; at the pump", "leaks badly"]
tickets = [Ticket("m", str(n), "pass", (("image_1", f"{text}; state: {n % 3}"),)) for n, text in enumerate(texts * 2)]
print(*find_conditions([reading(ticket) for ticket in tickets], SearchSpace(arithmetic=True, wide=True)), sep="\\n")
"""


def test_conditions_come_in_one_order_whatever_the_hash_seed() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert "badly" in found.pop()
