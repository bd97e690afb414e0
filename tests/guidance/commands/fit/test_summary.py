"""What the summary of a run says of what ended its learning."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stageb.guidance.commands.fit.accuracies import describe_by_class, tabulate
from stageb.guidance.commands.fit.advice import advise_mission
from stageb.guidance.commands.fit.artifacts import MissionFiles
from stageb.guidance.commands.fit.summary import describe_spending
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.state import STOP, MissionState, State, Tally
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.words.costs import EQUAL
from stageb.guidance.words.types import PASS_FAIL, Guidance, Rule, Verdict
from stageb.runs.figures import make_console
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


@pytest.mark.parametrize("labels", [PASS_FAIL, ("urgent", "repair", "fine")])
def test_the_table_is_of_the_first_guidance_and_of_the_final_one_not_of_the_last_measured(
    labels: tuple[Verdict, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """And where verdicts are worth more than the best constant answer, nothing warns of it."""

    def judge(step: int, right: int) -> dict[str, Any]:
        rows = {label: dict.fromkeys((*labels, "none"), 0) for label in labels}
        for label, other in zip(labels, (*labels[1:], labels[0]), strict=True):
            rows[label][label] += right
            rows[label][other] += 20 - right
        return {"split": "val", "guidance_step": step, **Tally(rows, rows).row(EQUAL)}

    final = Guidance("m", 1, (Rule("G0", "A headline."),), 1, labels=labels)
    with TemporaryDirectory() as root, Journal.open(root, "run", {}) as journal:
        files = MissionFiles(journal, "m")
        files.append("metrics.jsonl", [judge(0, 12), judge(1, 18), judge(2, 15)])
        make_console().print(tabulate(journal, {"m": final}, {}))
        told = [*describe_by_class(journal, LoopConfig(tickets=["t.jsonl"]), {"m": final})]
    said = capsys.readouterr().out
    assert "60.0% -> 90.0%" in said
    assert ("missed failures" in said) == (labels == PASS_FAIL)
    assert len(told) == 2 and told[1].startswith("m, val: ")
