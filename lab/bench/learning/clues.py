"""Conditions and single tickets: whether some hold for a ticket, and what a written one says.

The loop counts conditions over many tickets at once (``rules/conditions/``) and never needs to ask
about one; a rule list does, and so does what makes rules of the evidence in a prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from stageb.guidance.rules.conditions import (
    Expression,
    Limit,
    Mentions,
    OneOf,
    Order,
    Same,
    compile_expression,
)
from stageb.guidance.rules.value_types import Reading

_FORMS: Sequence[tuple[str, Callable[..., Expression]]] = (  # the first that fits
    ("a summary mentions (.+?)", lambda word: Mentions((word,))),
    ("(.+?) is (above|below) (.+?)", Limit),
    ("(.+?) equals (.+?)", Same),
    ("(.+?) differs from (.+?)", lambda one, other: Same(one, other, False)),
    ("(.+?) is (.+?) or (.+?)", lambda name, *values: OneOf(name, values)),
    ("(.+?) is (.+?)", lambda name, value: OneOf(name, (value,))),
)


def meets(read: Reading, conditions: Sequence[Expression]) -> bool:
    """Whether all conditions hold for a ticket; none holds that speaks of a pair which the ticket
    has not."""
    return all(compile_expression(condition)(read) for condition in conditions)


def says(text: str, read: Reading) -> bool:
    """Whether a clue, as an English prompt shows it, holds for a ticket."""
    return meets(read, [read_condition(part, read) for part in text.split(" and ")])


def read_condition(text: str, read: Reading) -> Expression:
    """A condition as it is written; numbers and names of other pairs are told apart by a ticket
    alone. What fits no form mentions itself, and holds for hardly any ticket."""
    for form, make in _FORMS:
        if found := re.fullmatch(form, text):
            made = make(*found.groups())
            limit = made.as_limit
            return (
                Order(limit.of, limit.side, limit.limit)
                if limit and limit.limit in read.pairs
                else made
            )
    return Mentions((text,))
