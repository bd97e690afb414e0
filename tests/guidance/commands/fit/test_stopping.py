"""Limits on a run's learning that are raised as it goes on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from guidance.trials import numbered
from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.commands.fit.resume import LIMITS
from stageb.guidance.commands.fit.stopping import RunLimits
from stageb.guidance.config import BudgetConfig, LoopConfig
from stageb.guidance.learning.schedule import GuidanceSchedule
from stageb.guidance.learning.state import STOP, MissionState, Spent, State
from stageb.guidance.learning.transitions import why_ended
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.splits import split_tickets

BUDGETS = {"rollouts": 40, "tokens": 400, "seconds": 4}


@given(
    st.sampled_from([STOP, *(f"budget.{name}" for name in BUDGETS)]),
    st.sets(st.sampled_from(LIMITS), min_size=1),
    st.lists(st.sampled_from([0, 9, 10, 11]), min_size=4, max_size=4),
    st.sampled_from([2, 4]),
)
def test_a_run_that_goes_on_learns_unless_what_ended_it_stands_as_it_was(
    ended: str, raised: set[str], used: list[int], count: int
) -> None:
    """Whoever stopped it, or whichever limit ended it that was raised, each mission learns that has
    not spent its equal share of what there is now."""
    config = LoopConfig(tickets=["t.jsonl"], budget=BudgetConfig(**BUDGETS))
    names = ("a", "b", "c", "d")
    splits = dict.fromkeys(names, split_tickets(numbered(20), config)["m"])
    missions = {
        name: MissionState(make_neutral(name, WORDS["en"]), spent=Spent(rollouts=each))
        for name, each in zip(names, used, strict=True)
    }
    over = {} if ended == STOP else dict.fromkeys(names[:count], ended)
    limits = RunLimits(config, GuidanceSchedule(splits, config, 4), Path("of no run"))
    before = State(missions, over=over, ended=ended)
    after = limits.raise_limits(before, raised)
    if len(over) == len(names) and ended not in raised:
        assert after == before
        return
    spent = {name for name, each in zip(names, used, strict=True) if each >= 10}
    assert after.over == dict.fromkeys(spent, "budget.rollouts")
    assert {name for name in names if why_ended(after, name, config)} == spent
    if ended == STOP or ended in raised:
        assert after.ended == ("budget.rollouts" if spent else "")
    else:
        assert after.ended == ended


@pytest.mark.parametrize("is_learnt", [False, True])
def test_learning_is_told_to_stop_where_some_is_still_to_come(
    is_learnt: bool, tmp_path: Path
) -> None:
    config = LoopConfig(tickets=["t.jsonl"])
    schedule = GuidanceSchedule({"m": split_tickets(numbered(20), config)["m"]}, config, 4)
    done = schedule.close(config.runner.epochs, "m") if is_learnt else (0, 0, 0, 0)
    state = State({"m": MissionState(make_neutral("m", WORDS["en"]))}, done=done)
    limits = RunLimits(config, schedule, tmp_path)
    (tmp_path / STOP).touch()
    assert limits.apply(state) == (state if is_learnt else replace(state, ended=STOP))


@pytest.mark.parametrize(
    ("ended", "over", "finished", "is_kept"),
    [
        ("", (), False, True),
        ("", (), True, False),
        (STOP, (), False, False),
        ("budget.rollouts", ("a",), False, True),  # the other mission still learns
        ("budget.rollouts", ("a", "b"), False, False),
    ],
)
def test_what_told_learning_to_stop_goes_once_all_of_it_has_ended(
    ended: str, over: tuple[str, ...], finished: bool, is_kept: bool, tmp_path: Path
) -> None:
    """It must not stop what learns on under a higher limit."""
    config = LoopConfig(tickets=["t.jsonl"])
    splits = dict.fromkeys("ab", split_tickets(numbered(20), config)["m"])
    missions = {name: MissionState(make_neutral(name, WORDS["en"])) for name in splits}
    limits = RunLimits(config, GuidanceSchedule(splits, config, 4), tmp_path)
    (tmp_path / STOP).touch()
    spent = dict.fromkeys(over, ended)
    limits.forget_stop(State(missions, over=spent, ended=ended, finished=finished))
    assert (tmp_path / STOP).exists() == is_kept
