"""Two guidances of a mission, as a person reads what differs. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator

from stageb.guidance.changes import compare_rules, compare_words, find_moves
from stageb.guidance.types import Guidance

_MARKS = {"same": "{}", "gone": "[-{}-]", "new": "{{+{}+}}"}


def describe_changes(old: Guidance | None, new: Guidance | None) -> Iterator[str]:
    """+ a rule added, - removed, ~ changed with the words marked, > one that got another number; in the order of keys."""
    changes = compare_rules(old, new)
    moves = find_moves(changes)
    marks = {rule.key: " (provisional)" * rule.is_provisional for rule in new.rules} if new else {}
    for change in changes:
        gone = bool(change.before) and change.key not in moves.values()
        new_here = bool(change.after) and change.key not in moves
        if gone and new_here:
            yield f"  ~ {change.key}{marks[change.key]}. {mark_words(change.before, change.after)}"
        elif gone:
            yield f"  - {change.key}. {change.before}"
        elif new_here:
            yield f"  + {change.key}{marks[change.key]}. {change.after}"
        if change.key in moves:
            yield f"  > {moves[change.key]} -> {change.key}. {change.after}"


def mark_words(old: str, new: str) -> str:
    """``new`` with what it has in place of ``old``'s words marked, as git's word diff does: ``[-gone-]{+new+}``."""
    return "".join(_MARKS[what].format(text) for what, text in compare_words(old, new))
