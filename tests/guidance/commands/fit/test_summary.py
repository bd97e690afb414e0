"""What the summary of a run says of what ended its learning."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.commands.fit.advice import advise_mission
from stageb.guidance.commands.fit.summary import describe_spending
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.state import STOP, MissionState, State
from stageb.guidance.rules.guidance_file import make_neutral
from stageb.guidance.rules.prompts import WORDS
from stageb.store.journal import Journal

ENDS = st.sampled_from(["", "budget.rollouts", "budget.tokens"])


def end(ends: list[str], is_stopped: bool) -> State:
    """A run of missions whose learning these limits ended, or that was told to stop."""
    names = "abcd"[: len(ends)]
    over = {name: key for name, key in zip(names, ends, strict=True) if key}
    missions = {name: MissionState(make_neutral(name, WORDS["en"])) for name in names}
    return State(missions, ended=STOP if is_stopped else next(iter(over.values()), ""), over=over)


@given(st.lists(ENDS, min_size=1, max_size=4), st.booleans())
@example(["budget.rollouts", "", ""], False)
@example(["budget.rollouts", "budget.tokens"], False)
def test_each_limit_is_named_with_the_missions_whose_learning_it_ended(
    ends: list[str], is_stopped: bool
) -> None:
    """Where it ended that of all, none is named."""
    state = end(ends, is_stopped)
    told = describe_spending(state, 0)[1:]
    expected = {"Learning was told to stop"} if is_stopped else set()
    for key in {*state.over.values()}:
        mine = [name for name in state.missions if state.over.get(name) == key]
        of = f" of {', '.join(mine)}" if len(mine) < len(ends) else ""
        expected.add(f"Learning{of} ended at {key}")
    assert {line.partition(". To learn on, ")[0] for line in told} == expected
    assert len(told) == len(expected)


@given(st.lists(ENDS, min_size=1, max_size=4), st.booleans())
@example(["budget.rollouts", ""], False)
def test_a_mission_that_learnt_nothing_is_told_what_ended_its_own_learning(
    ends: list[str], is_stopped: bool
) -> None:
    state = end(ends, is_stopped)
    config = LoopConfig(tickets=["t.jsonl"])
    with TemporaryDirectory() as root, Journal.open(root, "run", {}) as journal:
        for name in state.missions:
            told = "\n".join(advise_mission(journal, config, state, name))
            assert ("Learning was told to stop after no reflection." in told) == is_stopped
            for key in ("budget.rollouts", "budget.tokens"):
                is_spent = state.over.get(name) == key and not is_stopped
                assert (f"{key} was spent on judging val and test" in told) == is_spent
