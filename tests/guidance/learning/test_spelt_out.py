"""A small scorecard says the same as a list of rules."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from stageb.guidance.learning.forms import learn_cards
from stageb.guidance.learning.material import Material, find_wrong
from stageb.guidance.learning.scorecards import Scorecard
from stageb.guidance.learning.terms import Masks, find_gaps, find_guards, find_terms, hold_any
from stageb.guidance.rules.conditions import OneOf
from stageb.guidance.rules.evidence_forms import Forms
from stageb.guidance.rules.value_types import read_summaries

TERMS = [OneOf(name, ("1",)) for name in "abcd"]
ROWS = list(product((False, True), repeat=len(TERMS)))  # a ticket for each
MASKS = Masks(
    {term: sum(row[place] << n for n, row in enumerate(ROWS)) for place, term in enumerate(TERMS)}
)


@given(
    st.lists(st.integers(-5, 5).filter(bool), min_size=1, max_size=len(TERMS)), st.integers(-6, 8)
)
def test_lists_hold_exactly_where_the_card_is_reached_and_where_it_is_not(
    points: list[int], least: int
) -> None:
    card = Scorecard(
        "fail", {(term,): each for term, each in zip(TERMS, points, strict=False)}, least
    )
    reached = sum(
        (sum(each for each, held in zip(points, row, strict=False) if held) >= least) << n
        for n, row in enumerate(ROWS)
    )
    everyone = (1 << len(ROWS)) - 1
    lists = card.spell_out()
    assert [hold_any(MASKS, lines) & everyone for lines in lists] == [reached, everyone & ~reached]
    for lines in lists:
        for line in lines:  # no shorter line would do
            shorter = [[each for each in line if each != term] for term in line]
            side = reached if lines is lists[0] else ~reached
            assert all(hold_any(MASKS, [tuple(some)]) & everyone & ~side for some in shorter)


def test_what_a_value_implies_of_others_is_not_said() -> None:
    yes, no = (OneOf("vote", (value,)) for value in ("y", "n"))
    other = OneOf("b", ("1",))
    assert Scorecard("fail", {(yes,): -2, (no,): 2, (other,): 1}, 2).spell_out()[0] == [(no,)]


def test_a_card_of_what_some_tickets_lack_is_a_list_for_those_that_have_it() -> None:
    readings = [
        read_summaries((text,))
        for text in ["history: 0"] * 30 + ["history: 1"] * 30 + ["area: x"] * 6
    ]
    masks = find_terms(readings, Forms(wide=True))
    everyone, gaps = (1 << len(readings)) - 1, find_gaps(masks, readings)
    masks = masks.plus(find_guards(gaps, everyone))
    fails = (1 << 30) - 1
    material = Material(
        masks,
        gaps,
        {"fail": fails, "pass": everyone & ~fails},
        fails,
        frozenset(),
        {"fail": 1.0, "pass": 1.0},
    )
    whole = learn_cards(None, 1, material, everyone)[0]
    # no ticket is left without a verdict
    assert whole.lists and find_wrong(whole, material, everyone) == 0
