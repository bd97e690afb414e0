"""Conditions of rules in SQL: what a cell says, how cells compare, and whether a rule holds.

Code knows three answers: a rule holds, it does not, or the ticket does not tell. SQL has a fourth: it cannot know what code
says, since it folds no text. So each comparison is a column that holds 1, 0, -1 (the ticket does not tell) or NULL, and what
is made of comparisons says 1, 0 or -1 only where code surely does, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.sql_cells import NEVER, Cells
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.value_types import Computed, fold_value, parse_number, parse_quantity
from stageb.guidance.words.costs import has_labels

NO_WORDS = "SQL sees columns, and no words of free text"
NO_LIMIT = "its limit is no number that SQL can hold"

SIGNS: Mapping[str, str] = {"above": ">", "over": ">", "below": "<", "under": "<"}


@dataclass(frozen=True, slots=True)
class BeyondSql(OutOfReach):
    """Why SQL does not tell what code does."""

    code: RuleCode | None = None  # which the rule says


def read_code(rule: CodedRule) -> RuleCode | None:
    """What code makes of a rule, whether SQL can say it or not."""
    if isinstance(rule.code, BeyondSql):
        return rule.code.code
    return rule.code if isinstance(rule.code, RuleCode) else None


class RuleTest(NamedTuple):
    """Conditions of SQL on a rule; each is true, or else false or NULL."""

    holds: str
    fails: str
    is_open: str  # neither is known
    is_lost: str  # code may know what SQL does not
    above: str = ""  # of rules with points that are compared: how far above the least they are, NULL where SQL cannot know


def name_unread(code: OutOfReach) -> RuleTest:
    """Of a rule that is not written."""
    return RuleTest(NEVER, NEVER, "1 = 1", "1 = 1" if isinstance(code, BeyondSql) else NEVER)


class Conditions:
    """Conditions on a mission's tickets, made of the columns of ``cells``."""

    def __init__(self, mission: CodedMission, dialect: Dialect) -> None:
        self.cells = Cells(mission, dialect)
        self._mission, self._sql = mission, dialect
        self._numbers: dict[Atom | Arithmetic, int] = {}  # of comparisons

    def name(self, rule: CodedRule) -> RuleTest:
        """What says whether a rule holds; its column has the rule beside it."""
        code = rule.code
        if isinstance(code, OutOfReach):
            return name_unread(code)
        said = f"-- {rule.key}{' (provisional)' * rule.is_provisional}. {json.dumps(rule.text)}\n    "
        told = code.expression
        if isinstance(told, Points) and has_labels(self._mission.coded.labels):
            column = self.cells.add("rules", rule.key, f"{self._sum_up(told)} - ({told.least})", said)
            return RuleTest(f"{column} >= 0", f"{column} < 0", f"{column} IS NULL", f"{column} IS NULL", column)
        unknown = f"{self._never(told, True)} AND {self._never(told, False)}"
        known = " ".join(f"WHEN {self._is(told, truth)} THEN {int(truth)}" for truth in (True, False))
        known += "" if isinstance(told, Points) else f" WHEN {unknown} THEN -1"
        column = self.cells.add("rules", rule.key, f"CASE {known} END", said)
        return RuleTest(f"{column} = 1", f"{column} = 0", f"COALESCE({column}, -1) = -1", f"{column} IS NULL")

    # Expressions

    def _is(self, expression: Expression, truth: bool) -> str:
        """Whether code surely finds it true, or false."""
        if isinstance(expression, Not):
            return self._is(expression.part, not truth)
        if isinstance(expression, Atom | Arithmetic):
            return f"{self._compare(expression)} = {int(truth)}"
        if isinstance(expression, Points):
            return f"{self._sum_up(expression)} {'>=' if truth else '<'} {expression.least}"
        if isinstance(expression, AtLeast):
            wanted = expression.count if truth else len(expression.parts) - expression.count + 1
            return count_true([self._is(part, truth) for part in expression.parts], wanted)
        return _join([self._is(part, truth) for part in expression.parts], isinstance(expression, All) == truth)

    def _never(self, expression: Expression, truth: bool) -> str:
        """Whether code surely does not find it true, or false: it finds the opposite, or that the ticket does not tell."""
        if isinstance(expression, Not):
            return self._never(expression.part, not truth)
        if isinstance(expression, Atom | Arithmetic):
            return f"{self._compare(expression)} <> {int(truth)}"
        if isinstance(expression, Points):  # which a ticket always tells
            return self._is(expression, not truth)
        if isinstance(expression, AtLeast):
            spared = len(expression.parts) - expression.count + 1 if truth else expression.count
            return count_true([self._never(part, truth) for part in expression.parts], spared)
        return _join([self._never(part, truth) for part in expression.parts], isinstance(expression, All) != truth)

    def _sum_up(self, expression: Points) -> str:
        """The points of a ticket: 0 for a part that the ticket does not tell, NULL where SQL cannot know one."""
        return " + ".join(
            f"CASE WHEN {self._is(part, True)} THEN {points} WHEN {self._never(part, True)} THEN 0 END"
            for points, part in expression.parts
        )

    def _compare(self, atom: Atom | Arithmetic) -> str:
        """The column of a comparison: 1, 0, -1 or NULL."""
        number = self._numbers.setdefault(atom, len(self._numbers) + 1)
        return self.cells.add("comparisons", f"comparison {number}", self._write(atom))

    def _write(self, atom: Atom | Arithmetic) -> str:
        if isinstance(atom, Arithmetic):
            left, why = self._find_number(atom.left)
            if isinstance(atom.right, Computed):
                right, why_too = self._find_number(atom.right)
            else:
                right, why_too = repr(parse_number(atom.right)), []
            return _tell(f"{left} {SIGNS[atom.relation]} {right}", [*why, *why_too])
        name, value = atom.name, (*atom.values, "")[0]
        if atom.relation == "missing":
            return self._write_missing(name)
        if atom.relation == "is":
            return self._write_one_of(name, atom.values)
        if atom.relation in ("equals", "differs"):
            (one, other), is_alike = (self.cells.cell(each, True) for each in (name, value)), atom.relation == "equals"
            mine, its = (self.cells.folded(each, True) for each in (name, value))
            untold = " OR ".join(self.cells.lacks(each, True) for each in (name, value))
            alike = f"{one} = {other} OR {mine} = {its}"
            other = f"WHEN {mine} <> {its} THEN {int(not is_alike)}"
            return f"CASE WHEN {alike} THEN {int(is_alike)} {other} WHEN {untold} THEN -1 END"
        if atom.relation in ("over", "under"):
            fits, apart = self._fit(name, value)
            (left, why), (right, why_too) = self._find_number(name), self._find_number(value)
            held = f"{left} {SIGNS[atom.relation]} {right}"
            return _tell(held if apart == NEVER else f"CASE WHEN {fits} THEN {held} END", [*why, *why_too, apart])
        return self._write_limit(name, value, SIGNS[atom.relation])

    def _write_limit(self, name: str, value: str, sign: str) -> str:
        limit, (number, why) = parse_quantity(value), self._find_number(name)
        assert limit is not None  # ``limit_to_sql`` saw to it
        held = f"{number} {sign} {limit.number!r}"
        if not limit.unit or name in self._mission.numeric:
            return _tell(held, why)
        unit, same = self.cells.unit(name), f"('', {self._sql.quote(limit.unit)})"
        apart = f"{unit} NOT IN {same} AND {number} IS NOT NULL"
        return _tell(f"CASE WHEN {unit} IN {same} THEN {held} END", [*why, apart])

    def _write_missing(self, name: str) -> str:
        text = self.cells.text(name)
        if self._mission.is_counted:
            return "0"
        if name in self._mission.numeric:
            return f"CASE WHEN {text} IS NULL THEN 1 ELSE 0 END"
        there = f"WHEN {self.cells.is_plain(text)} THEN 0"
        return f"CASE WHEN {text} IS NULL THEN {'1' if self._mission.is_counted is False else 'NULL'} {there} END"

    def _write_one_of(self, name: str, values: Sequence[str]) -> str:
        if name in self._mission.numeric:
            return _tell(is_one_of(self.cells.number(name), values), [f"{self.cells.text(name)} IS NULL"])
        are_numbers = all(parse_number(each) is not None for each in values)
        folded = dict.fromkeys(map(fold_value, values))
        spelled = dict.fromkeys(each for value in values for each in _spell(value))
        listed, plain = (", ".join(map(self._sql.quote, each)) for each in (spelled, folded))
        cell, compared = self.cells.cell(name, are_numbers), self.cells.folded(name, are_numbers)
        found = f"WHEN {cell} IN ({listed}) OR {compared} IN ({plain}) THEN 1 WHEN {compared} NOT IN ({plain}) THEN 0"
        return f"CASE {found} WHEN {self.cells.lacks(name, are_numbers)} THEN -1 END"

    # Numbers

    def _find_number(self, of: str | Computed) -> tuple[str, list[str]]:
        """The number of a field, or of two; and all that makes sure that code finds none."""
        if isinstance(of, Computed):
            first, sign, second = of
            (one, why), (other, why_too) = self._find_number(first), self._find_number(second)
            if sign == "/":
                return f"({one} / NULLIF({other}, 0))", [*why, *why_too, f"{other} = 0"]
            if sign == "×":
                return f"({one} * {other})", [*why, *why_too]
            fits, apart = self._fit(first, second)
            total = f"({one} {sign} {other})"
            return total if apart == NEVER else f"(CASE WHEN {fits} THEN {total} END)", [*why, *why_too, apart]
        return self.cells.number(of), [self.cells.no_number(of)]

    def _fit(self, first: str, second: str) -> tuple[str, str]:
        """Whether the numbers of two fields have one unit, or one has none; and whether code surely denies it."""
        if not self._mission.numeric.isdisjoint((first, second)):  # which have no units
            return "1 = 1", NEVER
        one, other = self.cells.unit(first), self.cells.unit(second)
        fits = f"{one} = '' OR {other} = '' OR {one} = {other}"
        known = f"{self.cells.number(first)} IS NOT NULL AND {self.cells.number(second)} IS NOT NULL"
        return fits, f"NOT ({fits}) AND {known}"


def is_one_of(number: str, values: Sequence[str]) -> str:
    """Whether a number is one of those among the values; NULL where it is."""
    listed = ", ".join(repr(found) for each in values if (found := parse_number(each)) is not None)
    return f"{number} IN ({listed})" if listed else f"{number} <> {number}"


def _tell(held: str, untold: Sequence[str]) -> str:
    """1 or 0 by what is ``held``, -1 where code surely finds that a ticket does not tell."""
    why = " OR ".join(f"({each})" for each in dict.fromkeys(untold) if each != NEVER)
    return f"CASE WHEN {held} THEN 1 WHEN NOT ({held}) THEN 0{f' WHEN {why} THEN -1' if why else ''} END"


def _join(conditions: Sequence[str], are_all: bool) -> str:
    return f"({(' AND ' if are_all else ' OR ').join(conditions)})"


def count_true(conditions: Sequence[str], least: int) -> str:
    """Whether so many of them are true, or more."""
    return f"{' + '.join(f'CASE WHEN {each} THEN 1 ELSE 0 END' for each in conditions)} >= {least}"


def _spell(value: str) -> Iterator[str]:
    """Ways to write a value that are folded to the same."""
    ways = (value, value.lower(), value.upper(), value.capitalize(), value.title(), fold_value(value))
    yield from (way for way in ways if fold_value(way) == fold_value(value))
