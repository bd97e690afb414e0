"""What the summary of a run says."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.commands.fit.summary import describe_spending
from stageb.guidance.learning.state import STOP, MissionState, State
from stageb.guidance.rules.guidance_file import make_neutral
from stageb.guidance.rules.prompts import WORDS

ENDS = st.sampled_from(["", "budget.rollouts", "budget.tokens"])


@given(st.lists(ENDS, min_size=1, max_size=4), st.booleans())
@example(["budget.rollouts", "", ""], False)
@example(["budget.rollouts", "budget.tokens"], False)
def test_each_limit_is_named_with_the_missions_whose_learning_it_ended(
    ends: list[str], is_stopped: bool
) -> None:
    """Where it ended that of all, none is named."""
    names = "abcd"[: len(ends)]
    over = {name: key for name, key in zip(names, ends, strict=True) if key}
    missions = {name: MissionState(make_neutral(name, WORDS["en"])) for name in names}
    ended = STOP if is_stopped else next(iter(over.values()), "")
    told = describe_spending(State(missions, ended=ended, over=over), 0)[1:]
    expected = {"Learning was told to stop"} if is_stopped else set()
    for key in {*over.values()}:
        mine = [name for name in names if over.get(name) == key]
        of = f" of {', '.join(mine)}" if len(mine) < len(names) else ""
        expected.add(f"Learning{of} ended at {key}")
    assert {line.partition(". To learn on, ")[0] for line in told} == expected
    assert len(told) == len(expected)
