"""Guidance in, guidance out: applies operations to a mission's rules, compares guidances, and finds
operations that are late.

Operations are a set, not a sequence: each names rules of the guidance as it was, no two name the
same rule, and so their order cannot matter, down to the numbers that new rules get (they are handed
out in the order of the new texts).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Literal

from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import (
    ESTIMATE,
    HEADLINE_KEY,
    PROVISIONAL,
    Estimate,
    Guidance,
    Operation,
    Proposal,
    Refusal,
    Rule,
)
from stageb.untrusted.clean_text import CJK

MEASURED = "on tickets that did not teach them, these rules"  # begins the reasons that code gives


def apply(guidance: Guidance, operations: Sequence[Operation], reflection_id: str = "") -> Guidance:
    """``guidance`` after ``operations``: one step on, or ``guidance`` itself where they change no
    rule.

    - A rule that no operation names stays as it is, text, key and metadata.
    - A merge keeps one of its rules: one whose text is the merged text already, otherwise that
      which stands first, whose text becomes the merged text. The others go.
    - An add whose text a rule has afterwards adds nothing; one whose text only removed rules had
      keeps the lowest-numbered of them. So nothing is lost and no key changes over a text that was
      there before and after.
    - Rules of labels other than pass and fail, whose order decides, are added in the order given
      and always anew, behind the fixed ones and before all others: what is learnt later is about
      tickets that those judge wrong. One of these that says the same goes.
    - Keys are never given again: ``next_number`` only grows.
    - Every rule that got its text here gets new metadata (``reflection_id``, ``op``, ``sources``,
      ``rationale``).

    Raises ``ValueError`` for operations that the checks of ``proposals.py`` never let through: a
    rule that is not there, is fixed, or is named twice, a headline that would go, a merge of fewer
    than two rules, an empty text.
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
    next_number = guidance.next_number
    adds = [operation for operation in operations if operation.op == "add"]
    is_ordered = has_labels(guidance.labels)
    for operation in (
        adds
        if is_ordered
        else sorted(adds, key=lambda add: (add.text, add.rationale, add.evidence))
    ):
        for rule in (
            [each for each in rules.values() if each.text == operation.text] if is_ordered else ()
        ):
            if (
                number(rule) < guidance.next_number
                and not rule.is_fixed
                and rule.key != HEADLINE_KEY
            ):
                del rules[rule.key]
        if any(rule.text == operation.text for rule in rules.values()):
            continue
        back = [rule for rule in removed if rule.text == operation.text and not is_ordered]
        if back:
            rule = min(back, key=number)
        else:
            rule = Rule(f"G{next_number}", operation.text, _metadata(operation, reflection_id))
            next_number += 1
        rules[rule.key] = rule

    def rank(rule: Rule) -> int:
        is_new = number(rule) >= guidance.next_number
        return 0 if rule.is_fixed or rule.key == HEADLINE_KEY else 1 if is_new else 2

    after = tuple(sorted(rules.values(), key=rank if is_ordered else number))
    if after == guidance.rules:
        return guidance
    return replace(guidance, step=guidance.step + 1, rules=after, next_number=next_number)


def mark_provisional(guidance: Guidance, reflection_id: str, estimate: Estimate | None) -> Guidance:
    """Mark the rules that this reflection has written as provisional, and note their estimate."""
    marks = {PROVISIONAL: True} | ({ESTIMATE: asdict(estimate)} if estimate else {})

    def mark(rule: Rule) -> Rule:
        is_new = rule.metadata.get("reflection_id") == reflection_id
        return replace(rule, metadata={**rule.metadata, **marks}) if is_new else rule

    return replace(guidance, rules=tuple(map(mark, guidance.rules)))


def number(rule: Rule) -> int:
    """Return the number in a rule's key."""
    return int(rule.key[1:])


def named(operation: Operation) -> tuple[str, ...]:
    """Return the keys of the rules that an operation names: none for an add."""
    return (operation.key,) if operation.key is not None else operation.merged_from


def _merge(guidance: Guidance, operation: Operation) -> tuple[Rule, list[Rule]]:
    """Return the rule that a merge keeps, and those that go."""
    sources = [rule for rule in guidance.rules if rule.key in operation.merged_from]
    kept = next((rule for rule in sources if rule.text == operation.text), sources[0])
    return kept, [rule for rule in sources if rule is not kept]


def _changed(rule: Rule, operation: Operation, reflection_id: str) -> Rule:
    """Return ``rule`` with the operation's text; ``rule`` itself where it has that text already."""
    if rule.text == operation.text:
        return rule
    return Rule(rule.key, operation.text, _metadata(operation, reflection_id))


def find_author(rationale: str) -> str:
    """Say who gave the reason for a rule's text."""
    return "code" if rationale.startswith(MEASURED) else "the model"


def _metadata(operation: Operation, reflection_id: str) -> dict[str, Any]:
    """Return the origin of a rule's text, as guidance.json shows it."""
    made: dict[str, Any] = {
        "reflection_id": reflection_id,
        "op": operation.op,
        "sources": list(operation.evidence),
    }
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
            rule = guidance.rule(key)
            if rule is None:
                raise ValueError(f"no rule {key}: {operation}")
            if rule.is_fixed:
                raise ValueError(f"rule {key} is fixed: {operation}")
            if keys[key] > 1:
                raise ValueError(f"rule {key} is named twice: {operation}")


# The differences between two guidances of a mission, rule by rule and word by word. Pure functions.

_WORD = re.compile(f"[{CJK}]|[^\\W{CJK}]+|\\s+|.")

Piece = tuple[Literal["same", "gone", "new"], str]
"""A stretch of a text, and whether the change kept it, took it out or put it in."""


@dataclass(frozen=True, slots=True)
class RuleChange:
    """The change of one key's rule."""

    key: str
    before: str  # its text; empty where there was none
    after: str  # its text; empty where there is none any more

    @property
    def pieces(self) -> list[Piece]:
        """The change word by word (CJK: character by character)."""
        return compare_words(self.before, self.after)


def compare_rules(old: Guidance | None, new: Guidance | None) -> tuple[RuleChange, ...]:
    """List the changes that turn ``old`` into ``new``, in the order of keys."""
    before, after = (
        {rule.key: rule.text for rule in each.rules} if each else {} for each in (old, new)
    )
    keys = sorted(before.keys() | after.keys(), key=lambda key: int(key[1:]))
    return tuple(
        RuleChange(key, before.get(key, ""), after.get(key, ""))
        for key in keys
        if before.get(key) != after.get(key)
    )


def compare_marks(old: Guidance | None, new: Guidance | None) -> tuple[tuple[Rule, Rule], ...]:
    """Pair the rules of ``old`` that have the same text in ``new`` under another mark with the new
    ones."""
    pairs = [(old.rule(rule.key) if old else None, rule) for rule in (new.rules if new else ())]
    return tuple(
        (was, rule)
        for was, rule in pairs
        if was and was.text == rule.text and was.mark != rule.mark
    )


def compare_order(old: Guidance | None, new: Guidance | None) -> tuple[str, ...]:
    """Return the keys of ``new`` in their order, if order decides and differs for the rules of
    both; else nothing."""
    if not old or not new or not has_labels(new.labels):
        return ()
    one, other = ([rule.key for rule in each.rules] for each in (old, new))
    is_same = [key for key in one if key in other] == [key for key in other if key in one]
    return () if is_same else tuple(other)


def find_moves(changes: Sequence[RuleChange]) -> dict[str, str]:
    """Find the rules whose text only went to another key: the new key -> the old one, each named
    once."""
    gone: dict[str, list[str]] = {}
    for change in reversed(changes):
        gone.setdefault(change.before, []).append(change.key)
    return {
        change.key: gone[change.after].pop()
        for change in changes
        if change.after and gone.get(change.after)
    }


def compare_words(old: str, new: str) -> list[Piece]:
    """Compare ``new`` with ``old``, in stretches."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    pieces: list[Piece] = []
    for what, start, end, begins, ends in SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if what == "equal":
            pieces.append(("same", "".join(before[start:end])))
            continue
        if end > start:
            pieces.append(("gone", "".join(before[start:end])))
        if ends > begins:
            pieces.append(("new", "".join(after[begins:ends])))
    return pieces


def rebase(
    proposals: Sequence[Proposal], made_for: Guidance, present: Guidance
) -> tuple[Proposal, ...]:
    """Return ``proposals`` without the operations of those that name a rule which has changed since
    ``made_for``, or that would change nothing any more. A proposal's operations belong together:
    all or none are kept."""
    return tuple(_rebase(proposal, made_for, present) for proposal in proposals)


def _rebase(proposal: Proposal, made_for: Guidance, present: Guidance) -> Proposal:
    why = _why_late(proposal.operations, made_for, present) if proposal.operations else ""
    return (
        replace(proposal, operations=(), refusals=(*proposal.refusals, Refusal(proposal.text, why)))
        if why
        else proposal
    )


def _why_late(operations: Sequence[Operation], made_for: Guidance, present: Guidance) -> str:
    """Say why operations come too late; empty where they do not."""
    for key in (key for operation in operations for key in named(operation)):
        if present.rule(key) != made_for.rule(key):
            return f"too late: {key} was changed by an edit of the same round"
    return (
        "too late: an edit of the same round did it"
        if apply(present, operations) is present
        else ""
    )
