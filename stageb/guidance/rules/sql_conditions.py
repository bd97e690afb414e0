"""Conditions of rules in SQL: what a cell says, how cells compare, and whether a rule holds.

Code knows three answers: a rule holds, it does not, or the ticket does not tell. SQL has a fourth: it cannot know what code
says, since it folds no text. So each comparison is a column that holds 1, 0, -1 (the ticket does not tell) or NULL, and what
is made of comparisons says 1, 0 or -1 only where code surely does, too.
"""

from __future__ import annotations

import json
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stageb.guidance.rules.export import CodedMission
from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.sql_dialects import quote, quote_name
from stageb.guidance.rules.value_types import (
    CURRENCIES,
    FULL_STOPS,
    GOES_ON,
    LONGEST_SYMBOL,
    UNFOLDED,
    Computed,
    fold_value,
    parse_number,
    parse_quantity,
)
from stageb.guidance.words.costs import has_labels

NO_WORDS = "SQL sees columns, and no words of free text"
NO_LIMIT = "its limit is no number that SQL can hold"

SIGNS: Mapping[str, str] = {"above": ">", "over": ">", "below": "<", "under": "<"}
_ASCII = "".join(letter for letter in string.printable if letter.isprintable())
_BLANKS = (10, 13, 9, 160)  # line breaks, tab, no-break space; other cells with blanks of their own are not compared
_DIGITS = "0123456789"
NEVER = "1 = 0"
STAGES = ("fields", "texts", "cells", "digits", "beyond", "plain", "compared", "comparisons", "rules")


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


class Conditions:
    """Conditions on a mission's tickets.

    ``stages`` are the subqueries that make the columns which conditions name, each from the one before: the fields of rules,
    what their cells say, the numbers in them, how they compare, and whether each rule holds.
    """

    def __init__(self, mission: CodedMission) -> None:
        self.stages: dict[str, dict[str, str]] = {each: {} for each in STAGES}
        self._mission = mission
        self._numbers: dict[Atom | Arithmetic, int] = {}  # of comparisons
        numbers = "".join(each for each in mission.letters if each not in GOES_ON and not each.isdecimal())
        self._letters, self._letters_of_numbers = _ASCII + mission.letters, _ASCII + numbers

    def name(self, rule: CodedRule) -> RuleTest:
        """What says whether a rule holds; its column has the rule beside it."""
        code = rule.code
        if isinstance(code, OutOfReach):
            return RuleTest(NEVER, NEVER, "1 = 1", "1 = 1" if isinstance(code, BeyondSql) else NEVER)
        said = f"-- {rule.key}{' (provisional)' * rule.is_provisional}. {json.dumps(rule.text)}\n    "
        told = code.expression
        if isinstance(told, Points) and has_labels(self._mission.coded.labels):
            column = self._add("rules", rule.key, f"{self._sum_up(told)} - ({told.least})", said)
            return RuleTest(f"{column} >= 0", f"{column} < 0", f"{column} IS NULL", f"{column} IS NULL", column)
        unknown = f"{self._never(told, True)} AND {self._never(told, False)}"
        known = " ".join(f"WHEN {self._is(told, truth)} THEN {int(truth)}" for truth in (True, False))
        known += "" if isinstance(told, Points) else f" WHEN {unknown} THEN -1"
        column = self._add("rules", rule.key, f"CASE {known} END", said)
        return RuleTest(f"{column} = 1", f"{column} = 0", f"COALESCE({column}, -1) = -1", f"{column} IS NULL")

    def _add(self, stage: str, name: str, condition: str, said: str = "") -> str:
        """A column of a stage, by the name that it is called from now on."""
        self.stages[stage].setdefault(name, f"    {said}{condition} AS {quote_name(name)}")
        return f"t.{quote_name(name)}"

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
        return self._add("comparisons", f"comparison {number}", self._write(atom))

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
            (one, other), is_alike = (self._cell(each, True) for each in (name, value)), atom.relation == "equals"
            mine, its = (self._folded(each, True) for each in (name, value))
            untold = " OR ".join(self._lacks(each, True) for each in (name, value))
            alike = f"{one} = {other} OR {mine} = {its}"
            other = f"WHEN {mine} <> {its} THEN {int(not is_alike)}"
            return f"CASE WHEN {alike} THEN {int(is_alike)} {other} WHEN {untold} THEN -1 END"
        if atom.relation in ("over", "under"):
            fits, apart = self._fit(name, value)
            (left, why), (right, why_too) = self._find_number(name), self._find_number(value)
            held = f"CASE WHEN {fits} THEN {left} {SIGNS[atom.relation]} {right} END"
            return _tell(held, [*why, *why_too, apart])
        return self._write_limit(name, value, SIGNS[atom.relation])

    def _write_limit(self, name: str, value: str, sign: str) -> str:
        limit, (number, why) = parse_quantity(value), self._find_number(name)
        assert limit is not None  # ``limit_to_sql`` saw to it
        held = f"{number} {sign} {limit.number!r}"
        if not limit.unit or name in self._mission.numeric:
            return _tell(held, why)
        unit, same = self._unit(name), f"('', {quote(limit.unit)})"
        apart = f"{unit} NOT IN {same} AND {number} IS NOT NULL"
        return _tell(f"CASE WHEN {unit} IN {same} THEN {held} END", [*why, apart])

    def _write_missing(self, name: str) -> str:
        text = self._text(name)
        if self._mission.is_counted:
            return "0"
        if name in self._mission.numeric:
            return f"CASE WHEN {text} IS NULL THEN 1 ELSE 0 END"
        there = f"WHEN {self._is_plain(text)} THEN 0"
        return f"CASE WHEN {text} IS NULL THEN {'1' if self._mission.is_counted is False else 'NULL'} {there} END"

    def _write_one_of(self, name: str, values: Sequence[str]) -> str:
        if name in self._mission.numeric:
            return _tell(is_one_of(self._number(name), values), [f"{self._text(name)} IS NULL"])
        are_numbers = all(parse_number(each) is not None for each in values)
        folded = dict.fromkeys(map(fold_value, values))
        spelled = dict.fromkeys(each for value in values for each in _spell(value))
        listed, plain = (", ".join(map(quote, each)) for each in (spelled, folded))
        cell, compared = self._cell(name, are_numbers), self._folded(name, are_numbers)
        found = f"WHEN {cell} IN ({listed}) OR {compared} IN ({plain}) THEN 1 WHEN {compared} NOT IN ({plain}) THEN 0"
        return f"CASE {found} WHEN {self._lacks(name, are_numbers)} THEN -1 END"

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
            return f"(CASE WHEN {fits} THEN {one} {sign} {other} END)", [*why, *why_too, apart]
        return self._number(of), [self._no_number(of)]

    def _fit(self, first: str, second: str) -> tuple[str, str]:
        """Whether the numbers of two fields have one unit, or one has none; and whether code surely denies it."""
        one, other = self._unit(first), self._unit(second)
        fits = f"{one} = '' OR {other} = '' OR {one} = {other}"
        known = f"{self._number(first)} IS NOT NULL AND {self._number(second)} IS NOT NULL"
        return fits, f"NOT ({fits}) AND {known}"

    def _number(self, field: str) -> str:
        """The number that ``parse_quantity`` makes of a cell; NULL where that may be another, or none."""
        cell, digits, beyond = self._part(field)
        if field in self._mission.numeric:
            return self._add("compared", f"number of {field}", f"CAST({cell} AS DOUBLE PRECISION)")
        parts = [
            f"LTRIM({cell}, {quote(self._letters_of_numbers)}) = '' AND {cell} NOT LIKE '%-' AND {cell} NOT LIKE '%  %'",
            f"NOT ({self._is_malformed(digits)})",
            f"LTRIM({digits}, '+-.') <> '' AND NOT ({self._has_figures(beyond)})",
        ]
        number = f"CAST(SUBSTR({cell}, 1, LENGTH({cell}) - LENGTH({beyond})) AS DOUBLE PRECISION)"
        return self._add("compared", f"number of {field}", f"CASE WHEN {' AND '.join(parts)} THEN {number} END")

    def _no_number(self, field: str) -> str:
        """Whether code surely makes no number of a cell."""
        lacks, (cell, digits, beyond) = self._lacks(field, True), self._part(field)
        if field in self._mission.numeric:
            return lacks
        ends = f"LTRIM(SUBSTR({digits}, LENGTH({digits})), '{_DIGITS}') = ''"
        reasons = [
            f"LTRIM({digits}, '+-.') = ''",
            self._has_figures(beyond),
            f"({self._is_malformed(digits)}) AND {ends}",
            f"LTRIM({cell}, '-.{_DIGITS}') = '' AND {cell} LIKE '%-'",
        ]
        plain = [f"LTRIM({cell}, {quote(self._letters_of_numbers)}) = '' AND {cell} NOT LIKE '%  %'"]
        plain += [f"{cell} NOT LIKE '%{sign}%'" for sign in CURRENCIES]
        said = f"CASE WHEN {lacks} THEN 1 WHEN {' AND '.join(plain)} AND ({' OR '.join(reasons)}) THEN 1 END"
        return f"{self._add('compared', f'no number in {field}', said)} = 1"

    def _unit(self, field: str) -> str:
        """The unit of that number, as ``fold_unit`` leaves it."""
        beyond, stops = self._part(field)[2], quote(FULL_STOPS)
        plain = self._add("plain", f"plain unit of {field}", f"RTRIM(LTRIM({beyond}, {stops}), {stops})")
        is_symbol = f"LENGTH({plain}) <= {LONGEST_SYMBOL} AND SUBSTR({plain}, 1, 1) IN ({', '.join(map(quote, UNFOLDED))})"
        folded = f"CASE WHEN {is_symbol} THEN {plain} ELSE LOWER({plain}) END"
        is_many = f"LENGTH({plain}) >= {LONGEST_SYMBOL} AND SUBSTR({folded}, LENGTH({plain})) = 's'"
        unit = f"CASE WHEN {is_many} THEN SUBSTR({folded}, 1, LENGTH({plain}) - 1) ELSE {folded} END"
        return self._add("compared", f"unit of {field}", unit)

    def _part(self, field: str) -> tuple[str, str, str]:
        """A cell with a number; the signs, digits and points that it begins with; and what stands behind the number."""
        cell = self._cell(field, True)
        if field in self._mission.numeric:
            return cell, "''", "''"
        run = f"SUBSTR({cell}, 1, LENGTH({cell}) - LENGTH(LTRIM({cell}, '+-.{_DIGITS}')))"
        digits = self._add("digits", f"digits of {field}", run)
        rest = self._add("digits", f"rest of {field}", f"LTRIM({cell}, '+-.{_DIGITS}')")
        first, second = f"SUBSTR({rest}, 1, 1)", f"SUBSTR({rest}, 2, 1)"
        signed, bare = f"LTRIM(SUBSTR({rest}, 3), '{_DIGITS}')", f"LTRIM(SUBSTR({rest}, 2), '{_DIGITS}')"
        beyond = (
            f"CASE WHEN {first} IN ('e', 'E') AND {second} IN ('+', '-') AND {digits} NOT LIKE '%.'"
            f" AND LENGTH({rest}) - LENGTH({signed}) BETWEEN 3 AND 4 THEN {signed}"
            f" WHEN {first} IN ('e', 'E') AND {digits} LIKE '%.%_'"
            f" AND LENGTH({rest}) - LENGTH({bare}) BETWEEN 2 AND 3 THEN {bare}"
            f" ELSE {rest} END"
        )
        return cell, digits, self._add("beyond", f"beyond {field}", beyond)

    def _is_malformed(self, digits: str) -> str:
        unsigned = f"LTRIM(SUBSTR({digits}, 1, 1), '+-') || SUBSTR({digits}, 2)"
        return " OR ".join(f"{unsigned} LIKE '{pattern}'" for pattern in ("%+%", "%-%", "%.%.%"))

    def _has_figures(self, beyond: str) -> str:
        """Whether digits stand behind the number, but those of m2 and m3: a blank takes their place, or mm23 were m3."""
        letters = "".join(each for each in self._letters_of_numbers if each not in _DIGITS)
        return f"LTRIM(REPLACE(REPLACE({beyond}, 'm2', ' '), 'm3', ' '), {quote(letters)}) <> ''"

    # Cells

    def _text(self, field: str) -> str:
        """A column's text on one line; NULL where it is empty."""
        return self._add("texts", f"text of {field}", _tidy(self._raw(field)))

    def _raw(self, field: str) -> str:
        return self._add("fields", f"raw {field}", write_field(field))

    def _lacks(self, field: str, is_number: bool) -> str:
        """Whether a ticket surely does not tell a field: of counts, one that is not there is 0."""
        return NEVER if is_number and self._mission.is_counted is not False else f"{self._text(field)} IS NULL"

    def _cell(self, field: str, is_number: bool) -> str:
        """The same text with a point before decimals, with true and false in the place of 1 and 0, where it is one of these,
        and with 0 where an empty cell counts none. NULL, too, where SQL cannot know what code makes of a comma."""
        cell = text = self._text(field)
        if field in self._mission.booleans:
            cell = f"CASE {text} WHEN '1' THEN 'true' WHEN '0' THEN 'false' ELSE {text} END"
        if self._mission.columns.decimal == "," and field not in self._mission.numeric:
            cell = self._read_comma(text, self._raw(field))
        if is_number and self._mission.is_counted:
            return self._add("cells", f"count of {field}", f"CASE WHEN {text} IS NULL THEN '0' ELSE {cell} END")
        return cell if cell is text else self._add("cells", f"cell of {field}", cell)

    def _read_comma(self, text: str, raw: str) -> str:
        """What ``read_decimal`` makes of a text."""
        run = f"SUBSTR({text}, 1, LENGTH({text}) - LENGTH(LTRIM({text}, '+-{_DIGITS},')))"
        rest = f"LTRIM({text}, '+-{_DIGITS},')"
        unsigned = f"LTRIM(SUBSTR({run}, 1, 1), '+-') || SUBSTR({run}, 2)"
        is_one = f"{unsigned} LIKE '%_,_%' AND {unsigned} NOT LIKE '%,%,%' AND LTRIM({unsigned}, '{_DIGITS},') = ''"
        body, unit = f"SUBSTR({text}, 1, LENGTH({text}) - 1)", f"LTRIM(SUBSTR({rest}, 1, 1)) || SUBSTR({rest}, 2)"
        strange = " OR ".join(f"{unit} LIKE '%{each}%'" for each in f" .,:;{_DIGITS}")
        is_unit = f"{unit} <> '' AND NOT ({strange} OR SUBSTR({unit}, 1, 1) IN ('+', '/', '-'))"
        return (
            f"CASE WHEN {text} NOT LIKE '%,%' THEN {text}"
            f" WHEN {_strip(raw)} <> {text} THEN {text}"  # blanks of which one is no single space
            f" WHEN {text} LIKE '%_-' AND {is_one.replace(unsigned, body)} THEN '-' || REPLACE({body}, ',', '.')"
            f" WHEN NOT ({is_one}) THEN {text}"
            f" WHEN {rest} = '' OR ({is_unit}) THEN REPLACE({text}, ',', '.')"
            f" WHEN SUBSTR({rest}, 1, 1) NOT IN ('e', 'E') THEN {text} END"
        )

    def _folded(self, field: str, is_number: bool) -> str:
        """What compares with other values; NULL where SQL does not fold a cell as ``fold_value`` does."""
        cell = self._cell(field, is_number)
        name = f"compared {'count' if is_number and self._mission.is_counted else 'value'} of {field}"
        return self._add("compared", name, f"CASE WHEN {self._is_plain(cell)} THEN {_fold(cell)} END")

    def _is_plain(self, text: str) -> str:
        """Whether SQL folds a text as ``fold_value`` does."""
        return f"LTRIM({text}, {quote(self._letters)}) = '' AND {text} NOT LIKE '%  %'"


def is_one_of(number: str, values: Sequence[str]) -> str:
    """Whether a number is one of those among the values; NULL where it is."""
    listed = ", ".join(repr(found) for each in values if (found := parse_number(each)) is not None)
    return f"{number} IN ({listed})" if listed else f"{number} <> {number}"


def write_field(name: str) -> str:
    """A column as text, empty where it is NULL: what can be joined."""
    # With the table's name before it, since SQLite takes a quoted name that is no column for a text.
    return f"COALESCE(CAST(t.{quote_name(name)} AS TEXT), '')"


def _tell(held: str, untold: Sequence[str]) -> str:
    """1 or 0 by what is ``held``, -1 where code surely finds that a ticket does not tell."""
    why = " OR ".join(f"({each})" for each in dict.fromkeys(untold) if each != NEVER)
    return f"CASE WHEN {held} THEN 1 WHEN NOT ({held}) THEN 0{f' WHEN {why} THEN -1' if why else ''} END"


def _join(conditions: Sequence[str], are_all: bool) -> str:
    return f"({(' AND ' if are_all else ' OR ').join(conditions)})"


def count_true(conditions: Sequence[str], least: int) -> str:
    """Whether so many of them are true, or more."""
    return f"{' + '.join(f'CASE WHEN {each} THEN 1 ELSE 0 END' for each in conditions)} >= {least}"


def _tidy(text: str) -> str:
    """A text on one line, runs of blanks (up to eight) as one; NULL where it is empty."""
    for blank in _BLANKS:
        text = f"REPLACE({text}, CHAR({blank}), ' ')"
    for _ in range(3):
        text = f"REPLACE({text}, '  ', ' ')"
    return f"NULLIF(TRIM({text}), '')"


def _strip(text: str) -> str:
    """A text without blanks around it, whatever blanks are in it."""
    blanks = " || ".join(["' '", *(f"CHAR({blank})" for blank in _BLANKS)])
    return f"RTRIM(LTRIM({text}, {blanks}), {blanks})"


def _fold(text: str) -> str:
    """What ``fold_value`` makes of a plain text."""
    digits = f"LTRIM({text}, '-.{_DIGITS}') = '' AND LTRIM({text}, '-') NOT LIKE '.%' AND {text} LIKE '%.%_'"
    one_of_each = f"{text} NOT LIKE '%.%.%' AND SUBSTR({text}, 2) NOT LIKE '%-%'"
    number, word = f"RTRIM(RTRIM({text}, '0'), '.')", f"LOWER({text})"
    stopped = f"COALESCE(NULLIF(RTRIM({word}, ' .'), ''), {word})"
    return f"CASE WHEN {digits} AND {one_of_each} THEN {number} ELSE {stopped} END"


def _spell(value: str) -> Iterator[str]:
    """Ways to write a value that are folded to the same."""
    ways = (value, value.lower(), value.upper(), value.capitalize(), value.title(), fold_value(value))
    yield from (way for way in ways if fold_value(way) == fold_value(value))
