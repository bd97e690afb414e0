"""What a rule's condition says of a ticket, as a small tree that is true, false or unknown.

Unknown is what a ticket does not tell: it has no such field, or no number where one is compared. It spreads as in Kleene's
three-valued logic ("Introduction to metamathematics", 1952, section 64): a whole is unknown only if the part could turn it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from stageb.guidance.rules.reading import Reading, parse_number

Relation = Literal["is", "above", "below", "mentions", "equals", "differs", "over", "under"]


@dataclass(frozen=True, slots=True)
class Atom:
    """One comparison."""

    relation: Relation
    name: str  # of the field; empty for ``mentions``
    values: tuple[
        str, ...
    ]  # one of which it has; the limit; words of which one is mentioned; the field that it is compared with


@dataclass(frozen=True, slots=True)
class All:
    """All of the parts hold."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """At least one of the parts holds."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold."""

    part: Expression


Expression: TypeAlias = Atom | All | Some | Not


def negate(expression: Expression) -> Expression:
    """What holds where ``expression`` does not."""
    return expression.part if isinstance(expression, Not) else Not(expression)


def holds(expression: Expression, reading: Reading) -> bool | None:
    """Whether it is true of a ticket; None where the ticket does not tell."""
    if isinstance(expression, Not):
        part = holds(expression.part, reading)
        return None if part is None else not part
    if isinstance(expression, Atom):
        return _compare(expression, reading)
    parts = [holds(part, reading) for part in expression.parts]
    decisive = isinstance(expression, Some)
    return decisive if decisive in parts else None if None in parts else not decisive


def atoms(expression: Expression) -> Iterator[Atom]:
    """All comparisons, from left to right."""
    if isinstance(expression, Atom):
        yield expression
    elif isinstance(expression, Not):
        yield from atoms(expression.part)
    else:
        for part in expression.parts:
            yield from atoms(part)


def _compare(atom: Atom, reading: Reading) -> bool | None:
    if atom.relation == "mentions":
        beside = {word for pair in reading.pairs.items() for text in pair for word in text.casefold().split()}
        return any(word in reading.words or word in beside for word in atom.values)
    mine = reading.pairs.get(atom.name)
    if mine is None:
        return None
    if atom.relation == "is":
        return mine.casefold() in {value.casefold() for value in atom.values}
    (other,) = atom.values
    if atom.relation in ("equals", "differs", "over", "under"):
        if other not in reading.pairs:
            return None
        other = reading.pairs[other]
    if atom.relation in ("equals", "differs"):
        return (mine == other) == (atom.relation == "equals")
    left, right = parse_number(mine), parse_number(other)
    if left is None or right is None:
        return None
    return left > right if atom.relation in ("above", "over") else left < right
