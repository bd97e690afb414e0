"""Short forms of ``crash.py``; its own command line does a hundred. ``test_conformance.py`` ends every loop by signals in
forks, which start at once; here it is the command that launches its own ranks."""

import signal
from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import crash
import pytest
from crash import Blow, Plan, Run


def blow(world_size: int, rank: int | None, number: signal.Signals) -> Blow:
    """Amid a run's commits."""
    return Blow(world_size, rank, signal=number, early=False, share=0.2, pause_s=0.05)


def check(runs: Sequence[Run], kills: int) -> None:
    assert sum(len(run.kills) for run in runs) == kills
    assert not [run for run in runs if crash.bad(run)], "\n".join(crash.table(runs))
    assert max(kill.seconds for run in runs for kill in run.kills) < 20.0


@pytest.mark.parametrize(
    "plan",
    [
        Plan("guidance", (blow(2, 0, SIGKILL),), world_size=1),
        pytest.param(Plan("snake", (blow(2, 0, SIGINT),), world_size=2), marks=pytest.mark.slow),
        pytest.param(Plan("growth", (blow(2, 1, SIGTERM),), world_size=1), marks=pytest.mark.slow),
        pytest.param(Plan("two_channel", (blow(1, None, SIGKILL),), world_size=1), marks=pytest.mark.slow),
    ],
    ids=lambda plan: plan.loop,
)
def test_a_killed_run_leaves_what_an_undisturbed_one_leaves(tmp_path: Path, plan: Plan) -> None:
    check([crash.one_run(tmp_path, plan)], kills=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_runs_of_all_loops_killed_again_and_again_leave_what_undisturbed_ones_leave(tmp_path: Path) -> None:
    check(list(crash.campaign(tmp_path, list(crash.LOOPS), list(crash.SIGNALS), kills=30, seed=8)), kills=30)
