"""Limits on a run's learning that are raised as it goes on."""

from __future__ import annotations

from pathlib import Path

from guidance.trials import numbered
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.commands.fit.folder import LIMITS
from stageb.guidance.commands.fit.limits import RunLimits
from stageb.guidance.config import BudgetConfig, LoopConfig
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.learning.state import STOP, MissionState, Spent, State
from stageb.guidance.learning.transitions import why_ended
from stageb.guidance.rules.guidance_file import make_neutral
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.tickets.splits import split_tickets

BUDGETS = {"rollouts": 40, "tokens": 400, "seconds": 4}


@given(
    st.sampled_from([STOP, *(f"budget.{name}" for name in BUDGETS)]),
    st.sets(st.sampled_from(LIMITS), min_size=1),
    st.lists(st.sampled_from([0, 9, 10, 11]), min_size=4, max_size=4),
)
def test_a_run_that_goes_on_learns_unless_what_ended_it_stands_as_it_was(
    ended: str, raised: set[str], used: list[int]
) -> None:
    """Whoever stopped it, or whichever limit ended it that was raised, each mission learns that has
    not spent its equal share of what there is now."""
    config = LoopConfig(tickets=["t.jsonl"], budget=BudgetConfig(**BUDGETS))
    names = ("a", "b", "c", "d")
    splits = dict.fromkeys(names, split_tickets(numbered(20), config)["m"])
    missions = {
        name: MissionState(make_neutral(name, WORDS["en"]), spent=Spent(rollouts=count))
        for name, count in zip(names, used, strict=True)
    }
    over = {} if ended == STOP else dict.fromkeys(names[:2], ended)
    limits = RunLimits(config, GuidanceSchedule(splits, config, 4), Path("of no run"))
    after = limits.raise_limits(State(missions, over=over, ended=ended), raised)
    spent = {name for name, count in zip(names, used, strict=True) if count >= 10}
    assert after.over == dict.fromkeys(spent, "budget.rollouts")
    assert {name for name in names if why_ended(after, name, config)} == spent
    if ended == STOP or ended in raised:
        assert after.ended == ("budget.rollouts" if spent else "")
    else:
        assert after.ended == ended
