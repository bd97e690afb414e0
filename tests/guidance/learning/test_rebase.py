"""Proposals that come to the gate after an edit of the same round was accepted."""

from typing import Any

import pytest

from stageb.guidance.learning.attempts import OTHERWISE, explain_refusals
from stageb.guidance.rules.edits import apply, rebase
from stageb.guidance.words.types import Guidance, Operation, Proposal, Rule

FIRST = Guidance("m", 3, (Rule("G0", "Pass all."), Rule("G1", "Fail if a."), Rule("G2", "Fail if b.")), 3)


def operation(op: Any, key: str | None = None, text: str = "", merged_from: tuple[str, ...] = ()) -> Operation:
    return Operation(op, key, merged_from, text, "", ("t",))


def proposal(*operations: Operation) -> Proposal:
    return Proposal(0, "as it came", operations, ())


LATER = apply(FIRST, [operation("update", "G1", "Fail if a and c."), operation("add", text="Fail if d.")])
LATE = "named a rule that another edit of the same round had changed, or did what one had done"


@pytest.mark.parametrize(
    "late",
    [
        [operation("update", "G1", "Fail if x.")],
        [operation("remove", "G1")],
        [operation("merge", text="Fail if a or b.", merged_from=("G1", "G2"))],
        [operation("add", text="Fail if d.")],  # done
        [operation("remove", "G2"), operation("update", "G1", "Fail if x.")],  # they belong together
    ],
)
def test_what_comes_too_late_is_refused_and_said_so(late: list[Operation]) -> None:
    (found,) = rebase([proposal(*late)], FIRST, LATER)
    assert found.operations == ()
    (refusal,) = found.refusals
    assert refusal.raw == "as it came"
    assert explain_refusals({refusal.reason: 1}) == [(LATE, 1)]
    assert LATE != OTHERWISE


@pytest.mark.parametrize(
    "kept",
    [[operation("add", text="Fail if e.")], [operation("remove", "G2")], [operation("update", "G2", "Fail if x.")], []],
)
def test_all_else_stays_as_it_was_proposed(kept: list[Operation]) -> None:
    assert rebase([proposal(*kept)], FIRST, LATER) == (proposal(*kept),)
    assert rebase([proposal(*kept)], FIRST, FIRST) == (proposal(*kept),)


def test_under_the_guidance_that_it_was_made_for_nothing_is_late() -> None:
    made = [proposal(operation("update", "G1", "Fail if x.")), proposal(operation("add", text="Fail if d."))]
    assert rebase(made, FIRST, FIRST) == tuple(made)
