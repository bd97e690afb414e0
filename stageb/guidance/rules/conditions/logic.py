"""Denials, conjunctions, counts and points of conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar

from stageb.guidance.rules import predicates
from stageb.guidance.rules.conditions.base import Call, Expression, T, Visitor
from stageb.guidance.rules.predicates import Predicate

if TYPE_CHECKING:
    from stageb.guidance.rules.conditions.numbers import Limit
    from stageb.guidance.rules.wordings import Grammar


@dataclass(frozen=True, slots=True)
class Not(Expression):
    """A denial: the part does not hold."""

    part: Expression
    is_denied: ClassVar[bool] = True

    @property
    def parts(self) -> tuple[Expression, ...]:
        return (self.part,)

    @property
    def affirmed(self) -> Expression:
        return self.part

    @property
    def present(self) -> str:
        return self.part.absent

    @property
    def call(self) -> Call:
        return predicates.deny, (self.part,)

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        return self.part.write(grammar, not is_denied)

    def accept(self, visitor: Visitor[T], truth: bool = True) -> T:
        return visitor.deny(self.part, truth)

    def to_plain(self) -> Mapping[str, Any]:
        return {"not": self.part.to_plain()}

    def hold(self, find: Callable[[Expression], int]) -> int:
        return ~find(self.part)


class _Joined(Expression):
    """At least ``least`` of the parts hold."""

    __slots__ = ()

    if TYPE_CHECKING:  # fields and properties of those below

        @property
        def least(self) -> int: ...

    def accept(self, visitor: Visitor[T], truth: bool = True) -> T:
        least = self.least if truth else len(self.parts) - self.least + 1
        return visitor.count([part.accept(visitor, truth) for part in self.parts], least)

    def _write_parts(self, grammar: Grammar, mark: str) -> str:
        return mark.join(part.write(grammar) for part in self.parts)


@dataclass(frozen=True, slots=True)
class All(_Joined):
    """All of the parts hold."""

    parts: tuple[Expression, ...]

    @property
    def conjuncts(self) -> tuple[Expression, ...]:
        return self.parts

    @property
    def least(self) -> int:
        return len(self.parts)

    @property
    def call(self) -> Call:
        return predicates.every, self.parts

    @property
    def size(self) -> int:
        return 1 if self.is_between else sum(part.size for part in self.parts)

    @property
    def is_between(self) -> bool:
        return self._limits() is not None

    @property
    def is_given(self) -> bool:
        return bool(self.parts[0].present)

    def hold(self, find: Callable[[Expression], int]) -> int:
        return reduce(and_, map(find, self.parts))

    @property
    def told(self) -> Set[str]:
        return {part.present for part in self.parts}

    @property
    def key(self) -> tuple[str, str, str, str]:
        limits = self._limits()
        return (
            ("within", str(limits[0].of), limits[0].limit, limits[1].limit)
            if limits
            else ("", "", "", "")
        )

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        if exact := self.find_exact_count():
            return grammar.exactly.format(
                count=exact.count, parts=exact._write_parts(grammar, grammar.part)
            )
        return grammar.and_.join(self._write_conjuncts(grammar))

    def to_plain(self) -> Mapping[str, Any]:
        return {"all": [part.to_plain() for part in self.parts]}

    def find_exact_count(self) -> AtLeast | None:
        """Find the count of which exactly so many hold; None where it says something else."""
        if len(self.parts) != 2 or not isinstance(least := self.parts[0], AtLeast):
            return None
        return least if self.parts[1] == Not(replace(least, count=least.count + 1)) else None

    def _write_conjuncts(self, grammar: Grammar) -> Iterator[str]:
        """Write each part. Limits on one field that stand side by side, from below upwards, are
        written as one, and so is that a field is present together with what is said about it."""
        left = [*self.parts]
        while left:
            name = _find_given(left, grammar)
            said = left[1:3] if name else left[:2]
            limits = _find_between(said)
            text = limits[0].write_between(limits[1], grammar) if limits else said[0].write(grammar)
            yield f"{name}{grammar.given}{text.removeprefix(name)}" if name else text
            del left[: bool(name) + (2 if limits else 1)]

    def _limits(self) -> tuple[Limit, Limit] | None:
        return _find_between(self.parts)


def _find_between(parts: Sequence[Expression]) -> tuple[Limit, Limit] | None:
    """Find the limit that a field is above, and the one that it is below; None where the parts say
    something else."""
    low, high = (part.as_limit for part in parts) if len(parts) == 2 else (None, None)
    return (low, high) if low and high and low.is_below(high) else None


def _find_given(parts: Sequence[Expression], grammar: Grammar) -> str:
    """Find the field that the first part says is present, if the text of the next part begins with
    it."""
    name = parts[0].present if len(parts) > 1 else ""
    if not name or parts[1].fields != (name,) or parts[1].affirmed.absent:
        return ""
    return name if parts[1].write(grammar).startswith(name) else ""


@dataclass(frozen=True, slots=True)
class Some(_Joined):
    """At least one of the parts holds."""

    parts: tuple[Expression, ...]
    may_have_points: ClassVar[bool] = False

    @property
    def disjuncts(self) -> tuple[Expression, ...]:
        return self.parts

    @property
    def least(self) -> int:
        return 1

    @property
    def told(self) -> Set[str]:
        return {part.absent for part in self.parts}

    @property
    def call(self) -> Call:
        return predicates.some, self.parts

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        return self._write_parts(grammar, grammar.or_)

    def to_plain(self) -> Mapping[str, Any]:
        return {"any": [part.to_plain() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class AtLeast(_Joined):
    """At least ``count`` of the parts hold."""

    count: int  # from 1 to the number of parts
    parts: tuple[Expression, ...]

    @property
    def least(self) -> int:
        return self.count

    @property
    def call(self) -> Call:
        return predicates.at_least, (self.count, *self.parts)

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        form = next(form for form, denied in grammar.counts.items() if denied == is_denied)
        return form.format(
            count=self.count - is_denied, parts=self._write_parts(grammar, grammar.part)
        )

    def to_plain(self) -> Mapping[str, Any]:
        return {"at_least": self.count, "of": [part.to_plain() for part in self.parts]}

    @property
    def size(self) -> int:
        return len(self.parts)  # each item is one, also where it says that its field is given

    def hold(self, find: Callable[[Expression], int]) -> int:
        return count_held([*map(find, self.parts)])[self.count - 1]


@dataclass(frozen=True, slots=True)
class Points(Expression):
    """The parts that a ticket is known to meet have at least so many points together: the whole
    condition of a rule."""

    least: int
    scored: tuple[tuple[int, Expression], ...]
    may_have_points: ClassVar[bool] = False

    @property
    def as_points(self) -> Points | None:
        return self

    @property
    def needed(self) -> tuple[str, ...]:
        return ()

    @property
    def start(self) -> int:
        """The points with which rules say that a ticket begins, so that none asks for fewer than
        0."""
        return max(0, -self.least)

    @property
    def limit(self) -> int:
        """The points that rules ask for, those included with which a ticket begins."""
        return self.least + self.start

    @property
    def parts(self) -> tuple[Expression, ...]:
        return tuple(part for _, part in self.scored)

    @property
    def call(self) -> Call:
        return predicates.PointsReached, (self.least, *self.scored)

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        """Write the points of each part; they are never denied: a rule says "unless"."""
        opening = grammar.points.format(least=self.limit, s="s" * (self.limit != 1))
        return opening + grammar.part.join(self.write_scored(grammar))

    def write_scored(self, grammar: Grammar) -> Iterator[str]:
        """Write the points with which a ticket begins, and each part with its points; neighbouring
        words with equal points are listed, or named by their word list."""
        if self.start:
            yield grammar.start.format(points=self.start)

        def find_kind(scored: tuple[int, Expression]) -> tuple[int, str, str]:
            points, part = scored
            return (
                (points, part.name_subject(grammar), part.word_list)
                if part.word
                else (points, "", "")
            )

        for (points, name, word_list), run in groupby(self.scored, key=find_kind):
            parts = [part for _, part in run]
            words = [part.word for part in parts if part.word]
            if word_list:
                yield f"{points}{grammar.each_of_list.format(words=word_list, name=name)}"
            elif len(words) > 1:
                listed = grammar.comma.join(words)
                yield f"{points}{grammar.each_word.format(words=listed, name=name)}"
            else:
                yield from (f"{points}{grammar.scored}{part.write(grammar)}" for part in parts)

    def accept(self, visitor: Visitor[T], truth: bool = True) -> T:
        return visitor.score(self, truth)

    def to_plain(self) -> Mapping[str, Any]:
        return {
            "points_at_least": self.least,
            "of": [{"points": points, "if": part.to_plain()} for points, part in self.scored],
        }


def negate(expression: Expression) -> Expression:
    """Deny an expression."""
    return expression.part if isinstance(expression, Not) else Not(expression)


def conjoin(parts: Sequence[Expression]) -> Expression:
    """Join all parts; a part that one condition of a text joined is taken apart, and a single part
    is returned itself."""
    if len(parts) == 1:
        return parts[0]
    return All(
        tuple(
            each
            for part in parts
            for each in (part.conjuncts if part.is_between or part.is_given else (part,))
        )
    )


def compile_expression(expression: Expression) -> Predicate:
    """Compile it to a function of a ticket: whether it is true, or None where the ticket does not
    say."""

    def compile_argument(argument: Any) -> Any:
        if isinstance(argument, Expression):
            return compile_expression(argument)
        return tuple(map(compile_argument, argument)) if type(argument) is tuple else argument

    make, given = expression.call
    return make(*map(compile_argument, given))


def join_words(parts: Sequence[tuple[int, Expression]]) -> tuple[tuple[int, Expression], ...]:
    """Put words that have the same points side by side, where the first of them stands; those of
    each word list stay as they are."""
    firsts: dict[int, int] = {}
    places = [
        firsts.setdefault(points, place) if part.word and not part.word_list else place
        for place, (points, part) in enumerate(parts)
    ]
    return tuple(
        part for _, part in sorted(zip(places, parts, strict=True), key=lambda each: each[0])
    )


def join_values(parts: Sequence[Expression]) -> tuple[Expression, ...]:
    """Join ``A is x or A is y`` into ``A is x or y``, and words likewise."""
    joined: list[Expression] = []
    for part in parts:
        for place, before in enumerate(joined):
            if both := before.join(part):
                joined[place] = both
                break
        else:
            joined.append(part)
    return tuple(joined)


def count_held(masks: Sequence[int]) -> list[int]:
    """Return the tickets that are in at least one of the masks, in at least two, and so on."""
    levels: list[int] = []
    for mask in masks:
        levels = [*levels, 0]
        levels = [
            level | (mask if place == 0 else levels[place - 1] & mask)
            for place, level in enumerate(levels)
        ]
    return levels
