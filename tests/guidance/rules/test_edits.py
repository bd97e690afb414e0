from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from guidance.made import guidances
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stageb.guidance.learning.attempts import OTHERWISE, explain_refusals
from stageb.guidance.rules.edits import (
    apply,
    compare_order,
    compare_rules,
    compare_words,
    find_moves,
    mark_provisional,
    named,
    number,
    rebase,
)
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.words.types import Estimate, Guidance, Operation, Proposal, Rule
from stageb.untrusted import strict_json

TEXTS = st.sampled_from(
    ["Fail if a is b.", "Fail if c is d.", "Pass if e is f.", "Fail if g is h.", "Pass if i is j."]
)


def guidance(*texts: str, next_number: int | None = None) -> Guidance:
    rules = tuple(
        Rule(f"G{k}", text, {"reflection_id": f"old {k}"}) for k, text in enumerate(texts)
    )
    return Guidance("m", 7, rules, next_number or len(texts))


def add(text: str, rationale: str = "why") -> Operation:
    return Operation("add", None, (), text, rationale, ("g1::fail",))


def update(key: str, text: str) -> Operation:
    return Operation("update", key, (), text, "why", ("g1::fail",))


def merge(keys: tuple[str, ...], text: str) -> Operation:
    return Operation("merge", None, keys, text, "why", ("g1::fail",))


def remove(key: str) -> Operation:
    return Operation("remove", key, (), "", "why", ("g1::fail",))


def texts(after: Guidance) -> dict[str, str]:
    return {rule.key: rule.text for rule in after.rules}


@st.composite
def edits(draw: st.DrawFn) -> tuple[Guidance, list[Operation]]:
    """A guidance with gaps in its numbers and texts that may repeat, and operations that share no
    rule."""
    numbers = sorted({0, *draw(st.sets(st.integers(1, 12), max_size=7))})
    rules = tuple(Rule(f"G{k}", draw(TEXTS), {"reflection_id": f"old {k}"}) for k in numbers)
    before = Guidance(
        "m", draw(st.integers(0, 5)), rules, numbers[-1] + 1 + draw(st.integers(0, 3))
    )
    free = draw(st.permutations([f"G{k}" for k in numbers if k]))
    operations = [
        add(text, draw(st.sampled_from(["why", "since"])))
        for text in draw(st.lists(TEXTS, max_size=3))
    ]
    if draw(st.booleans()):
        operations.append(update("G0", draw(TEXTS)))
    while len(free) > 0 and draw(st.booleans()):
        kind = draw(st.sampled_from(["update", "merge", "remove"]))
        if kind == "merge" and len(free) >= 2:
            size = draw(st.integers(2, min(3, len(free))))
            taken, free = free[:size], free[size:]
            operations.append(merge(tuple(taken), draw(TEXTS)))
        else:
            key, free = free[0], free[1:]
            operations.append(update(key, draw(TEXTS)) if kind == "update" else remove(key))
    return before, operations


@given(edits(), st.data())
def test_the_order_of_operations_does_not_matter(
    edit: tuple[Guidance, list[Operation]], data: st.DataObject
) -> None:
    before, operations = edit
    assert apply(before, data.draw(st.permutations(operations)), "r1") == apply(
        before, operations, "r1"
    )


@given(edits())
def test_rules_that_no_operation_names_stay_as_they_are(
    edit: tuple[Guidance, list[Operation]],
) -> None:
    before, operations = edit
    after = apply(before, operations, "r1")
    touched = {key for operation in operations for key in named(operation)}
    for rule in before.rules:
        if rule.key not in touched:
            assert after.rule(rule.key) == rule


@given(edits())
def test_every_text_asked_for_is_there_and_no_other_is_new(
    edit: tuple[Guidance, list[Operation]],
) -> None:
    before, operations = edit
    after = apply(before, operations, "r1")
    asked = {operation.text for operation in operations if operation.op != "remove"}
    had = {rule.text for rule in before.rules}
    have = {rule.text for rule in after.rules}
    assert asked <= have <= asked | had


@given(edits())
def test_keys_are_stable_and_never_given_again(edit: tuple[Guidance, list[Operation]]) -> None:
    before, operations = edit
    after = apply(before, operations, "r1")
    old, new = {rule.key for rule in before.rules}, {rule.key for rule in after.rules}
    numbers = [number(rule) for rule in after.rules]
    assert numbers == sorted(set(numbers))
    assert numbers[0] == 0
    assert after.next_number == before.next_number + len(new - old)
    assert all(before.next_number <= int(key[1:]) < after.next_number for key in new - old)


@given(edits())
def test_only_what_operations_name_goes(edit: tuple[Guidance, list[Operation]]) -> None:
    before, operations = edit
    after = apply(before, operations, "r1")
    removed = {operation.key for operation in operations if operation.op == "remove"}
    merged = [set(operation.merged_from) for operation in operations if operation.op == "merge"]
    gone = {rule.key for rule in before.rules} - {rule.key for rule in after.rules}
    assert gone <= removed.union(*merged)
    for sources in merged:
        assert len(sources & gone) == len(sources) - 1  # exactly one of a merge's rules lives on
    added = {operation.text for operation in operations if operation.op == "add"}
    for key in removed - gone:  # a removed rule lives on only where its text was added again
        assert texts(before)[key or ""] in added


@given(edits())
def test_a_step_is_counted_exactly_when_something_changed(
    edit: tuple[Guidance, list[Operation]],
) -> None:
    before, operations = edit
    after = apply(before, operations, "r1")
    if texts(after) == texts(before):
        assert after is before
    else:
        assert after.step == before.step + 1
        assert after.mission == before.mission


@given(edits())
def test_metadata_is_new_exactly_where_the_text_is(edit: tuple[Guidance, list[Operation]]) -> None:
    before, operations = edit
    for rule in apply(before, operations, "r1").rules:
        old = before.rule(rule.key)
        if old is not None and old.text == rule.text:
            assert rule.metadata == old.metadata
        else:
            assert rule.metadata["reflection_id"] == "r1"
            assert rule.metadata["sources"] == ["g1::fail"]
            assert rule.metadata["rationale"] in ("why", "since")
            assert rule.metadata["op"] in {
                operation.op for operation in operations if operation.text == rule.text
            }


@given(edits(), st.none() | st.just(Estimate(237, 0.7, 0.9, 0.3, 0.1)))
def test_a_mark_as_provisional_tells_more_of_new_rules_and_takes_nothing_away(
    edit: tuple[Guidance, list[Operation]], estimate: Estimate | None
) -> None:
    """Readers of a provisional rule, too, ask what it was learnt from."""
    before, operations = edit
    after = apply(before, operations, "r1")
    marked = mark_provisional(after, "r1", estimate)
    assert replace(marked, rules=after.rules) == after
    for plain, rule in zip(after.rules, marked.rules, strict=True):
        is_new = plain.metadata["reflection_id"] == "r1"
        more = {"provisional", *(["estimate"] if estimate else [])} if is_new else set()
        kept = {name: value for name, value in rule.metadata.items() if name not in more}
        assert replace(rule, metadata=kept) == plain and rule.metadata.keys() - kept.keys() == more
        assert (rule.is_provisional, rule.estimate) == (is_new, estimate if is_new else None)
        assert rule.sources == plain.sources
    read = from_json(strict_json.loads(json.dumps(to_json(marked))), "guidance.json")
    assert read == {"m": marked}


@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=6), st.lists(TEXTS, max_size=3))
def test_where_the_order_decides_fixed_rules_keep_mark_and_place_whatever_is_said_again(
    rules: list[tuple[str, bool]], said: list[str]
) -> None:
    """What says the same as another rule takes its place, behind the fixed ones."""
    before = guidance("head", *(text for text, _ in rules))
    marked = (
        replace(rule, metadata={**rule.metadata, "fixed": is_fixed})
        for rule, (_, is_fixed) in zip(before.rules[1:], rules, strict=True)
    )
    before = replace(before, rules=(before.rules[0], *marked), labels=("a", "b", "c"))
    after = apply(before, list(map(add, said)), "r1")
    fixed = [rule for rule in before.rules[1:] if rule.is_fixed]
    kept = {rule.text for rule in fixed}
    assert list(after.rules[1 : len(fixed) + 1]) == fixed
    assert set(texts(after).values()) == {*texts(before).values(), *said}
    assert all([*texts(after).values()].count(text) == 1 for text in said if text not in kept)


def test_each_operation() -> None:
    before = guidance("head", "one", "two", "three")
    after = apply(
        before, [add("five"), update("G1", "uno"), merge(("G2", "G3"), "two or three")], "r1"
    )
    assert texts(after) == {"G0": "head", "G1": "uno", "G2": "two or three", "G4": "five"}
    assert after.rules[2].metadata["merged_from"] == ["G2", "G3"]
    assert texts(apply(before, [remove("G2")])) == {"G0": "head", "G1": "one", "G3": "three"}


def test_a_merge_into_the_text_of_one_of_its_rules_keeps_that_rule() -> None:
    before = guidance("head", "one", "two")
    after = apply(before, [merge(("G1", "G2"), "two")])
    assert after.rules == (before.rules[0], before.rules[2])


def test_of_equal_rules_that_are_removed_and_added_the_first_is_kept() -> None:
    before = guidance("head", "one", "one")
    for operations in (
        [remove("G1"), remove("G2"), add("one")],
        [remove("G2"), add("one"), remove("G1")],
    ):
        assert apply(before, operations).rules == before.rules[:2]


def test_new_rules_are_numbered_by_their_texts() -> None:
    after = apply(guidance("head", next_number=9), [add("b"), add("a"), add("b")])
    assert texts(after) == {"G0": "head", "G9": "a", "G10": "b"}
    assert after.next_number == 11


@pytest.mark.parametrize(
    "operations",
    [
        [remove("G0")],
        [merge(("G0", "G1"), "x")],
        [merge(("G1",), "x")],
        [merge(("G1", "G1"), "x")],
        [merge(("G1", "G9"), "x")],
        [remove("G9")],
        [update("G9", "x")],
        [update("G1", "x"), remove("G1")],
        [merge(("G1", "G2"), "x"), update("G2", "y")],
        [add("")],
        [replace(add("x"), key="G1")],
        [replace(update("G1", "x"), key=None)],
        [replace(remove("G1"), merged_from=("G1", "G2"))],
    ],
)
def test_operations_that_no_check_would_pass_are_refused(operations: list[Operation]) -> None:
    with pytest.raises(ValueError, match=r"rule|headline|text"):
        apply(guidance("head", "one", "two"), operations)
    with pytest.raises(ValueError, match="rule G1 is fixed"):
        apply(
            Guidance("m", 0, (Rule("G0", "head"), Rule("G1", "one", {"fixed": True})), 2),
            [remove("G1")],
        )


# What differs between two guidances, and between two texts

TEXT = st.text("ab 中文,.\n", max_size=20)


@given(guidances(st.just("m")), guidances(st.just("m")))
def test_changes_say_all_that_differs_and_nothing_else(one: Guidance, other: Guidance) -> None:
    rules = {rule.key: rule.text for rule in one.rules}
    found = compare_rules(one, other)
    numbers = [int(change.key.removeprefix("G")) for change in found]
    assert numbers == sorted(numbers)
    assert all(rules.get(change.key, "") == change.before != change.after for change in found)
    rules |= {change.key: change.after for change in found}
    assert {key: text for key, text in rules.items() if text} == {
        rule.key: rule.text for rule in other.rules
    }
    assert compare_rules(one, one) == ()
    assert to_json(one) != to_json(other) or not found
    before, after = (
        {change.key: change.before for change in found},
        {change.key: change.after for change in found},
    )
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
    old, new = (
        Guidance("m", 0, tuple(Rule(f"G{n}", f"Rule {n + by}.") for n in range(20_000)), 20_000)
        for by in (0, 1)
    )
    begun = time.process_time()
    assert find_moves(compare_rules(old, new)) == {f"G{n}": f"G{n + 1}" for n in range(19_999)}
    assert time.process_time() - begun < 5


# Proposals that come to the gate after an edit of the same round was accepted

FIRST = Guidance(
    "m", 3, (Rule("G0", "Pass all."), Rule("G1", "Fail if a."), Rule("G2", "Fail if b.")), 3
)


def operation(
    op: Any, key: str | None = None, text: str = "", merged_from: tuple[str, ...] = ()
) -> Operation:
    return Operation(op, key, merged_from, text, "", ("t",))


def proposal(*operations: Operation) -> Proposal:
    return Proposal(0, "as it came", operations, ())


LATER = apply(
    FIRST, [operation("update", "G1", "Fail if a and c."), operation("add", text="Fail if d.")]
)
LATE = "named a rule that another edit of the same round had changed, or did what one had done"


@pytest.mark.parametrize(
    "late",
    [
        [operation("update", "G1", "Fail if x.")],
        [operation("remove", "G1")],
        [operation("merge", text="Fail if a or b.", merged_from=("G1", "G2"))],
        [operation("add", text="Fail if d.")],  # done
        # they belong together
        [operation("remove", "G2"), operation("update", "G1", "Fail if x.")],
    ],
)
def test_what_comes_too_late_is_refused_and_said_so(late: list[Operation]) -> None:
    assert rebase([proposal(*late)], FIRST, FIRST) == (proposal(*late),)
    (found,) = rebase([proposal(*late)], FIRST, LATER)
    assert found.operations == ()
    (refusal,) = found.refusals
    assert refusal.raw == "as it came"
    assert explain_refusals({refusal.reason: 1}) == [(LATE, 1)]
    assert LATE != OTHERWISE


@pytest.mark.parametrize(
    "kept",
    [
        [operation("add", text="Fail if e.")],
        [operation("remove", "G2")],
        [operation("update", "G2", "Fail if x.")],
        [],
    ],
)
def test_all_else_stays_as_it_was_proposed(kept: list[Operation]) -> None:
    assert rebase([proposal(*kept)], FIRST, LATER) == (proposal(*kept),)
    assert rebase([proposal(*kept)], FIRST, FIRST) == (proposal(*kept),)


@given(st.permutations(range(1, 5)), st.permutations(range(1, 5)), st.integers(0, 4))
@example([1, 2, 3, 4], [1, 2, 3, 4], 4)
@example([1, 2, 3, 4], [2, 1, 3, 4], 2)
def test_an_order_differs_where_rules_of_both_stand_otherwise_and_where_order_decides(
    one: list[int], other: list[int], shared: int
) -> None:
    def make(numbers: list[int], labels: tuple[str, ...]) -> Guidance:
        rules = tuple(Rule(f"G{number}", f"Label {number}.") for number in numbers)
        return Guidance("m", 1, rules, 9, labels=labels)

    def is_kept(number: int) -> bool:
        return number <= shared

    own = ("low", "high")
    old, new = make(one, own), make([*filter(is_kept, other), 7, 8], own)
    differs = [*filter(is_kept, one)] != [*filter(is_kept, other)]
    assert compare_order(old, new) == (tuple(rule.key for rule in new.rules) if differs else ())
    plain = [make(numbers, ("pass", "fail")) for numbers in (one, other)]
    assert compare_order(*plain) == compare_order(None, new) == compare_order(old, None) == ()
