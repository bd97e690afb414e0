"""Rules as a list of decisions on columns of numbers, flags and texts: what decision tables, sheets
and engines judge by.

Code knows three answers, of which such engines have two. So a rule is written as what is surely so:
that it holds, or that it may, where a ticket does not tell. The first case that is so decides; one
without a verdict leaves the ticket to a person.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal, NamedTuple, TypeVar

from stageb.errors import InputError, shown
from stageb.guidance.exports.protocol import CodedMission, Exported, UnsaidError, list_undecided
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.conditions import (
    All,
    AtLeast,
    ColumnForm,
    Condition,
    Expression,
    Limit,
    Missing,
    Not,
    OneOf,
    Order,
    OutOfReach,
    Points,
    Same,
    Side,
    Some,
    Visitor,
)
from stageb.guidance.rules.conditions.numbers import list_fields
from stageb.guidance.rules.value_types import Computed, parse_number
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, Verdict
from stageb.untrusted.clean_text import fold_value

Kind = Literal["number", "flag", "text"]
Sign = Literal[">", "<", ">=", "<=", "=", "<>"]
Number = str | Computed  # of a column, or of two
# of a denial, and of a side
_SIGNS: dict[Side, tuple[Sign, Sign]] = {"above": ("<=", ">"), "below": (">=", "<")}
ALWAYS, NEVER = All(()), Some(())
T = TypeVar("T")


class DecisionCase(NamedTuple):
    """A verdict where an expression is the first that is true. A condition, or its denial, is
    untrue where a cell that it reads is empty."""

    when: Expression
    verdict: Verdict | None  # None: a person decides
    rule: str  # its key; empty where a person decides
    said: str  # the rule's text, or why a person decides


@dataclass(frozen=True, slots=True)
class Decisions:
    """One mission's cases, of which the last is always true, and its columns."""

    mission: CodedMission
    kinds: dict[str, Kind]  # of the columns
    values: dict[str, tuple[str, ...]]  # of texts, those that known tickets have or rules name
    cases: tuple[DecisionCase, ...]

    def has_count(self, name: str) -> bool:
        """Whether a column holds a number that is 0 where it is missing."""
        return bool(self.mission.is_counted) and self.kinds[name] == "number"

    def list_needed(self, *compared: Number | float) -> list[str]:
        """The columns without which a comparison of these is untrue."""
        named = [
            name for each in compared if not isinstance(each, float) for name in list_fields(each)
        ]
        return [name for name in dict.fromkeys(named) if not self.has_count(name)]


class DecisionWriter(Visitor[T]):
    """A language in which cases are written: comparisons are untrue where a cell is empty, or a
    number is divided by 0."""

    def __init__(self, decisions: Decisions) -> None:
        self.decisions = decisions

    @abstractmethod
    def write_comparison(self, left: Number, sign: Sign, right: Number | float) -> T:
        """Two numbers compare so, or two flags or texts are equal or not, as ``fold_value`` folds
        them."""

    @abstractmethod
    def write_one_of(self, field: str, values: tuple[str, ...], is_in: bool) -> T:
        """A text or a flag is one of these, which ``fold_value`` has folded, or none of them."""

    @abstractmethod
    def write_given(self, field: str, is_given: bool) -> T:
        """A cell holds something, or is empty."""

    @abstractmethod
    def write_sum(self, scored: Sequence[tuple[int, T]], least: int, is_reached: bool) -> T:
        """Those that are true have so many points together: as many as ``least``, or fewer."""

    @abstractmethod
    def join(self, parts: Sequence[T], is_all: bool) -> T:
        """All of the parts, or at least one."""

    def compare(self, condition: Condition, truth: bool) -> T:
        return condition.put(_Comparisons(self, truth))

    def count(self, parts: list[T], least: int) -> T:
        if least in (1, len(parts)):
            return self.join(parts, least == len(parts))
        return self.write_sum([(1, part) for part in parts], least, True)

    def score(self, card: Points, truth: bool) -> T:
        return self.write_sum(
            [(points, part.accept(self)) for points, part in card.scored], card.least, truth
        )


def list_divisors(*compared: Number | float) -> list[str]:
    """The columns that a comparison of these divides by."""
    return list(
        dict.fromkeys(
            each.second for each in compared if isinstance(each, Computed) and each.operator == "/"
        )
    )


class _Comparisons(ColumnForm[T]):
    """Conditions, or their denials, by the comparisons of a language."""

    def __init__(self, writer: DecisionWriter[T], truth: bool) -> None:
        self._writer, self._truth = writer, truth

    def one_of(self, field: str, values: tuple[str, ...]) -> T:
        if self._writer.decisions.kinds[field] != "number":
            return self._writer.write_one_of(field, values, self._truth)
        return self._writer.write_comparison(field, "=" if self._truth else "<>", float(values[0]))

    def missing(self, field: str) -> T:
        return self._writer.write_given(field, not self._truth)

    def limit(self, of: Number, side: Side, limit: str) -> T:
        return self._writer.write_comparison(of, _SIGNS[side][self._truth], float(limit))

    def order(self, of: Number, side: Side, other: Number) -> T:
        return self._writer.write_comparison(of, _SIGNS[side][self._truth], other)

    def same(self, one: str, other: str, is_same: bool) -> T:
        return self._writer.write_comparison(one, "=" if is_same == self._truth else "<>", other)


class DecisionExporter(ABC):
    """An exporter of decisions, in a form that holds one mission."""

    is_typed = True
    form: ClassVar[str]  # as people call it

    @abstractmethod
    def write_decisions(self, decisions: Decisions) -> str | bytes:
        """The file. Raises ``InputError``, which names a rule that the form cannot say."""

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The one mission. Raises ``InputError`` where there are several, or the form cannot say a
        rule."""
        if len(missions) > 1:
            names = ", ".join(repr(mission.name) for mission in missions)
            raise InputError(
                shown(f"{self.form} holds one mission: choose one by --mission: {names}", 400)
            )
        (mission,) = missions
        return Exported(self.write_decisions(decide(mission, self.form)), list_undecided(mission))


_DECIMAL = re.compile("-?[0-9]+([.][0-9]+)?")  # of which other spellings have the same value
EMPTY = "the row is empty"


def decide(mission: CodedMission, form: str) -> Decisions:
    """The rules of a mission as cases. Raises ``InputError``, which names a rule that cannot be
    said, and the ``form``."""
    rules = [
        _Rule(rule.key, rule.text, rule.code.verdict, rule.code.expression)
        for rule in mission.coded.each
        if not isinstance(rule.code, OutOfReach)
    ]
    named = [name for rule in rules for name in rule.expression.fields]
    kinds: dict[str, Kind] = {
        name: "number"
        if name in mission.numeric
        else "flag"
        if name in mission.booleans
        else "text"
        for name in dict.fromkeys([*named, *mission.columns_all])
    }
    held = _Held(mission, kinds)
    for rule in mission.coded.each:
        try:
            if isinstance(rule.code, OutOfReach):
                raise UnsaidError(rule.code.why)
            rule.code.expression.accept(held)
        except UnsaidError as error:
            said = f"{mission.name}: {form} cannot say {rule.key}, {rule.text!r}: {error}"
            raise InputError(
                shown(f"{said}; export --format python reads what rules do", 600)
            ) from None
    if mission.is_counted is None:
        raise InputError(
            shown(
                f"{mission.name}: {form} sees columns; some tickets are JSON, which counts, and "
                f"others prose"
            )
        )
    cases = _list_cases(mission, rules, held, _Possible(mission, kinds))
    return Decisions(mission, kinds, _list_values(mission, rules, kinds), tuple(cases))


def name_person(labels: Sequence[Verdict]) -> str:
    """The word in the place of a verdict where a person decides."""
    return "person" if "person" not in labels else "left to a person"


class _Rule(NamedTuple):
    key: str
    text: str
    verdict: Verdict
    expression: Expression


def _show_texts(name: str, mission: CodedMission) -> str:
    texts = [
        value
        for value in mission.list_values(name)
        if parse_number(value) is None or not value[-1].isdigit()
    ]
    return f"the column {name} holds {f'texts such as {texts[0]!r}' if texts else 'texts'}"


def _list_values(
    mission: CodedMission, rules: Sequence[_Rule], kinds: dict[str, Kind]
) -> dict[str, tuple[str, ...]]:
    found = {
        name: dict.fromkeys(mission.list_values(name))
        for name, kind in kinds.items()
        if kind == "text"
    }
    for each in (condition for rule in rules for condition in rule.expression.conditions()):
        known = {name: {*map(fold_value, found[name])} for name in each.fields if name in found}
        for name, value in each.named:
            if name in found and fold_value(value) not in known[name]:
                found[name][value] = None
    return {name: tuple(values) for name, values in found.items()}


def _list_cases(
    mission: CodedMission, rules: Sequence[_Rule], held: _Held, possible: _Held
) -> Iterator[DecisionCase]:
    """All cases, the one for tickets that no rule speaks of last."""
    labels = mission.coded.labels
    if mission.columns_all and mission.decides_empty:
        yield DecisionCase(every(Missing(name) for name in mission.columns_all), None, "", EMPTY)
    if not has_labels(labels):
        rules = sorted(rules, key=lambda rule: rule.verdict == "fail")
    # rules that may hold where a ticket does not tell
    doubted: list[tuple[Verdict, Expression, str]] = []
    for is_compared, verdict, group in _group(rules, has_labels(labels)):
        holding = [
            (rule, _beat(rule, group, held) if is_compared else rule.expression.accept(held))
            for rule in group
        ]
        if not is_compared:
            yield from _doubt(either(holds for _, holds in holding), verdict, doubted)
        for rule, holds in holding:
            if is_compared:
                yield from _doubt(holds, rule.verdict, doubted)
            if holds != NEVER:
                yield DecisionCase(holds, rule.verdict, rule.key, rule.text)
            if not rule.expression.as_points:
                doubted.append((rule.verdict, rule.expression.accept(possible), rule.key))
    yield from _doubt(ALWAYS, labels[0], doubted)
    yield DecisionCase(ALWAYS, labels[0], HEADLINE_KEY, mission.coded.grammar.silent)


def _doubt(
    holds: Expression, verdict: Verdict, doubted: Sequence[tuple[Verdict, Expression, str]]
) -> Iterator[DecisionCase]:
    """The case for a person: rules before it of another verdict may hold."""
    others = [(may, key) for label, may, key in doubted if label != verdict and may != NEVER]
    if others and holds != NEVER:
        keys = ", ".join(dict.fromkeys(key for _, key in others))
        when = every([either(may for may, _ in others), holds])
        yield DecisionCase(when, None, "", f"the row does not tell whether {keys}")


def _beat(rule: _Rule, group: Sequence[_Rule], held: _Held) -> Expression:
    """Whether a rule's points are reached, and are as far above their least as those of all others,
    of which the first stands first."""
    card, beaten = rule.expression.as_points, list[Expression]()
    for other in (each.expression.as_points for each in group if each is not rule):
        assert card and other  # ``_group`` saw to it
        lost = ((-points, part) for points, part in held.add(other))
        beaten.append(Points(card.least - other.least, (*held.add(card), *lost)))
    return every([rule.expression.accept(held), *beaten])


def _group(
    rules: Sequence[_Rule], is_by_order: bool
) -> Iterator[tuple[bool, Verdict, list[_Rule]]]:
    """Rules side by side whose points are compared, or else that have one verdict."""

    def tell(rule: _Rule) -> tuple[bool, Verdict]:
        is_compared = is_by_order and rule.expression.as_points is not None
        return is_compared, "" if is_compared else rule.verdict

    for (is_compared, verdict), group in groupby(rules, tell):
        yield is_compared, verdict, [*group]


class _Held(Visitor[Expression]):
    """Expressions as plainly as columns say that code finds them true, or false. Raises
    ``UnsaidError``."""

    def __init__(self, mission: CodedMission, kinds: dict[str, Kind]) -> None:
        self._mission, self._kinds = mission, kinds

    def compare(self, condition: Condition, truth: bool) -> Expression:
        return condition.put(_Plain(self._mission, self._kinds, truth))

    def count(self, parts: list[Expression], least: int) -> Expression:
        if least == 1:
            return either(parts)
        return every(parts) if least == len(parts) else AtLeast(least, tuple(parts))

    def score(self, card: Points, truth: bool) -> Expression:
        reached = Points(card.least, self.add(card))
        return reached if truth else Not(reached)

    def add(self, card: Points) -> tuple[tuple[int, Expression], ...]:
        """The parts with points, as code finds them true."""
        return tuple((points, part.accept(self)) for points, part in card.scored)


class _Possible(_Held):
    """That code finds an expression so, or that the ticket does not tell; points are always
    told."""

    def compare(self, condition: Condition, truth: bool) -> Expression:
        counts = [
            name
            for name, kind in self._kinds.items()
            if kind == "number" and self._mission.is_counted
        ]
        lacking = [Missing(name) for name in condition.needed if name not in counts]
        by_none = [OneOf(name, ("0.0",)) for name in condition.divisors]
        return either([*lacking, *by_none, super().compare(condition, truth)])

    def score(self, card: Points, truth: bool) -> Expression:
        return card.accept(_Held(self._mission, self._kinds), truth)


class _Plain(ColumnForm[Expression]):
    """Conditions, or their denials, on columns of these kinds."""

    def __init__(self, mission: CodedMission, kinds: dict[str, Kind], truth: bool) -> None:
        self._mission, self._kinds, self._truth = mission, kinds, truth

    def one_of(self, field: str, values: tuple[str, ...]) -> Expression:
        numbers = [repr(number) for value in values if (number := parse_number(value)) is not None]
        if self._kinds[field] == "number":
            parts = [self._say(OneOf(field, (number,))) for number in dict.fromkeys(numbers)]
            if not parts:
                return NEVER if self._truth else self.missing(field)
            return either(parts) if self._truth else every(parts)
        if odd := next(filter(_DECIMAL.fullmatch, values), ""):
            raise UnsaidError(f"{odd} is a number, and {_show_texts(field, self._mission)}")
        folded = dict.fromkeys(map(fold_value, values))
        is_text = self._kinds[field] == "text"
        return self._say(
            OneOf(field, tuple(value for value in folded if is_text or value in ("true", "false")))
        )

    def missing(self, field: str) -> Expression:
        if self._mission.is_counted:
            return NEVER if self._truth else ALWAYS
        return self._say(Missing(field))

    def limit(self, of: Number, side: Side, limit: str) -> Expression:
        self._need_numbers(of)
        number = parse_number(limit)
        if number is None or number in (float("inf"), float("-inf")):
            raise UnsaidError(f"its limit {limit} is no number")
        return self._say(Limit(of, side, repr(number)))

    def order(self, of: Number, side: Side, other: Number) -> Expression:
        self._need_numbers(of, other)
        return self._say(Order(of, side, other))

    def same(self, one: str, other: str, is_same: bool) -> Expression:
        if self._kinds[one] != self._kinds[other]:
            raise UnsaidError(
                f"it compares a column of numbers with one of texts, {one} and {other}"
            )
        for name in (one, other) if self._kinds[one] != "number" else ():
            if any(map(_DECIMAL.fullmatch, self._mission.list_values(name))):
                raise UnsaidError(
                    f"the column {name} holds numbers and texts, which are equal in many spellings"
                )
        return Same(one, other, self._truth == is_same)

    def beyond(self, what: str) -> Expression:
        raise UnsaidError(f"it reads {what}, and this form sees columns alone")

    def _say(self, condition: Condition) -> Expression:
        return condition if self._truth else Not(condition)

    def _need_numbers(self, *compared: Number) -> None:
        for name in (name for each in compared for name in list_fields(each)):
            if self._kinds[name] != "number":
                raise UnsaidError(f"it compares numbers, and {_show_texts(name, self._mission)}")


def every(parts: Iterable[Expression]) -> Expression:
    """All of the parts, as plainly as can be."""
    flat = tuple(dict.fromkeys(inner for part in parts for inner in part.conjuncts))
    return NEVER if NEVER in flat else flat[0] if len(flat) == 1 else All(flat)


def either(parts: Iterable[Expression]) -> Expression:
    """At least one of the parts, as plainly as can be."""
    flat = tuple(dict.fromkeys(inner for part in parts for inner in part.disjuncts))
    return ALWAYS if ALWAYS in flat else flat[0] if len(flat) == 1 else Some(flat)
