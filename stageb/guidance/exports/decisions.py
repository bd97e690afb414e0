"""Rules as a list of decisions on columns of numbers, flags and texts: what decision tables, sheets and engines judge by.

Code knows three answers, of which such engines have two. So a rule is written as what is surely so: that it holds, or that
it may, where a ticket does not tell. The first case that is so decides; one without a verdict leaves the ticket to a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias

from stageb.errors import InputError, shown
from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.protocol import Exported, list_undecided
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points, atoms
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.value_types import Computed, Reading, fold_value, parse_number
from stageb.guidance.words.costs import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, Verdict

Kind = Literal["number", "flag", "text"]
Sign = Literal[">", "<", ">=", "<=", "=", "<>"]
_SIGNS: dict[str, tuple[Sign, Sign]] = {  # of a relation, and of what it is not
    "above": (">", "<="),
    "over": (">", "<="),
    "below": ("<", ">="),
    "under": ("<", ">="),
    "equals": ("=", "<>"),
}


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
NO_WORDS = "it reads words of free text, and this form sees columns alone"
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
    named = [name for rule in rules for atom in _atoms(rule) for name in atom.fields]
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


def _atoms(rule: CodedRule) -> Iterator[Atom | Arithmetic]:
    yield from () if isinstance(rule.code, OutOfReach) else atoms(rule.code.expression)


def _refuse(rule: CodedRule, mission: CodedMission) -> str:
    """Why a rule cannot be said; empty where it can."""
    if isinstance(rule.code, OutOfReach):
        return rule.code.why
    return next((why for atom in _atoms(rule) if (why := _refuse_atom(atom, mission))), "")


def _refuse_atom(atom: Atom | Arithmetic, mission: CodedMission) -> str:
    if atom.relation == "mentions":
        return NO_WORDS
    kinds = {name: find_kind(name, mission) for name in atom.fields}
    texts = [name for name, kind in kinds.items() if kind != "number"]
    if isinstance(atom, Arithmetic) or atom.relation in ("above", "below", "over", "under"):
        limit = atom.right if isinstance(atom, Arithmetic) else atom.values[0] if atom.relation in ("above", "below") else ""
        if texts:
            return f"it compares numbers, and the column {texts[0]} holds {_show_texts(texts[0], mission)}"
        return f"its limit {limit} is no number" if isinstance(limit, str) and limit and _is_odd(limit) else ""
    if atom.relation in ("equals", "differs"):
        if len(set(kinds.values())) > 1:
            return f"it compares a column of numbers with one of texts, {' and '.join(kinds)}"
        mixed = [name for name in texts if any(map(_DECIMAL.fullmatch, _known(name, mission)))]
        return f"the column {mixed[0]} holds numbers and texts, which are equal in many spellings" if mixed else ""
    numbers = [value for value in atom.values if _DECIMAL.fullmatch(value)] if atom.relation == "is" and texts else []
    return f"{numbers[0]} is a number, and the column {texts[0]} holds {_show_texts(texts[0], mission)}" if numbers else ""


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
    for atom in (atom for rule in rules for atom in _atoms(rule)):
        if isinstance(atom, Atom) and atom.relation == "is" and atom.name in found:
            known = {fold_value(value) for value in found[atom.name]}
            found[atom.name] |= dict.fromkeys(value for value in atom.values if fold_value(value) not in known)
    return {name: tuple(values) for name, values in found.items()}


class _Formulas:
    """Formulas on a mission's columns."""

    def __init__(self, mission: CodedMission, kinds: dict[str, Kind]) -> None:
        self._mission, self._kinds = mission, kinds

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
            holding = [(rule, self._beat(rule, group) if is_compared else self.hold(_code(rule)[1])) for rule in group]
            if not is_compared:
                yield from self._doubt(either(formula for _, formula in holding), verdict, doubted)
            for rule, formula in holding:
                if is_compared:
                    yield from self._doubt(formula, _code(rule)[0], doubted)
                if formula != NEVER:
                    yield DecisionCase(formula, _code(rule)[0], rule.key, rule.text)
                if not isinstance(_code(rule)[1], Points):
                    doubted.append((_code(rule)[0], self.may(_code(rule)[1]), rule.key))
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
        card = _code(rule)[1]
        assert isinstance(card, Points)
        beaten = []
        for other in (_code(each)[1] for each in group if each is not rule):
            assert isinstance(other, Points)
            parts = (*self._score(card), *((-points, formula) for points, formula in self._score(other)))
            beaten.append(PointSum(parts, True, card.least - other.least))
        return every([self.hold(card), *beaten])

    def _score(self, card: Points) -> tuple[tuple[int, Formula], ...]:
        return tuple((points, self.hold(part)) for points, part in card.parts)

    # Expressions

    def hold(self, expression: Expression, truth: bool = True) -> Formula:
        """Whether code finds it true, or false."""
        if isinstance(expression, Not):
            return self.hold(expression.part, not truth)
        if isinstance(expression, Atom | Arithmetic):
            return self._compare(expression, truth)
        if isinstance(expression, Points):
            return PointSum(self._score(expression), truth, expression.least)
        parts = [self.hold(part, truth) for part in expression.parts]
        if isinstance(expression, AtLeast):
            return _count(parts, expression.count if truth else len(parts) - expression.count + 1)
        return every(parts) if isinstance(expression, All) == truth else either(parts)

    def may(self, expression: Expression, truth: bool = True) -> Formula:
        """Whether code finds it true, or false, or that the ticket does not tell."""
        if isinstance(expression, Not):
            return self.may(expression.part, not truth)
        if isinstance(expression, Atom | Arithmetic):
            return either([*self._miss(expression), self._compare(expression, truth)])
        if isinstance(expression, Points):
            return self.hold(expression, truth)
        parts = [self.may(part, truth) for part in expression.parts]
        if isinstance(expression, AtLeast):
            return _count(parts, expression.count if truth else len(parts) - expression.count + 1)
        return every(parts) if isinstance(expression, All) == truth else either(parts)

    def _miss(self, atom: Atom | Arithmetic) -> Iterator[Formula]:
        """What leaves a comparison untold."""
        if atom.relation == "missing":
            return
        yield from (Given(name, False) for name in atom.fields if not self._is_count(name))
        if isinstance(atom, Arithmetic):
            sides = (atom.left, atom.right) if isinstance(atom.right, Computed) else (atom.left,)
            yield from (Compare(side.second, "=", 0.0) for side in sides if side.operator == "/")

    def _is_count(self, name: str) -> bool:
        return bool(self._mission.is_counted) and self._kinds[name] == "number"

    def _compare(self, atom: Atom | Arithmetic, truth: bool) -> Formula:
        if isinstance(atom, Arithmetic):
            right = atom.right if isinstance(atom.right, Computed) else _number(atom.right)
            return Compare(atom.left, _SIGNS[atom.relation][not truth], right)
        if atom.relation == "differs":
            return self._compare(replace(atom, relation="equals"), not truth)
        name, kind = atom.name, self._kinds[atom.name]
        if atom.relation == "missing":
            return (NEVER if truth else ALWAYS) if self._mission.is_counted else Given(name, not truth)
        if atom.relation == "is":
            return self._compare_values(name, atom.values, truth)
        if atom.relation in ("above", "below"):
            return Compare(name, _SIGNS[atom.relation][not truth], _number(atom.values[0]))
        if kind == "number":
            return Compare(name, _SIGNS[atom.relation][not truth], atom.values[0])
        return Same(name, atom.values[0], truth)

    def _compare_values(self, name: str, values: Sequence[str], truth: bool) -> Formula:
        if self._kinds[name] != "number":
            return OneOf(name, tuple(dict.fromkeys(map(fold_value, values))), truth)
        numbers = dict.fromkeys(number for value in values if (number := parse_number(value)) is not None)
        parts = [Compare(name, "=" if truth else "<>", number) for number in numbers]
        if not parts:
            return NEVER if truth else ALWAYS if self._is_count(name) else Given(name, True)
        return either(parts) if truth else every(parts)


def _number(text: str) -> float:
    number = parse_number(text)
    assert number is not None  # ``_refuse_atom`` saw to it
    return number


def _code(rule: CodedRule) -> tuple[Verdict, Expression]:
    assert not isinstance(rule.code, OutOfReach)  # ``_refuse`` saw to it
    return rule.code.verdict, rule.code.expression


def _group(rules: Sequence[CodedRule], is_by_order: bool) -> Iterator[tuple[bool, Verdict, list[CodedRule]]]:
    """Rules side by side whose points are compared, or else that have one verdict."""

    def tell(rule: CodedRule) -> tuple[bool, Verdict]:
        verdict, expression = _code(rule)
        is_compared = is_by_order and isinstance(expression, Points)
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


def _count(parts: Sequence[Formula], least: int) -> Formula:
    if least == 1:
        return either(parts)
    return every(parts) if least == len(parts) else PointSum(tuple((1, part) for part in parts), True, least)
