"""The time left: unknown until every kind of ticket to come has been timed, then steady."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stageb.guidance.commands.fit.progress import AGREEING, Pace, describe_left, describe_time


def test_nothing_is_said_before_what_is_to_come_has_been_timed() -> None:
    pace = Pace({"learnt": 32})
    for now in range(1, 9):
        pace.add("judged", 1.0, 10)
        assert pace.left(float(now), {"judged": 100, "learnt": 64}) is None
    pace.add("learnt", 50.0, 16)  # no reflection is among so few
    assert pace.left(58.0, {"judged": 100, "learnt": 64}) is None


def test_it_counts_down_evenly_where_learning_takes_longer_than_judging() -> None:
    """Four rounds that are judged fast, then eight from which is learnt: as rounds alone count, 2 s
    each were promised."""
    pace, now, said = Pace({"learnt": 20}), 0.0, []
    for _ in range(4):
        now += 1.0
        pace.add("judged", 1.0, 10)
        said.append(pace.left(now, {"judged": 0, "learnt": 80}))
    for done in range(1, 9):
        now += 20.0
        pace.add("learnt", 20.0, 10)
        said.append(pace.left(now, {"judged": 10, "learnt": 80 - 10 * done}))
    known = [left for left in said if left is not None]
    assert said[:5] == [None] * 5
    assert len(known) >= 3
    assert all(19 <= before - after <= 21 for before, after in pairwise(known))


def test_it_falls_silent_while_it_jumps() -> None:
    pace = Pace({})
    for now in range(AGREEING):
        pace.add("judged", 1.0, 1)
        left = pace.left(float(now), {"judged": 100})
    assert left is not None
    pace.add("judged", 400.0, 1)
    assert pace.left(405.0, {"judged": 99}) is None


@pytest.mark.parametrize(("to_come", "left"), [(1800, 1750.0), (300, None)])
def test_a_jump_is_told_by_the_time_that_is_left(to_come: int, left: float | None) -> None:
    """A run whose end moves by a hundred seconds: little in half an hour, and much in five
    minutes."""
    pace = Pace({})
    pace.add("judged", 1.0, 1)
    said = [pace.left(now, {"judged": to_come}) for now in (0.0, 50.0, 100.0)]
    assert said == [None, None, left]


def test_the_time_left_is_told_coarsely() -> None:
    assert [describe_left(seconds) for seconds in (None, 20.0, 60.0, 250.0, 5000.0)] == [
        "",
        "less than a minute left",
        "about 1 min left",
        "about 4 min left",
        "about 1 h 23 min left",
    ]
    assert describe_time(250.0) == "about 4 min"
