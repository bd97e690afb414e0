"""One run for all tests of its report: they read it, and leave it as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from guidance.commands.report import runs

from stageb.guidance.commands.report import REPORT


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ``run`` lies: two missions, with names and texts that are hostile, long, and
    Chinese."""
    folder = tmp_path_factory.mktemp("reported")
    tickets = runs.tickets(folder / "tickets.jsonl", *runs.MISSIONS)
    ended = runs.fit(folder, tickets, gate__alpha=0.5, reflection__num_proposals=8)
    assert ended.code == 0
    assert ended.out.splitlines()[-1] == f"Report: {folder / 'run' / REPORT}"
    return folder
