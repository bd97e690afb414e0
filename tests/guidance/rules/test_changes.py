"""What differs between two guidances, and between two texts."""

from __future__ import annotations

import time

from guidance.made import guidances
from hypothesis import given, settings
from hypothesis import strategies as st

from stageb.guidance.rules.edits import compare_rules, compare_words, find_moves
from stageb.guidance.rules.guidance_file import to_json
from stageb.guidance.words.types import Guidance, Rule

TEXT = st.text("ab 中文,.\n", max_size=20)


@given(guidances(st.just("m")), guidances(st.just("m")))
def test_changes_say_all_that_differs_and_nothing_else(one: Guidance, other: Guidance) -> None:
    rules = {rule.key: rule.text for rule in one.rules}
    found = compare_rules(one, other)
    assert all(rules.get(change.key, "") == change.before != change.after for change in found)
    rules |= {change.key: change.after for change in found}
    assert {key: text for key, text in rules.items() if text} == {rule.key: rule.text for rule in other.rules}
    assert compare_rules(one, one) == ()
    assert to_json(one) != to_json(other) or not found
    before, after = {change.key: change.before for change in found}, {change.key: change.after for change in found}
    moves = find_moves(found)
    assert len(set(moves.values())) == len(moves)
    assert all(after[new] == before[old] != "" for new, old in moves.items())
    rest = {text for key, text in after.items() if key not in moves} - {""}
    assert not rest & {text for key, text in before.items() if key not in moves.values()}


@settings(max_examples=40)
@given(TEXT, TEXT)
def test_a_difference_holds_both_texts(before: str, after: str) -> None:
    pieces = compare_words(before, after)
    assert "".join(text for what, text in pieces if what != "new") == before
    assert "".join(text for what, text in pieces if what != "gone") == after
    assert all(text for _, text in pieces)


def test_thousands_of_rules_are_compared_in_time() -> None:
    old, new = (Guidance("m", 0, tuple(Rule(f"G{n}", f"Rule {n + by}.") for n in range(20_000)), 20_000) for by in (0, 1))
    begun = time.process_time()
    assert find_moves(compare_rules(old, new)) == {f"G{n}": f"G{n + 1}" for n in range(19_999)}
    assert time.process_time() - begun < 5
