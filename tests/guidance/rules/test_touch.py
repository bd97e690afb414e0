"""Which tickets an edit may touch."""

from collections.abc import Sequence

import pytest

from stageb.guidance.rules.conditions import reading
from stageb.guidance.rules.judge import find_touched
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Guidance, Rule, Ticket

EN = WORDS["en"]
TEXTS = ("state: torn; part: hose", "state: torn; part: seal", "state: new; part: hose", "part: hose", "a loose remark")
TICKETS = [Ticket("m", f"g{n}", "pass", (("image_1", text),)) for n, text in enumerate(TEXTS)]
VOCABULARY = Vocabulary.of(TICKETS)
TORN, HOSE, BOTH = "Fail if state is torn.", "Fail if part is hose.", "Fail if state is torn and part is hose."


def guidance(*rules: str) -> Guidance:
    texts = (EN.neutral_headline, *rules)
    return Guidance("m", 0, tuple(Rule(f"G{n}", text) for n, text in enumerate(texts) if text), len(texts))


def touched(before: Guidance, after: Guidance) -> list[int]:
    is_touched = find_touched(before, after, VOCABULARY, EN)
    return [n for n, ticket in enumerate(TICKETS) if is_touched(reading(ticket))]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([TORN], [TORN], []),
        # Where a ticket does not tell (3 and 4 name no state, 4 no part), a rule may hold.
        ([], [TORN], [0, 1, 3, 4]),
        ([TORN], [""], [0, 1, 3, 4]),  # removed
        ([HOSE], [HOSE, TORN], [0, 1, 3, 4]),  # what the other rule holds for is judged as before
        ([TORN], [BOTH], [0, 1, 3, 4]),  # before or after
        ([BOTH], [HOSE], [0, 2, 3, 4]),
        ([TORN, HOSE], [BOTH], [0, 1, 2, 3, 4]),
        ([], ["Fail unless part is hose."], [1, 4]),
        ([], ["Fail if it looks bad."], [0, 1, 2, 3, 4]),  # nobody knows
        ([TORN], ["", TORN], [0, 1, 3, 4]),  # reasons name it otherwise
    ],
)
def test_what_no_changed_rule_holds_for_before_or_after_is_not_touched(
    before: Sequence[str], after: Sequence[str], expected: Sequence[int]
) -> None:
    assert touched(guidance(*before), guidance(*after)) == list(expected)


def test_another_headline_may_touch_every_ticket() -> None:
    rules = (Rule("G0", "Be strict."), *guidance(TORN).rules[1:])
    assert touched(guidance(TORN), Guidance("m", 1, rules, 2)) == [0, 1, 2, 3, 4]
