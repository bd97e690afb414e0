"""What a rule's condition says of a ticket, as a small tree, which ``predicates.py`` makes a function of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeGuard

from stageb.guidance.rules import predicates
from stageb.guidance.rules.predicates import Predicate
from stageb.guidance.rules.value_types import Computed

Relation = Literal["is", "missing", "above", "below", "mentions", "equals", "differs", "over", "under"]


@dataclass(frozen=True, slots=True)
class Atom:
    """One comparison."""

    relation: Relation
    name: str  # of the field; empty for ``mentions`` where any text of the ticket counts
    values: tuple[
        str, ...
    ]  # one of which it has; the limit; words of which one is mentioned; the field that it is compared with
    word_list: str = ""  # the name of the list that has these words; empty where they are named themselves

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it names."""
        both = self.relation in ("equals", "differs", "over", "under")
        return (*filter(None, (self.name,)), *(self.values if both else ()))


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """A comparison of a number that two fields give."""

    relation: Literal["above", "below", "over", "under"]
    left: Computed
    right: str | Computed  # the limit; for ``over`` and ``under`` what it is compared with

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it names."""
        sides = (self.left, self.right) if isinstance(self.right, Computed) else (self.left,)
        return tuple(dict.fromkeys(field for side in sides for field in (side.first, side.second)))


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


@dataclass(frozen=True, slots=True)
class AtLeast:
    """So many of the parts hold, or more."""

    count: int  # from 1 to the number of parts
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Points:
    """The parts that a ticket is known to meet have so many points together, or more."""

    least: int
    parts: tuple[tuple[int, Expression], ...]


Expression: TypeAlias = Atom | Arithmetic | All | Some | AtLeast | Points | Not


def is_word(expression: Expression) -> TypeGuard[Atom]:
    """Whether it holds where a ticket mentions one word."""
    return isinstance(expression, Atom) and expression.relation == "mentions" and len(expression.values) == 1


def join_words(parts: Sequence[tuple[int, Expression]]) -> tuple[tuple[int, Expression], ...]:
    """Words that have the same points side by side, where the first of them stands; those of each word list as they are."""
    firsts: dict[int, int] = {}
    places = [
        firsts.setdefault(points, place) if is_word(part) and not part.word_list else place
        for place, (points, part) in enumerate(parts)
    ]
    return tuple(part for _, part in sorted(zip(places, parts, strict=True), key=lambda each: each[0]))


def join_values(parts: Sequence[Expression]) -> tuple[Expression, ...]:
    """``A is x or A is y`` as ``A is x or y``, and words likewise."""
    places: dict[tuple[Relation, str, str], int] = {}
    joined: list[Expression] = []
    for part in parts:
        if isinstance(part, Atom) and part.relation in ("is", "mentions"):
            place = places.setdefault((part.relation, part.name, part.word_list), len(joined))
            if place < len(joined):
                before = joined[place]
                assert isinstance(before, Atom)
                joined[place] = replace(before, values=tuple(dict.fromkeys((*before.values, *part.values))))
                continue
        joined.append(part)
    return tuple(joined)


def negate(expression: Expression) -> Expression:
    """What holds where ``expression`` does not."""
    return expression.part if isinstance(expression, Not) else Not(expression)


def find_exact_count(expression: Expression) -> AtLeast | None:
    """The count of which so many hold, and no more; None where something else is said."""
    parts = expression.parts if isinstance(expression, All) else ()
    if len(parts) != 2 or not isinstance(least := parts[0], AtLeast):
        return None
    return least if parts[1] == Not(replace(least, count=least.count + 1)) else None


def find_limits(expression: Expression) -> tuple[str, str, str] | None:
    """The field that is above one limit and below another, and these; None where something else is said."""
    parts = expression.parts if isinstance(expression, All) else ()
    sides = [part for part in parts if isinstance(part, Atom)]
    if [side.relation for side in sides] != ["above", "below"] or len(parts) > 2 or sides[0].name != sides[1].name:
        return None
    return sides[0].name, sides[0].values[0], sides[1].values[0]


def compile_expression(expression: Expression) -> Predicate:
    """Whether it is true of a ticket, as a function; None where the ticket does not tell."""
    if isinstance(expression, Not):
        return predicates.deny(compile_expression(expression.part))
    if isinstance(expression, Atom):
        return _compile_atom(expression)
    if isinstance(expression, Arithmetic):
        return MAKERS[expression.relation](expression.left, expression.right)
    if isinstance(expression, Points):
        return predicates.PointsReached(
            expression.least, *((points, compile_expression(part)) for points, part in expression.parts)
        )
    parts = map(compile_expression, expression.parts)
    if isinstance(expression, AtLeast):
        return predicates.at_least(expression.count, *parts)
    return predicates.every(*parts) if isinstance(expression, All) else predicates.some(*parts)


def atoms(expression: Expression) -> Iterator[Atom | Arithmetic]:
    """All comparisons, from left to right."""
    if isinstance(expression, Atom | Arithmetic):
        yield expression
    elif isinstance(expression, Not):
        yield from atoms(expression.part)
    elif isinstance(expression, Points):
        for _, part in expression.parts:
            yield from atoms(part)
    else:
        for part in expression.parts:
            yield from atoms(part)


MAKERS: Mapping[Relation, Callable[..., Predicate]] = {
    "is": predicates.is_one_of,
    "missing": predicates.is_missing,
    "above": predicates.is_above,
    "below": predicates.is_below,
    "over": predicates.is_over,
    "under": predicates.is_under,
    "equals": predicates.equals,
    "mentions": predicates.mentions,
}
"""What makes a function of a comparison with the field's name and the values."""


def simplify(atom: Atom) -> Expression:
    """The same by the relations that ``MAKERS`` has."""
    return Not(Atom("equals", atom.name, atom.values)) if atom.relation == "differs" else atom


def _compile_atom(atom: Atom) -> Predicate:
    if atom.relation == "differs":
        return compile_expression(simplify(atom))
    return MAKERS[atom.relation](atom.name, *atom.values)
