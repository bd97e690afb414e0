"""Guidance in, guidance out: what a set of operations makes of a mission's rules.

Operations are a set, not a sequence: each names rules of the guidance as it was, no two name the same rule, and so their
order cannot matter, down to the numbers that new rules get (they are handed out in the order of the new texts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from stageb.guidance.types import ESTIMATE, HEADLINE_KEY, PROVISIONAL, Estimate, Guidance, Operation, Rule


def apply(guidance: Guidance, operations: Sequence[Operation], reflection_id: str = "") -> Guidance:
    """``guidance`` after ``operations``: one step on, or ``guidance`` itself where they change no rule.

    - A rule that no operation names stays as it is, text, key and metadata.
    - A merge keeps one of its rules: one whose text is the merged text already, otherwise the lowest-numbered one, whose
      text becomes the merged text. The others go.
    - An add whose text a rule has afterwards adds nothing; one whose text only removed rules had keeps the
      lowest-numbered of them. So nothing is lost and no key changes over a text that was there before and after.
    - Keys are never given again: ``next_number`` only grows.
    - Every rule that got its text here gets new metadata (``reflection_id``, ``op``, ``sources``, ``rationale``).

    Raises ``ValueError`` for operations that the checks of ``proposals.py`` never let through: a rule that is not there or
    that two operations name, a headline that would go, a merge of fewer than two rules, an empty text.
    """
    _check(guidance, operations)
    rules = {rule.key: rule for rule in guidance.rules}
    removed: list[Rule] = []
    for operation in operations:
        if operation.op == "update":
            key = operation.key or ""
            rules[key] = _changed(rules[key], operation, reflection_id)
        elif operation.op == "merge":
            kept, gone = _merge(guidance, operation)
            rules[kept.key] = _changed(kept, operation, reflection_id)
            for rule in gone:
                del rules[rule.key]
        elif operation.op == "remove":
            removed.append(rules.pop(operation.key or ""))
    texts = {rule.text for rule in rules.values()}
    next_number = guidance.next_number
    adds = [operation for operation in operations if operation.op == "add"]
    for operation in sorted(adds, key=lambda add: (add.text, add.rationale, add.evidence)):
        if operation.text in texts:
            continue
        texts.add(operation.text)
        back = [rule for rule in removed if rule.text == operation.text]
        if back:
            rule = min(back, key=number)
        else:
            rule = Rule(f"G{next_number}", operation.text, _metadata(operation, reflection_id))
            next_number += 1
        rules[rule.key] = rule
    after = tuple(sorted(rules.values(), key=number))
    if after == guidance.rules:
        return guidance
    return replace(guidance, step=guidance.step + 1, rules=after, next_number=next_number)


def mark_provisional(guidance: Guidance, reflection_id: str, estimate: Estimate | None) -> Guidance:
    """The guidance, with what this reflection has written marked as provisional, and what is hoped of it."""
    marks = {PROVISIONAL: True} | ({ESTIMATE: asdict(estimate)} if estimate else {})

    def mark(rule: Rule) -> Rule:
        is_new = rule.metadata.get("reflection_id") == reflection_id
        return replace(rule, metadata={**rule.metadata, **marks}) if is_new else rule

    return replace(guidance, rules=tuple(map(mark, guidance.rules)))


def number(rule: Rule) -> int:
    """The number in a rule's key."""
    return int(rule.key[1:])


def named(operation: Operation) -> tuple[str, ...]:
    """The keys of the rules that an operation names: none for an add."""
    return (operation.key,) if operation.key is not None else operation.merged_from


def _merge(guidance: Guidance, operation: Operation) -> tuple[Rule, list[Rule]]:
    """The rule that a merge keeps, and those that go."""
    sources = [rule for rule in guidance.rules if rule.key in operation.merged_from]
    kept = next((rule for rule in sources if rule.text == operation.text), sources[0])
    return kept, [rule for rule in sources if rule is not kept]


def _changed(rule: Rule, operation: Operation, reflection_id: str) -> Rule:
    """``rule`` with the operation's text; ``rule`` itself where it has that text already."""
    if rule.text == operation.text:
        return rule
    return Rule(rule.key, operation.text, _metadata(operation, reflection_id))


def _metadata(operation: Operation, reflection_id: str) -> dict[str, Any]:
    """Where a rule's text came from, as guidance.json shows it."""
    made: dict[str, Any] = {"reflection_id": reflection_id, "op": operation.op, "sources": list(operation.evidence)}
    if operation.op == "merge":
        made["merged_from"] = list(operation.merged_from)
    return {**made, "rationale": operation.rationale}


def _check(guidance: Guidance, operations: Sequence[Operation]) -> None:
    keys = Counter(key for operation in operations for key in named(operation))
    for operation in operations:
        if (operation.op in ("update", "remove")) != (operation.key is not None):
            raise ValueError(f"update and remove name one rule, the others none: {operation}")
        if (operation.op == "merge") != (len(operation.merged_from) >= 2):
            raise ValueError(f"a merge names two rules or more, the others none: {operation}")
        if not operation.text and operation.op != "remove":
            raise ValueError(f"an empty text: {operation}")
        if operation.op == "remove" and operation.key == HEADLINE_KEY:
            raise ValueError(f"the headline is never removed: {operation}")
        if operation.op == "merge" and HEADLINE_KEY in operation.merged_from:
            raise ValueError(f"the headline is never merged: {operation}")
        for key in named(operation):
            if guidance.rule(key) is None:
                raise ValueError(f"no rule {key}: {operation}")
            if keys[key] > 1:
                raise ValueError(f"rule {key} is named twice: {operation}")
