"""Conditions of rules in SQL: what a cell says, how cells compare, and whether a rule holds.

Code knows three answers: a rule holds, it does not, or the ticket does not tell. SQL has a fourth:
it cannot know what code says, since it folds no text. So each comparison is a column that holds 1,
0, -1 (the ticket does not tell) or NULL, and what is made of comparisons says 1, 0 or -1 only where
code surely does, too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stageb.guidance.exports.protocol import CodedMission, UnsaidError
from stageb.guidance.exports.sql_cells import ALWAYS, NEVER, CellColumns, check_word
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.conditions import (
    ColumnForm,
    Condition,
    Expression,
    OutOfReach,
    Points,
    Side,
    Visitor,
)
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.rules.value_types import Computed, parse_number, parse_quantity
from stageb.guidance.words.types import Verdict
from stageb.untrusted.clean_text import fold_value

SIGNS: Mapping[Side, str] = {"above": ">", "below": "<"}


@dataclass(frozen=True, slots=True)
class BeyondSql(OutOfReach):
    """Why SQL does not tell what code does."""

    code: RuleCode | None = None  # which the rule says


def read_code(rule: CodedRule) -> RuleCode | None:
    """A rule as code reads it, whether SQL can say it or not."""
    if isinstance(rule.code, BeyondSql):
        return rule.code.code
    return rule.code if isinstance(rule.code, RuleCode) else None


def describe_rule(rule: CodedRule) -> str:
    """The rule as a comment."""
    return f"-- {rule.key}{' (provisional)' * rule.is_provisional}. {json.dumps(rule.text)}"


class RuleTest(NamedTuple):
    """Conditions of SQL on a rule; each is true, or else false or NULL."""

    rule: CodedRule
    holds: str
    fails: str
    is_open: str  # neither is known
    is_lost: str  # code may know what SQL does not
    # of rules with points: how far above the least they are, NULL where SQL cannot know
    above: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict that the rule gives; empty where code cannot read it."""
        code = read_code(self.rule)
        return code.verdict if code else ""

    @property
    def may_have_points(self) -> bool:
        """Whether the rule has points, or nobody knows whether it has."""
        code = read_code(self.rule)
        return code is None or code.expression.as_points is not None


def test_unread(rule: CodedRule) -> RuleTest:
    """The test of a rule that is not written."""
    return RuleTest(
        rule, NEVER, NEVER, ALWAYS, ALWAYS if isinstance(rule.code, BeyondSql) else NEVER
    )


class Conditions(ColumnForm[str]):
    """Conditions on a mission's tickets, made of the columns of ``cells``."""

    def __init__(self, mission: CodedMission, dialect: Dialect) -> None:
        self.cells = CellColumns(mission, dialect)
        self._mission, self._sql = mission, dialect
        self._numbers: dict[Condition, int] = {}
        self._sure, self._open = _Sure(self), _Open(self)

    def test(self, rule: CodedRule) -> RuleTest:
        """The test of a rule; its column has the rule beside it."""
        code = rule.code
        if isinstance(code, OutOfReach):
            return test_unread(rule)
        said = f"{describe_rule(rule)}\n    "
        told = code.expression
        if card := told.as_points:
            column = self.cells.add(
                "rules", rule.key, f"{self.sum_up(card)} - ({card.least})", said
            )
            return RuleTest(
                rule,
                f"{column} >= 0",
                f"{column} < 0",
                f"{column} IS NULL",
                f"{column} IS NULL",
                column,
            )
        known = " ".join(
            f"WHEN {told.accept(self._sure, truth)} THEN {int(truth)}" for truth in (True, False)
        )
        known += (
            f" WHEN {told.accept(self._open, True)} AND {told.accept(self._open, False)} THEN -1"
        )
        column = self.cells.add("rules", rule.key, f"CASE {known} END", said)
        return RuleTest(
            rule,
            f"{column} = 1",
            f"{column} = 0",
            f"COALESCE({column}, -1) = -1",
            f"{column} IS NULL",
        )

    def sum_up(self, card: Points) -> str:
        """The points of a ticket: 0 for a part that the ticket does not tell, NULL where SQL cannot
        know one."""
        return " + ".join(
            f"CASE WHEN {part.accept(self._sure)} THEN {points} WHEN {part.accept(self._open)} THEN "
            f"0 END"
            for points, part in card.scored
        )

    def find_column(self, condition: Condition) -> str:
        """The column of a condition: 1, 0, -1 or NULL."""
        number = self._numbers.setdefault(condition, len(self._numbers) + 1)
        return self.cells.add("comparisons", f"comparison {number}", condition.put(self))

    # What conditions are made of

    def one_of(self, field: str, values: tuple[str, ...]) -> str:
        if field in self._mission.numeric:
            return _tell(
                is_one_of(self.cells.number(field), values), [f"{self.cells.text(field)} IS NULL"]
            )
        are_numbers = all(parse_number(each) is not None for each in values)
        folded = dict.fromkeys(map(fold_value, values))
        spelled = dict.fromkeys(each for value in values for each in _spell(value))
        listed, plain = (", ".join(map(self._sql.quote, each)) for each in (spelled, folded))
        cell, compared = self.cells.cell(field, are_numbers), self.cells.folded(field, are_numbers)
        found = (
            f"WHEN {cell} IN ({listed}) OR {compared} IN ({plain}) THEN 1 WHEN {compared} "
            f"NOT IN ({plain}) THEN 0"
        )
        return f"CASE {found} WHEN {self.cells.lacks(field, are_numbers)} THEN -1 END"

    def missing(self, field: str) -> str:
        text = self.cells.text(field)
        if self._mission.is_counted:
            return "0"
        if field in self._mission.numeric:
            return f"CASE WHEN {text} IS NULL THEN 1 ELSE 0 END"
        there = f"WHEN {self.cells.is_plain(text)} THEN 0"
        return (
            f"CASE WHEN {text} IS NULL THEN {'1' if self._mission.is_counted is False else 'NULL'} "
            f"{there} END"
        )

    def limit(self, of: str | Computed, side: Side, limit: str) -> str:
        (number, why), found = self._find_number(of), parse_quantity(limit)
        assert found is not None  # ``limit_to_sql`` saw to it
        held = f"{number} {SIGNS[side]} {found.number!r}"
        if not isinstance(of, str) or not found.unit or of in self._mission.numeric:
            return _tell(held, why)
        unit, same = self.cells.unit(of), f"('', {self._sql.quote(found.unit)})"
        apart = f"{unit} NOT IN {same} AND {number} IS NOT NULL"
        return _tell(f"CASE WHEN {unit} IN {same} THEN {held} END", [*why, apart])

    def order(self, of: str | Computed, side: Side, other: str | Computed) -> str:
        (left, why), (right, why_too) = self._find_number(of), self._find_number(other)
        held = f"{left} {SIGNS[side]} {right}"
        if not isinstance(of, str) or not isinstance(other, str):
            return _tell(held, [*why, *why_too])
        fits, apart = self._fit(of, other)
        return _tell(
            held if apart == NEVER else f"CASE WHEN {fits} THEN {held} END", [*why, *why_too, apart]
        )

    def same(self, one: str, other: str, is_same: bool) -> str:
        (left, right), (mine, its) = (
            [find(each, True) for each in (one, other)]
            for find in (self.cells.cell, self.cells.folded)
        )
        untold = " OR ".join(self.cells.lacks(each, True) for each in (one, other))
        alike, apart = (
            f"{left} = {right} OR {mine} = {its}",
            f"WHEN {mine} <> {its} THEN {int(not is_same)}",
        )
        return f"CASE WHEN {alike} THEN {int(is_same)} {apart} WHEN {untold} THEN -1 END"

    def mentions(self, field: str, words: tuple[str, ...]) -> str:
        column = self.cells.words(field)
        found = " OR ".join(self.cells.has_word(column, word) for word in words)
        return f"CASE WHEN {found} THEN 1 WHEN {column} IS NOT NULL THEN 0 END"

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
            return total if apart == NEVER else f"(CASE WHEN {fits} THEN {total} END)", [
                *why,
                *why_too,
                apart,
            ]
        return self.cells.number(of), [self.cells.no_number(of)]

    def _fit(self, first: str, second: str) -> tuple[str, str]:
        """Whether the numbers of two fields have one unit, or one has none; and whether code surely
        denies it."""
        if not self._mission.numeric.isdisjoint((first, second)):  # which have no units
            return ALWAYS, NEVER
        one, other = self.cells.unit(first), self.cells.unit(second)
        fits = f"{one} = '' OR {other} = '' OR {one} = {other}"
        known = (
            f"{self.cells.number(first)} IS NOT NULL AND {self.cells.number(second)} IS NOT NULL"
        )
        return fits, f"NOT ({fits}) AND {known}"


class _Sure(Visitor[str]):
    """Whether code surely finds an expression true, or false."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions

    def compare(self, condition: Condition, truth: bool) -> str:
        return f"{self._conditions.find_column(condition)} = {int(truth)}"

    def count(self, parts: list[str], least: int) -> str:
        if least in (1, len(parts)):
            return f"({(' OR ' if least == 1 else ' AND ').join(parts)})"
        return count_true(parts, least)

    def score(self, card: Points, truth: bool) -> str:
        return f"{self._conditions.sum_up(card)} {'>=' if truth else '<'} {card.least}"


class _Open(_Sure):
    """Whether code surely does not find it so: it finds the opposite, or that the ticket does not
    tell."""

    def compare(self, condition: Condition, truth: bool) -> str:
        return f"{self._conditions.find_column(condition)} <> {int(truth)}"

    def count(self, parts: list[str], least: int) -> str:
        return super().count(parts, len(parts) - least + 1)

    def score(self, card: Points, truth: bool) -> str:
        return super().score(card, not truth)  # which a ticket always tells


def is_one_of(number: str, values: Sequence[str]) -> str:
    """Whether a number is one of those among the values; NULL where it is."""
    listed = ", ".join(repr(found) for each in values if (found := parse_number(each)) is not None)
    return f"{number} IN ({listed})" if listed else f"{number} <> {number}"


def _tell(held: str, untold: Sequence[str]) -> str:
    """1 or 0 by what is ``held``, -1 where code surely finds that a ticket does not tell."""
    why = " OR ".join(f"({each})" for each in dict.fromkeys(untold) if each != NEVER)
    return (
        f"CASE WHEN {held} THEN 1 WHEN NOT ({held}) THEN 0{f' WHEN {why} THEN -1' if why else ''} "
        f"END"
    )


def count_true(conditions: Sequence[str], least: int) -> str:
    """Whether so many of them are true, or more."""
    return f"{' + '.join(f'CASE WHEN {each} THEN 1 ELSE 0 END' for each in conditions)} >= {least}"


def _spell(value: str) -> Iterator[str]:
    """Ways to write a value that are folded to the same."""
    ways = (
        value,
        value.lower(),
        value.upper(),
        value.capitalize(),
        value.title(),
        fold_value(value),
    )
    yield from (way for way in ways if fold_value(way) == fold_value(value))


class TypedConditions(Visitor[str], ColumnForm[str]):
    """Conditions on columns of numbers: SQL's own three answers are those of code."""

    def __init__(self, mission: CodedMission, dialect: Dialect) -> None:
        self._mission, self._sql = mission, dialect

    def test(self, rule: CodedRule) -> RuleTest:
        """The test of a rule."""
        if isinstance(rule.code, OutOfReach):
            return test_unread(rule)
        told = rule.code.expression
        if card := told.as_points:
            total = self._sum(card)
            reached, missed = f"{total} >= {card.least}", f"{total} < {card.least}"
            return RuleTest(rule, reached, missed, NEVER, NEVER, f"({total} - ({card.least}))")
        said = told.accept(self)
        return RuleTest(rule, f"({said})", f"NOT ({said})", f"({said}) IS NULL", NEVER)

    # Expressions; what is denied, SQL denies

    def deny(self, part: Expression, truth: bool) -> str:
        return f"NOT ({part.accept(self)})"

    def compare(self, condition: Condition, truth: bool) -> str:
        return condition.put(self)

    def count(self, parts: list[str], least: int) -> str:
        parts = [f"({part})" for part in parts]
        if least in (1, len(parts)):
            return (" OR " if least == 1 else " AND ").join(parts)
        possible = " + ".join(f"CASE WHEN NOT {part} THEN 0 ELSE 1 END" for part in parts)
        return (
            f"CASE WHEN {count_true(parts, least)} THEN 1 = 1 WHEN {possible} < {least} THEN "
            f"1 = 0 END"
        )

    def score(self, card: Points, truth: bool) -> str:
        return f"{self._sum(card)} >= {card.least}"

    # Conditions

    def one_of(self, field: str, values: tuple[str, ...]) -> str:
        return is_one_of(self._number(field), values)

    def missing(self, field: str) -> str:
        return f"{self._number(field)} IS NULL"

    def limit(self, of: str | Computed, side: Side, limit: str) -> str:
        number = parse_number(limit)
        if number is None or math.isinf(number):
            raise UnsaidError("its limit is no number that SQL can hold")
        return f"{self._number(of)} {SIGNS[side]} {number!r}"

    def order(self, of: str | Computed, side: Side, other: str | Computed) -> str:
        return f"{self._number(of)} {SIGNS[side]} {self._number(other)}"

    def same(self, one: str, other: str, is_same: bool) -> str:
        return f"{self._number(one)} {'=' if is_same else '<>'} {self._number(other)}"

    def mentions(self, field: str, words: tuple[str, ...]) -> str:
        for word in words:
            check_word(self._mission, field, word)
        return NEVER  # a table with texts is judged by ``Conditions``

    def beyond(self, what: str) -> str:
        raise UnsaidError(f"SQL sees columns, and no {what}")

    def _sum(self, told: Points) -> str:
        scored = (
            f"CASE WHEN {part.accept(self)} THEN {points} ELSE 0 END"
            for points, part in told.scored
        )
        return f"({' + '.join(scored)})"

    def _number(self, of: str | Computed) -> str:
        if isinstance(of, str):
            return f"t.{self._sql.name(of)}"
        # As doubles: of whole and of decimal numbers, databases round otherwise, or find that they
        # are too large.
        first, other = (
            f"CAST({self._number(name)} AS {self._sql.double})" for name in (of.first, of.second)
        )
        if of.operator == "/":
            return f"({first} / NULLIF({other}, 0))"
        return f"({first} {of.operator.replace('×', '*')} {other})"
