"""Values that have an order, and rules that rank by them."""

from __future__ import annotations

import pytest
from guidance.rules.made_rules import ticket

from stageb.guidance.rules.expression import Atom
from stageb.guidance.rules.judge import check_proposal
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary, order_values
from stageb.guidance.words.types import Operation, Proposal

EN = WORDS["en"]
VALUES = ["vhigh", "med", "Low", "high"]
VOCABULARY = Vocabulary.of(ticket({"cost": value, "colour": hue}) for value, hue in zip(VALUES, "abcd", strict=True))


@pytest.mark.parametrize(
    ("values", "ordered"),
    [
        (["vhigh", "med", "low", "high"], ("low", "med", "high", "vhigh")),
        (["Big", "small", "medium"], ("small", "medium", "Big")),
        (["very_low", "LOW", "High"], ("very_low", "LOW", "High")),
        (["low", "high"], ()),
        (["low", "med", "high", "blue"], ()),
        (["low", "med", "medium"], ()),
        (["red", "green", "blue"], ()),
        ([], ()),
    ],
)
def test_an_order_is_guessed_where_all_values_stand_on_a_well_known_scale(
    values: list[str], ordered: tuple[str, ...]
) -> None:
    assert order_values(values) == ordered


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("is at least med", ("med", "high", "vhigh")),
        ("is at most med", ("Low", "med")),
        ("is above med", ("high", "vhigh")),
        ("is below med", ("Low",)),
        ("is not above low", ("Low",)),
        ("is no less than high", ("high", "vhigh")),
        ("is at least VHIGH", ("vhigh",)),
    ],
)
def test_a_rule_that_ranks_is_the_same_as_one_that_lists(said: str, values: tuple[str, ...]) -> None:
    code = parse_rule(f"Fail if cost {said}.", VOCABULARY, EN)
    assert isinstance(code, RuleCode)
    assert code.condition == Atom("is", "cost", values)


@pytest.mark.parametrize("said", ["cost is above vhigh", "cost is below low", "cost is at least huge", "colour is above a"])
def test_a_rank_that_nobody_has_is_out_of_reach(said: str) -> None:
    assert isinstance(parse_rule(f"Fail if {said}.", VOCABULARY, EN), OutOfReach)


def test_a_proposed_rule_that_ranks_is_written_as_a_list_which_other_tickets_read_alike() -> None:
    text = "Fail if cost is at least high and colour is a."
    proposal = Proposal(0, "{}", (Operation("add", None, (), text, "", ()),), ())
    (checked,) = check_proposal(proposal, VOCABULARY, EN).operations
    assert checked.text == "Fail if cost is high or vhigh and colour is a."
