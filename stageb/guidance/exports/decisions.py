"""Rules as a list of decisions on columns of numbers, flags and texts: what decision tables, sheets and engines judge by.

Code knows three answers, of which such engines have two. So a rule is written as what is surely so: that it holds, or that
it may, where a ticket does not tell. The first case that is so decides; one without a verdict leaves the ticket to a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias

from stageb.errors import InputError, shown
from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.protocol import Exported, list_undecided
from stageb.guidance.rules.conditions import Condition, Expression, Points, Side, Teller
from stageb.guidance.rules.conditions.numbers import list_fields
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.value_types import Computed, Reading, fold_value, parse_number
from stageb.guidance.words.costs import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, Verdict

Kind = Literal["number", "flag", "text"]
Sign = Literal[">", "<", ">=", "<=", "=", "<>"]
_SIGNS: dict[Side, tuple[Sign, Sign]] = {"above": (">", "<="), "below": ("<", ">=")}  # of a side, and of what is not there


@dataclass(frozen=True, slots=True)
class Compare:
    """Two numbers compare so; untrue where one is missing."""

    left: str | Computed  # a column, or what two give
    sign: Sign
    right: float | str | Computed


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text or a flag is one of these, or is none of them; untrue where it is missing."""

    field: str
    values: tuple[str, ...]  # as ``fold_value`` leaves them
    is_in: bool


@dataclass(frozen=True, slots=True)
class Same:
    """Two texts or flags are the same, or are not; untrue where one is missing."""

    one: str
    other: str
    is_same: bool


@dataclass(frozen=True, slots=True)
class Given:
    """A cell holds something, or is empty."""

    field: str
    is_given: bool


@dataclass(frozen=True, slots=True)
class Every:
    """All of these."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of these."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class PointSum:
    """Those that are so have so many points together: as many as ``least``, or fewer."""

    parts: tuple[tuple[int, Formula], ...]
    is_reached: bool
    least: int


Formula: TypeAlias = Compare | OneOf | Same | Given | Every | Either | PointSum
ALWAYS, NEVER = Every(()), Either(())


class DecisionCase(NamedTuple):
    """What is decided where a formula is the first that is true."""

    when: Formula
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

    @property
    def is_counted(self) -> bool:
        """Whether a number that is missing is 0."""
        return bool(self.mission.is_counted)


_DECIMAL = re.compile("-?[0-9]+([.][0-9]+)?")  # of which other spellings have the same value
BY_NO_RULE = "no rule speaks of it"
EMPTY = "the row is empty"


def export_only(missions: Sequence[CodedMission], form: str, write: Callable[[Decisions], str | bytes]) -> Exported:
    """The one mission in a form that holds no other. Raises ``InputError`` where there are several, and as ``decide``."""
    if len(missions) > 1:
        names = ", ".join(repr(mission.name) for mission in missions)
        raise InputError(shown(f"{form} holds one mission: choose one by --mission: {names}", 400))
    (mission,) = missions
    return Exported(write(decide(mission, form)), list_undecided(mission))


def decide(mission: CodedMission, form: str) -> Decisions:
    """The rules of a mission as cases. Raises ``InputError``, which names a rule that cannot be said, and the ``form``."""
    rules = mission.coded.each
    if refused := next(((rule, why) for rule in rules if (why := _refuse(rule, mission))), None):
        said = f"{mission.name}: {form} cannot say {refused[0].key}, {refused[0].text!r}: {refused[1]}"
        raise InputError(shown(f"{said}; export --format python reads what rules do", 600))
    if mission.is_counted is None:
        raise InputError(
            shown(f"{mission.name}: {form} sees columns; some tickets are JSON, which counts, and others prose")
        )
    named = [name for rule in rules for name in _code(rule)[1].fields]
    names = dict.fromkeys([*named, *mission.columns_all])
    kinds = {name: find_kind(name, mission) for name in names}
    formulas = _Formulas(mission, kinds)
    return Decisions(mission, kinds, _list_values(mission, rules, kinds), tuple(formulas.list_cases(rules)))


def name_person(labels: Sequence[Verdict]) -> str:
    """What stands for a verdict where a person decides."""
    return "person" if "person" not in labels else "left to a person"


def list_missing(formula: Compare | OneOf | Same, decisions: Decisions) -> tuple[list[str], list[str]]:
    """The columns without which a formula is untrue, and those that it divides by."""
    if isinstance(formula, OneOf):
        return [formula.field], []
    if isinstance(formula, Same):
        return [formula.one, formula.other], []
    sides = [side for side in (formula.left, formula.right) if not isinstance(side, float)]
    named = [name for side in sides for name in ((side,) if isinstance(side, str) else (side.first, side.second))]
    divisors = [side.second for side in sides if isinstance(side, Computed) and side.operator == "/"]
    return [] if decisions.is_counted else list(dict.fromkeys(named)), list(dict.fromkeys(divisors))


def find_kind(name: str, mission: CodedMission) -> Kind:
    """What a column holds."""
    return "number" if name in mission.numeric else "flag" if name in mission.booleans else "text"


def _refuse(rule: CodedRule, mission: CodedMission) -> str:
    """Why a rule cannot be said; empty where it can."""
    if isinstance(rule.code, OutOfReach):
        return rule.code.why
    refusals = _Refusals(mission)
    return next(filter(None, (condition.put(refusals) for condition in rule.code.expression.conditions())), "")


class _Refusals:
    """Why a condition cannot be said; empty where it can."""

    def __init__(self, mission: CodedMission) -> None:
        self._mission = mission

    def one_of(self, field: str, values: tuple[str, ...]) -> str:
        numbers = [value for value in values if _DECIMAL.fullmatch(value)]
        if not numbers or not (texts := self._list_texts(field)):
            return ""
        return f"{numbers[0]} is a number, and the column {texts[0]} holds {_show_texts(texts[0], self._mission)}"

    def missing(self, field: str) -> str:
        return ""

    def limit(self, of: str | Computed, side: Side, limit: str) -> str:
        return self._need_numbers(of) or (f"its limit {limit} is no number" if _is_odd(limit) else "")

    def order(self, of: str | Computed, side: Side, other: str | Computed) -> str:
        return self._need_numbers(of, other)

    def same(self, one: str, other: str, is_same: bool) -> str:
        texts = self._list_texts(one, other)
        if len({find_kind(name, self._mission) for name in (one, other)}) > 1:
            return f"it compares a column of numbers with one of texts, {one} and {other}"
        mixed = [name for name in texts if any(map(_DECIMAL.fullmatch, _known(name, self._mission)))]
        return f"the column {mixed[0]} holds numbers and texts, which are equal in many spellings" if mixed else ""

    def beyond(self, what: str) -> str:
        return f"it reads {what}, and this form sees columns alone"

    def _need_numbers(self, *sides: str | Computed) -> str:
        if texts := self._list_texts(*(name for side in sides for name in list_fields(side))):
            return f"it compares numbers, and the column {texts[0]} holds {_show_texts(texts[0], self._mission)}"
        return ""

    def _list_texts(self, *names: str) -> list[str]:
        return [name for name in names if find_kind(name, self._mission) != "number"]


def _is_odd(limit: str) -> bool:
    number = parse_number(limit)
    return number is None or number != number or number in (float("inf"), float("-inf"))


def _known(name: str, mission: CodedMission) -> list[str]:
    """The values of a column in known tickets."""
    return list(dict.fromkeys(value for ticket in mission.tickets if (value := reading(ticket).pairs.get(name))))


def _show_texts(name: str, mission: CodedMission) -> str:
    texts = [value for value in _known(name, mission) if parse_number(value) is None or not value[-1].isdigit()]
    return f"texts such as {texts[0]!r}" if texts else "texts"


def _list_values(mission: CodedMission, rules: Sequence[CodedRule], kinds: dict[str, Kind]) -> dict[str, tuple[str, ...]]:
    texts = [name for name, kind in kinds.items() if kind == "text"]
    found = {name: dict.fromkeys(_known(name, mission)) for name in texts}
    for each in (condition for rule in rules for condition in _code(rule)[1].conditions()):
        known = {name: {*map(fold_value, found[name])} for name in each.fields if name in found}
        for name, value in each.named:
            if name in found and fold_value(value) not in known[name]:
                found[name][value] = None
    return {name: tuple(values) for name, values in found.items()}


class _Formulas:
    """A mission's cases, by formulas on its columns."""

    def __init__(self, mission: CodedMission, kinds: dict[str, Kind]) -> None:
        self._mission, self._hold, self._may = mission, _Held(mission, kinds), _Possible(mission, kinds)

    # Cases

    def list_cases(self, rules: Sequence[CodedRule]) -> Iterator[DecisionCase]:
        """All, the one for tickets that no rule speaks of last."""
        labels = self._mission.coded.labels
        if self._mission.columns_all and self._mission.coded.compile()(Reading({}, frozenset())).verdict is not None:
            yield DecisionCase(every(Given(name, False) for name in self._mission.columns_all), None, "", EMPTY)
        if not has_labels(labels):
            rules = sorted(rules, key=lambda rule: _code(rule)[0] == "fail")
        doubted: list[tuple[Verdict, Formula, str]] = []  # rules that may hold where a ticket does not tell
        for is_compared, verdict, group in _group(rules, has_labels(labels)):
            holding = [(rule, self._beat(rule, group) if is_compared else _code(rule)[1].tell(self._hold)) for rule in group]
            if not is_compared:
                yield from self._doubt(either(formula for _, formula in holding), verdict, doubted)
            for rule, formula in holding:
                if is_compared:
                    yield from self._doubt(formula, _code(rule)[0], doubted)
                if formula != NEVER:
                    yield DecisionCase(formula, _code(rule)[0], rule.key, rule.text)
                if not _code(rule)[1].as_points:
                    doubted.append((_code(rule)[0], _code(rule)[1].tell(self._may), rule.key))
        yield from self._doubt(ALWAYS, labels[0], doubted)
        yield DecisionCase(ALWAYS, labels[0], HEADLINE_KEY, BY_NO_RULE)

    def _doubt(
        self, holds: Formula, verdict: Verdict, doubted: Sequence[tuple[Verdict, Formula, str]]
    ) -> Iterator[DecisionCase]:
        """The case for a person: rules before it of another verdict may hold."""
        others = [(formula, key) for label, formula, key in doubted if label != verdict and formula != NEVER]
        if others and holds != NEVER:
            keys = ", ".join(dict.fromkeys(key for _, key in others))
            yield DecisionCase(
                every([either(formula for formula, _ in others), holds]), None, "", f"the row does not tell whether {keys}"
            )

    def _beat(self, rule: CodedRule, group: Sequence[CodedRule]) -> Formula:
        """Whether a rule's points are reached, and are as far above their least as those of all others, of which the first
        stands first."""
        card, beaten = _code(rule)[1].as_points, list[Formula]()
        for other in (_code(each)[1].as_points for each in group if each is not rule):
            assert card and other  # ``_group`` saw to it
            parts = (*self._hold.add(card), *((-points, formula) for points, formula in self._hold.add(other)))
            beaten.append(PointSum(parts, True, card.least - other.least))
        return every([_code(rule)[1].tell(self._hold), *beaten])


class _Held(Teller[Formula]):
    """Whether code finds an expression true, or false."""

    def __init__(self, mission: CodedMission, kinds: dict[str, Kind]) -> None:
        self._mission, self._kinds = mission, kinds

    def compare(self, condition: Condition, truth: bool) -> Formula:
        return condition.put(_Cells(bool(self._mission.is_counted), self._kinds, truth))

    def count(self, parts: list[Formula], least: int) -> Formula:
        if least == 1:
            return either(parts)
        return every(parts) if least == len(parts) else PointSum(tuple((1, part) for part in parts), True, least)

    def score(self, card: Points, truth: bool) -> Formula:
        return PointSum(self.add(card), truth, card.least)

    def add(self, card: Points) -> tuple[tuple[int, Formula], ...]:
        """What has points, as code finds it true."""
        return tuple((points, part.tell(self)) for points, part in card.scored)


class _Possible(_Held):
    """Whether code finds an expression so, or that the ticket does not tell; points are always told."""

    def compare(self, condition: Condition, truth: bool) -> Formula:
        counts = [name for name, kind in self._kinds.items() if kind == "number" and self._mission.is_counted]
        lacking = [Given(name, False) for name in condition.needed if name not in counts]
        by_none = [Compare(name, "=", 0.0) for name in condition.divisors]
        return either([*lacking, *by_none, super().compare(condition, truth)])

    def score(self, card: Points, truth: bool) -> Formula:
        return card.tell(_Held(self._mission, self._kinds), truth)


class _Cells:
    """Conditions, or their denials, on columns of these kinds."""

    def __init__(self, is_counted: bool, kinds: dict[str, Kind], truth: bool) -> None:
        self._is_counted, self._kinds, self._truth = is_counted, kinds, truth

    def one_of(self, field: str, values: tuple[str, ...]) -> Formula:
        if self._kinds[field] != "number":
            return OneOf(field, tuple(dict.fromkeys(map(fold_value, values))), self._truth)
        numbers = dict.fromkeys(number for value in values if (number := parse_number(value)) is not None)
        parts = [Compare(field, "=" if self._truth else "<>", number) for number in numbers]
        if not parts:
            return NEVER if self._truth else ALWAYS if self._is_counted else Given(field, True)
        return either(parts) if self._truth else every(parts)

    def missing(self, field: str) -> Formula:
        return (NEVER if self._truth else ALWAYS) if self._is_counted else Given(field, not self._truth)

    def limit(self, of: str | Computed, side: Side, limit: str) -> Formula:
        number = parse_number(limit)
        assert number is not None  # ``_refuse`` saw to it
        return Compare(of, _SIGNS[side][not self._truth], number)

    def order(self, of: str | Computed, side: Side, other: str | Computed) -> Formula:
        return Compare(of, _SIGNS[side][not self._truth], other)

    def same(self, one: str, other: str, is_same: bool) -> Formula:
        if self._kinds[one] == "number":
            return Compare(one, "=" if self._truth == is_same else "<>", other)
        return Same(one, other, self._truth == is_same)

    def beyond(self, what: str) -> Formula:
        raise AssertionError(what)  # ``_refuse`` saw to it


def _code(rule: CodedRule) -> tuple[Verdict, Expression]:
    assert not isinstance(rule.code, OutOfReach)  # ``_refuse`` saw to it
    return rule.code.verdict, rule.code.expression


def _group(rules: Sequence[CodedRule], is_by_order: bool) -> Iterator[tuple[bool, Verdict, list[CodedRule]]]:
    """Rules side by side whose points are compared, or else that have one verdict."""

    def tell(rule: CodedRule) -> tuple[bool, Verdict]:
        verdict, expression = _code(rule)
        is_compared = is_by_order and expression.as_points is not None
        return is_compared, "" if is_compared else verdict

    for (is_compared, verdict), group in groupby(rules, tell):
        yield is_compared, verdict, [*group]


def every(parts: Iterator[Formula] | Sequence[Formula]) -> Formula:
    """All of the parts, as plainly as can be."""
    flat = dict.fromkeys(inner for part in parts for inner in (part.parts if isinstance(part, Every) else (part,)))
    return NEVER if NEVER in flat else next(iter(flat)) if len(flat) == 1 else Every(tuple(flat))


def either(parts: Iterator[Formula] | Sequence[Formula]) -> Formula:
    """At least one of the parts, as plainly as can be."""
    flat = dict.fromkeys(inner for part in parts for inner in (part.parts if isinstance(part, Either) else (part,)))
    return ALWAYS if ALWAYS in flat else next(iter(flat)) if len(flat) == 1 else Either(tuple(flat))
