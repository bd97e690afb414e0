"""Conditions and single tickets: whether one holds for a ticket, and what a written one says.

The loop counts conditions over many tickets at once (``evidence_forms.py``) and never needs to ask about one; a rule list
does, and so does what makes rules of the evidence in a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from lab.bench.learning.method import ENGLISH
from stageb.guidance.rules.evidence_forms import Condition, Kind
from stageb.guidance.rules.value_types import Reading, parse_number

_KINDS: Sequence[Kind] = ("mentions", "above", "below", "equals", "differs", "among", "is")  # the first that fits
_COMPARED: dict[Kind, Kind] = {"above": "over", "below": "under"}  # written alike: the other side is a name, not a number


def _pattern(text: str) -> re.Pattern[str]:
    """Compile the pattern of a condition that was written by a format."""
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+?)", re.escape(text)))


_PATTERNS = {kind: _pattern(ENGLISH.conditions[kind]) for kind in _KINDS}


def meets(read: Reading, conditions: Sequence[Condition]) -> bool:
    """Whether all conditions hold for a ticket."""
    return all(holds(read, condition) for condition in conditions)


def holds(read: Reading, condition: Condition) -> bool:
    """Whether a condition holds for a ticket; none holds that speaks of a pair which the ticket has not."""
    if condition.kind == "mentions":
        return condition.value in read.words
    value = read.pairs.get(condition.name)
    if value is None:
        return False
    if condition.kind in ("is", "among"):
        return value == condition.value or (condition.kind == "among" and value == condition.other)
    other = condition.value if condition.kind in ("above", "below") else read.pairs.get(condition.value)
    if other is None:
        return False
    if condition.kind in ("equals", "differs"):
        return (value == other) == (condition.kind == "equals")
    left, right = parse_number(value), parse_number(other)
    if left is None or right is None:
        return False
    return left > right if condition.kind in ("above", "over") else left < right


def says(text: str, read: Reading) -> bool:
    """Whether a clue, as a prompt shows it, holds for a ticket."""
    return meets(read, [_compared(condition_of(part), read) for part in text.split(ENGLISH.both)])


def condition_of(text: str) -> Condition:
    """A condition as it is written; numbers and names of other pairs are told apart by a ticket alone. What fits no form
    mentions itself, and holds for hardly any ticket."""
    for kind, pattern in _PATTERNS.items():
        if found := pattern.fullmatch(text):
            parts = {"name": "", "other": "", **found.groupdict()}
            return Condition(kind, parts["name"], parts["value"], parts["other"])
    return Condition("mentions", "", text)


def _compared(condition: Condition, read: Reading) -> Condition:
    if condition.kind in _COMPARED and condition.value in read.pairs:
        return replace(condition, kind=_COMPARED[condition.kind])
    return condition
