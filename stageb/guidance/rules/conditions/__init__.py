"""Conditions: what rules may say of a ticket, a class for each kind, and what joins them.

A new kind is a file here, and a place in ``KINDS``, if it is read, and in ``FINDERS``, if it is
learnt.
"""

from stageb.guidance.rules.conditions.base import (
    ColumnForm,
    Condition,
    Expression,
    OutOfReach,
    Side,
    Visitor,
)
from stageb.guidance.rules.conditions.logic import (
    All,
    AtLeast,
    Not,
    Points,
    Some,
    compile_expression,
    conjoin,
    negate,
)
from stageb.guidance.rules.conditions.numbers import Limit, find_limits
from stageb.guidance.rules.conditions.pairs import Order, Same, find_compared, find_computed
from stageb.guidance.rules.conditions.values import (
    Missing,
    OneOf,
    find_either,
    find_missing,
    find_values,
)
from stageb.guidance.rules.conditions.words import Mentions, find_mentions, find_phrased

KINDS: tuple[type[Condition], ...] = (Mentions, Order, OneOf, Same, Missing)
"""The kinds that are read, in the order in which they are tried."""

FINDERS = (
    *(find_mentions, find_values, find_limits, find_either, find_compared),
    *(find_missing, find_phrased, find_computed),
)
"""Finders of conditions that tickets suggest: of conditions that hold for the same tickets, the
first is learnt."""

__all__ = [
    "FINDERS", "KINDS", "All", "AtLeast", "ColumnForm", "Condition", "Expression", "Limit",
    "Mentions", "Missing", "Not", "OneOf", "Order", "OutOfReach", "Points", "Same", "Side", "Some",
    "Visitor", "compile_expression", "conjoin", "negate",
]  # fmt: skip
