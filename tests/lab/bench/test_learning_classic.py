"""What rules can reach: conditions on single tickets, the rule list, the tree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.bench.learning import cells, classic, clues, missions
from lab.bench.learning.cells import Cell, Place
from lab.bench.learning.method import ENGLISH
from stageb.guidance.rules.candidates import find_conditions, reading
from stageb.guidance.rules.prompts import clue_text
from stageb.guidance.words.types import Ticket, Verdict


def ticket(number: int, text: str, label: Verdict = "fail") -> Ticket:
    return Ticket("m", f"g{number:04d}", label, (("image_1", text),))


NUMBER, HUE = (
    st.sampled_from(["1", "2", "3", "10", "25 mm"]),
    st.sampled_from(["red", "blue", "green"]),
)
STATE = st.sampled_from(["clean", "leaking", "no"])
TEXT = st.builds(
    "depth: {}; width: {}; hue: {}; tint: {}; {} oil".format, NUMBER, NUMBER, HUE, HUE, STATE
)
TEXTS = st.lists(TEXT, min_size=4, max_size=12)

# Conditions


@given(TEXTS)
def test_a_condition_holds_for_a_ticket_exactly_where_the_count_says_so(
    texts: Sequence[str],
) -> None:
    readings = [reading(ticket(n, text)) for n, text in enumerate(texts)]
    for condition, mask in find_conditions(readings).items():
        assert [clues.meets(read, [condition]) for read in readings] == [
            bool(mask >> n & 1) for n in range(len(texts))
        ]


@given(TEXTS)
def test_a_clue_as_a_prompt_shows_it_holds_where_its_conditions_do(texts: Sequence[str]) -> None:
    readings = [reading(ticket(n, text)) for n, text in enumerate(texts)]
    found = list(find_conditions(readings).items())
    for (one, mask), (other, mask_too) in pairwise(found):
        said = [clues.says(clue_text([one, other], ENGLISH), read) for read in readings]
        assert said == [bool((mask & mask_too) >> n & 1) for n in range(len(texts))]


# The rule list and the tree


def right_share(reached: classic.Reached) -> float:
    return sum(reached.right) / len(reached.right)


@pytest.mark.parametrize(
    ("name", "least"), [("plain", 0.98), ("exceptions", 0.98), ("notes", 0.85)]
)
def test_the_rule_list_finds_hidden_rules(name: str, least: float) -> None:
    parts = cells.split(missions.tickets(name), 1)
    reached = classic.rule_list(parts["train"], parts["test"], 1)
    assert right_share(reached) >= least
    assert 1 <= len(reached.rules) <= 12, "noise is pruned away"
    assert reached == classic.rule_list(parts["train"], parts["test"], 1)


def test_the_rule_list_speaks_of_the_rarer_label_in_words_that_a_guidance_could_hold() -> None:
    tickets = [
        ticket(
            n,
            f"a: {n % 5}; b: {n // 5 % 5}; c: {n // 25}",
            "pass" if n % 5 == n // 5 % 5 else "fail",
        )
        for n in range(100)
    ]
    reached = classic.rule_list(tickets, tickets, 3)
    assert list(reached.rules) == ["Pass if a equals b."]
    assert all(reached.right)


def test_the_tree_learns_pairs_words_and_numbers_and_meets_unseen_values() -> None:
    pytest.importorskip("sklearn")
    tickets = [
        ticket(n, f"depth: {n} mm; a {'leak' if n % 3 else 'seal'}", "fail" if n > 50 else "pass")
        for n in range(90)
    ]
    reached = classic.tree(
        tickets, [*tickets, ticket(999, "depth: 700 mm; a thing; colour: red", "fail")], 1
    )
    assert all(reached.right)


def test_a_cell_of_theirs_needs_no_model_and_no_rollouts(tmp_path: Path) -> None:
    place = Place(tmp_path, None, (), "no such model", "cpu")
    cell = Cell("plain", "rules", seed=1, budget=100)
    assert "0 rollouts" in cells.run(cell, place)
    result = json.loads((tmp_path / "cells" / cell.name / "result.json").read_text())
    (point,) = result["curve"]
    assert point["rollouts"] == result["rollouts"] == result["reflections"] == 0
    assert len(point["right"]) == result["tickets"]["test"]
