"""Short forms of ``crash.py``; its own command line does a hundred."""

from pathlib import Path

import crash
import pytest


@pytest.mark.parametrize(("kills", "seed"), [(3, 19), pytest.param(30, 8, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_killed_runs_leave_what_an_undisturbed_one_leaves(tmp_path: Path, kills: int, seed: int) -> None:
    runs = list(crash.campaign(tmp_path, kills, seed))
    assert sum(len(run.kills) for run in runs) == kills
    assert not [run for run in runs if crash.bad(run)], "\n".join(crash.table(runs))
    assert max(kill.seconds for run in runs for kill in run.kills) < 20.0
