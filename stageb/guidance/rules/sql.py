"""Rules as SQL: a query for each mission, whose verdicts are those of the rules as code, or NULL.

SQL cannot fold any text, so a comparison is made only where its functions fold a cell as ``value_types.py`` does.
"""

from __future__ import annotations

import json
import math
import sqlite3
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby

from stageb.guidance.rules.export import CodedMission
from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points, atoms
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.value_types import (
    GOES_ON,
    LONGEST_SYMBOL,
    UNFOLDED,
    Computed,
    fold_unit,
    fold_value,
    parse_number,
    parse_quantity,
)
from stageb.guidance.words.costs import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, Verdict

NO_WORDS = OutOfReach("SQL sees columns, and no words of free text")
NO_LIMIT = OutOfReach("its limit is no number that SQL can hold")


def write_sql(missions: Sequence[CodedMission]) -> str:
    """A query for each mission over a table ``tickets`` that has a column for each field."""
    statements = [_write_query(limit_to_sql(mission), len(missions) > 1) for mission in missions]
    labels = dict.fromkeys(label for mission in missions for label in mission.coded.labels)
    header = _SQL_HEADER.format(verdicts=", ".join(map(_quote, labels)))
    return "\n".join(f"-- {line}".rstrip() for line in header.split("\n")) + "\n\n" + "\n".join(statements)


def judge_rows(mission: CodedMission, rows: Sequence[Mapping[str, str]]) -> list[str | None]:
    """The verdicts of the query that is exported, tried with SQLite on rows of the mission: names of columns and cells."""
    named = [atoms(rule.code.expression) for rule in mission.coded.each if isinstance(rule.code, RuleCode)]
    columns = list(dict.fromkeys(name for atoms_ in named for atom in atoms_ for name in atom.fields))
    quoted = [_quote_name(name) for name in ("", *columns)]  # a table has one column at least
    with closing(sqlite3.connect(":memory:")) as opened:
        opened.execute(f"CREATE TABLE tickets ({', '.join(quoted)})")
        marks = ", ".join("?" * len(quoted))
        opened.executemany(f"INSERT INTO tickets VALUES ({marks})", [["", *map(row.get, columns)] for row in rows])
        return [found[-2] for found in opened.execute(_write_query(mission, is_one_of_many=False))]


def limit_to_sql(mission: CodedMission) -> CodedMission:
    """The mission with what SQL cannot say marked as out of reach."""
    rules = []
    for rule in mission.coded.each:
        named = list(atoms(rule.code.expression)) if isinstance(rule.code, RuleCode) else []
        limits = [parse_number(limit) for atom in named if (limit := _limit_of(atom))]
        if any(atom.relation == "mentions" for atom in named):
            rule = replace(rule, code=NO_WORDS)
        elif any(limit is None or math.isinf(limit) for limit in limits):
            rule = replace(rule, code=NO_LIMIT)
        rules.append(rule)
    return replace(mission, coded=replace(mission.coded, each=rules))


def _limit_of(atom: Atom | Arithmetic) -> str:
    """The number that it compares with, as it is written; empty where that is another field's."""
    if atom.relation not in ("above", "below"):
        return ""
    return atom.values[0] if isinstance(atom, Atom) else str(atom.right)


_SQL_HEADER = """\
Learnt rules as SQL (stageb guidance export --format sql), tried with SQLite.
The table tickets has a column for each field that rules name: its value as text or number, NULL or empty where a ticket has
none. verdict is {verdicts}, or NULL where the rules cannot tell; rule is the key of the rule that decides, G0 where none
speaks of the ticket. Each combination of values is judged once: the subquery judged has a column for each rule, whether it
holds, or how far above its least the points are of one that is compared, and those that it goes by. Values are compared as
stageb predict --by rules compares them. SQL cannot fold all letters and numbers that exist: where a cell holds letters that
the tickets of the export did not, unless it is a value of the rule in small letters, in capitals or with a capital at the
beginning, or a number in a rare form, the comparison is NULL. CHAR(10) is a line break, CHR in PostgreSQL and Oracle."""


def _write_query(mission: CodedMission, is_one_of_many: bool) -> str:
    conditions = _Conditions(mission)
    tests = [(rule, conditions.name(rule)) for rule in mission.coded.each]
    choose = _choose_first if has_labels(mission.coded.labels) else _choose_by_side
    verdicts, keys = choose(tests, mission.coded.labels[0])
    lines = [f"-- mission {json.dumps(mission.name)}, step {mission.step}", *(f"-- {note}" for note in mission.notes)]
    texts = {rule.key: rule.text for rule in mission.coded.each}
    lines += [
        f"-- not written: {key}. {json.dumps(texts.get(key, ''))}: {json.dumps(why)}"
        for key, why in mission.unreadable.items()
    ]
    of_mission = f" WHERE t.mission = {_quote(mission.name)}" if is_one_of_many else ""
    judged = {"verdict": _write_cases("verdict", verdicts), "rule": _write_cases("rule", keys)}
    fields = conditions.stages["fields"]
    if not fields:
        choice = ",\n".join(judged.values())
        return "\n".join([*lines, f"SELECT t.*,\n{choice}\nFROM tickets AS t{of_mission};", ""])
    stages, columns, before = [], "", f"tickets AS t{of_mission}"
    for name, stage in {**conditions.stages, "judged": judged}.items():
        if stage:
            said = ",\n".join(stage.values())
            # DISTINCT, since SQLite would work out a column anew wherever a later one names it: six times the time.
            stages.append(f"{name} AS (\n  SELECT DISTINCT{columns}\n{said}\n  FROM {before}\n)")
            columns, before = " t.*,", f"{name} AS t"
    found = "\n    AND ".join(f"j.{_quote_name(raw)} = {_field(raw.removeprefix('raw '))}" for raw in fields)
    return "\n".join(
        [
            *lines,
            f"WITH {', '.join(stages)}",
            "SELECT t.*, j.verdict, j.rule",
            f"FROM tickets AS t LEFT JOIN judged AS j\n  ON {found}{of_mission};",
            "",
        ]
    )


def _write_cases(name: str, cases: Sequence[str]) -> str:
    return "\n".join(["    CASE", *(f"      {each}" for each in cases), f"    END AS {name}"])


_Test = tuple[CodedRule, str]  # a rule, and what says whether it holds


def _choose_by_side(tests: Sequence[_Test], default: Verdict) -> tuple[list[str], list[str]]:
    """The cases of the verdict, and of its rule: any that passes wins over one that fails, and where none holds, ``default``
    does."""
    sides: dict[str, list[tuple[str, str]]] = {"pass": [], "fail": []}  # by verdict: keys and conditions
    for rule, test in tests:
        for verdict, side in sides.items():
            if isinstance(rule.code, OutOfReach) or rule.code.verdict == verdict:
                side.append((rule.key, test))
    passes, fails = ("(" + (" OR ".join(test for _, test in side) or "1 = 0") + ")" for side in sides.values())
    unknown = f"WHEN {passes} IS NULL THEN NULL"
    by_pass, by_fail = (
        [f"WHEN {test} THEN {_quote(key)}" for key, test in side if test != "NULL"] for side in sides.values()
    )
    if default == "fail":
        keys = [*by_pass, unknown, *by_fail, f"ELSE {_quote(HEADLINE_KEY)}"]
        return [f"WHEN {passes} THEN 'pass'", unknown, "ELSE 'fail'"], keys
    spoken = [f"WHEN {passes} THEN 'pass'", f"WHEN NOT {fails} THEN 'pass'", unknown, f"WHEN {fails} THEN 'fail'"]
    return spoken, [*by_pass, f"WHEN NOT {fails} THEN {_quote(HEADLINE_KEY)}", unknown, *by_fail]


def _choose_first(tests: Sequence[_Test], default: Verdict) -> tuple[list[str], list[str]]:
    """The same where the first rule wins, of several with points side by side the one that is furthest above, and
    ``default`` where none holds: NULL where an earlier one of another verdict may."""
    verdicts, keys = list[str](), list[str]()

    def find_verdict(told: _Test) -> Verdict | None:
        """None of a rule that is compared, or that may be."""
        code = told[0].code
        return code.verdict if isinstance(code, RuleCode) and not isinstance(code.expression, Points) else None

    for verdict, group in groupby(tests, find_verdict):
        run = list(group)
        held = f"({(' OR ' if verdict else ' + ').join(test for _, test in run)})"
        verdicts += [f"WHEN {held} THEN {_quote(verdict)}"] if verdict else []
        keys += [f"WHEN {test} THEN {_quote(rule.key)}" for rule, test in run if verdict]
        for cases in (verdicts, keys):
            cases.append(f"WHEN {held} IS NULL THEN NULL")
        for rule, above in run:
            if not verdict and isinstance(rule.code, RuleCode):
                is_most = " AND ".join([f"{above} >= 0", *(f"{above} >= {other}" for _, other in run if other != above)])
                verdicts.append(f"WHEN {is_most} THEN {_quote(rule.code.verdict)}")
                keys.append(f"WHEN {is_most} THEN {_quote(rule.key)}")
    return [*verdicts, f"ELSE {_quote(default)}"], [*keys, f"ELSE {_quote(HEADLINE_KEY)}"]


_SIGNS: Mapping[str, str] = {"above": ">", "over": ">", "below": "<", "under": "<"}
_ASCII = "".join(letter for letter in string.printable if letter.isprintable())
_BLANKS = (10, 9, 160)  # line break, tab, no-break space; other cells with blanks of their own are not compared
_DIGITS = "0123456789"


class _Conditions:
    """Conditions on a mission's tickets in SQL: true or false as they are as code, or NULL.

    ``stages`` are the subqueries that make the columns which conditions name, each from the one before: the fields of rules,
    what their cells say, how they compare, the numbers in them, and whether each rule holds.
    """

    def __init__(self, mission: CodedMission) -> None:
        self.stages: dict[str, dict[str, str]] = {each: {} for each in ("fields", "texts", "cells", "compared", "rules")}
        self._mission = mission
        self._letters = _quote(_ASCII + mission.letters)
        self._letters_of_numbers = _quote(
            _ASCII + "".join(each for each in mission.letters if each not in GOES_ON and not each.isdecimal())
        )

    def name(self, rule: CodedRule) -> str:
        """A rule's column, the rule beside it: whether it holds, or if it is compared, how far its limit is exceeded."""
        if isinstance(rule.code, OutOfReach):
            return "NULL"
        said = f"-- {rule.key}{' (provisional)' * rule.is_provisional}. {json.dumps(rule.text)}\n    "
        told = rule.code.expression
        if isinstance(told, Points) and has_labels(self._mission.coded.labels):
            return self._add("rules", rule.key, f"{self._sum_up(told)} - ({told.least})", said)
        return self._add("rules", rule.key, self.write(told), said)

    def _add(self, stage: str, name: str, condition: str, said: str = "") -> str:
        """A column of a stage, by the name that it is called from now on."""
        self.stages[stage].setdefault(name, f"    {said}{condition} AS {_quote_name(name)}")
        return f"t.{_quote_name(name)}"

    def write(self, expression: Expression) -> str:
        """The condition."""
        if isinstance(expression, Not):
            return f"NOT ({self.write(expression.part)})"
        if isinstance(expression, Atom):
            return self._compare(expression)
        if isinstance(expression, Arithmetic):
            left, right, sign = self._compute(expression.left), expression.right, _SIGNS[expression.relation]
            return f"{left} {sign} {self._compute(right) if isinstance(right, Computed) else repr(parse_number(right))}"
        if isinstance(expression, AtLeast):
            return self._count(expression)
        if isinstance(expression, Points):
            return f"{self._sum_up(expression)} >= {expression.least}"
        join = " AND " if isinstance(expression, All) else " OR "
        return join.join(f"({self.write(part)})" for part in expression.parts)

    def _sum_up(self, expression: Points) -> str:
        return " + ".join(self._score(points, part) for points, part in expression.parts)

    def _score(self, points: int, part: Expression) -> str:
        """The points of a part: 0 where the ticket does not tell, and unknown where SQL cannot."""
        held = f"({self.write(part)})"
        names = dict.fromkeys(name for atom in atoms(part) for name in atom.fields)
        untold = " OR ".join(f"{self._cell(name, True)} IS NULL" for name in names)
        return f"CASE WHEN {held} THEN {points} WHEN NOT {held} OR {untold} THEN 0 END"

    def _count(self, expression: AtLeast) -> str:
        """Unknown only where the parts that are unknown could turn it."""
        parts = [f"({self.write(part)})" for part in expression.parts]
        true = " + ".join(f"CASE WHEN {part} THEN 1 ELSE 0 END" for part in parts)
        possible = " + ".join(f"CASE WHEN NOT {part} THEN 0 ELSE 1 END" for part in parts)
        return f"CASE WHEN {true} >= {expression.count} THEN 1 = 1 WHEN {possible} < {expression.count} THEN 1 = 0 END"

    def _compare(self, atom: Atom) -> str:
        name, value = atom.name, (*atom.values, "")[0]
        if atom.relation == "missing":
            return self._is_missing(name)
        if atom.relation == "is":
            return self._is_one_of(name, atom.values)
        if atom.relation in ("equals", "differs"):
            one, other = (self._cell(each, True) for each in (name, value))
            alike = f"CASE WHEN {one} = {other} THEN 1 = 1 ELSE {self._folded(name, True)} = {self._folded(value, True)} END"
            return alike if atom.relation == "equals" else f"NOT {alike}"
        if atom.relation in ("over", "under"):
            return self._relate(name, value, _SIGNS[atom.relation])
        limit = parse_quantity(value)
        assert limit is not None  # ``limit_to_sql`` saw to it
        held = f"{self._number(name)} {_SIGNS[atom.relation]} {limit.number!r}"
        if limit.unit:
            same = [each for each in ("", limit.unit, f"{limit.unit}s") if fold_unit(each) in ("", limit.unit)]
            is_symbol = limit.unit[:1] in UNFOLDED and len(limit.unit) <= LONGEST_SYMBOL
            unit = self._unit(name) if is_symbol else f"LOWER({self._unit(name)})"
            held = f"CASE WHEN {unit} IN ({', '.join(map(_quote, same))}) THEN {held} END"
        return held

    def _is_missing(self, name: str) -> str:
        text = self._text(name)
        if self._mission.is_counted:
            return "1 = 0"
        return f"CASE WHEN {text} IS NULL THEN 1 = 1 WHEN {self._is_plain(text)} THEN 1 = 0 END"

    def _is_one_of(self, name: str, values: Sequence[str]) -> str:
        are_numbers = all(parse_number(each) is not None for each in values)
        folded = dict.fromkeys(map(fold_value, values))
        spelled = dict.fromkeys(each for value in values for each in _spell(value))
        listed, plain = (", ".join(map(_quote, each)) for each in (spelled, folded))
        cell, compared = self._cell(name, are_numbers), self._folded(name, are_numbers)
        return f"CASE WHEN {cell} IN ({listed}) THEN 1 = 1 ELSE {compared} IN ({plain}) END"

    def _compute(self, computed: Computed) -> str:
        first, sign, second = computed
        if sign in ("+", "-"):
            return self._relate(first, second, sign)
        one, other = self._number(first), self._number(second)
        return f"({one} / NULLIF({other}, 0))" if sign == "/" else f"({one} * {other})"

    def _relate(self, first: str, second: str, sign: str) -> str:
        """What holds of two columns' numbers, or what they come to; NULL where their units differ."""
        one, other = self._unit(first), self._unit(second)
        units = f"{one} = '' OR {other} = '' OR {one} = {other}"
        return f"(CASE WHEN {units} THEN {self._number(first)} {sign} {self._number(second)} END)"

    def _text(self, field: str) -> str:
        """A column's text on one line; NULL where it is empty."""
        return self._add("texts", f"text of {field}", _tidy(self._add("fields", f"raw {field}", _field(field))))

    def _cell(self, field: str, is_number: bool) -> str:
        """The same with a point before decimals, and 0 where an empty cell counts none."""
        cell = text = self._text(field)
        if self._mission.columns.decimal == ",":
            rest = f"LTRIM({text}, '+-{_DIGITS},')"
            is_number_with_comma = (
                f"{text} LIKE '%_,_%' AND LTRIM({text}, '+-') NOT LIKE ',%' AND {text} NOT LIKE '%,%,%' AND {rest} = ''"
            )
            with_point = f"WHEN {is_number_with_comma} THEN REPLACE({text}, ',', '.')"
            cell = f"CASE {with_point} WHEN {text} NOT LIKE '%,%' OR {rest} = {text} THEN {text} END"
        if is_number and self._mission.is_counted:
            return self._add("cells", f"count of {field}", f"COALESCE({cell}, '0')")
        return cell if cell is text else self._add("cells", f"cell of {field}", cell)

    def _folded(self, field: str, is_number: bool) -> str:
        """What compares with other values; NULL where SQL does not fold a cell as ``fold_value`` does."""
        cell = self._cell(field, is_number)
        name = f"compared {'count' if is_number and self._mission.is_counted else 'value'} of {field}"
        return self._add("compared", name, f"CASE WHEN {self._is_plain(cell)} THEN {_fold(cell)} END")

    def _is_plain(self, text: str) -> str:
        """Whether SQL folds a text as ``fold_value`` does."""
        return f"LTRIM({text}, {self._letters}) = '' AND {text} NOT LIKE '%  %'"

    def _number(self, field: str) -> str:
        """The number that ``parse_quantity`` makes of a column's text."""
        return self._add("compared", f"number of {field}", f"(SELECT x FROM {self._quantity(field)} AS c)")

    def _unit(self, field: str) -> str:
        """The unit of that number."""
        return self._add("compared", f"unit of {field}", f"(SELECT unit FROM {self._quantity(field)} AS c)")

    def _quantity(self, field: str) -> str:
        """A table of one row: ``x``, the number, and its ``unit``."""
        cell = f"(SELECT {self._cell(field, True)} AS x) AS c"
        parts = f"(SELECT x, LTRIM(x, '+-.{_DIGITS}') AS rest FROM {cell}) AS c"
        digits = "SUBSTR(x, 1, LENGTH(x) - LENGTH(rest))"
        first, second = "SUBSTR(rest, 1, 1)", "SUBSTR(rest, 2, 1)"
        signed, bare = f"LTRIM(SUBSTR(rest, 3), '{_DIGITS}')", f"LTRIM(SUBSTR(rest, 2), '{_DIGITS}')"
        beyond = (
            f"CASE WHEN {first} IN ('e', 'E') AND {second} IN ('+', '-') AND {digits} NOT LIKE '%.'"
            f" AND LENGTH(rest) - LENGTH({signed}) BETWEEN 3 AND 4 THEN {signed}"
            f" WHEN {first} IN ('e', 'E') AND {digits} LIKE '%.%_'"
            f" AND LENGTH(rest) - LENGTH({bare}) BETWEEN 2 AND 3 THEN {bare}"
            " ELSE rest END"
        )
        parts = f"(SELECT x, {digits} AS digits, {beyond} AS beyond FROM {parts}) AS c"
        unsigned = "LTRIM(SUBSTR(digits, 1, 1), '+-') || SUBSTR(digits, 2)"
        # A blank stands for m2 and for m3, since without one mm23 is m3.
        figures = [f"REPLACE(REPLACE(beyond, 'm2', ' '), 'm3', ' ') NOT LIKE '%{figure}%'" for figure in _DIGITS]
        is_number = " AND ".join(
            [
                f"LTRIM(x, {self._letters_of_numbers}) = ''",
                f"{unsigned} NOT LIKE '%+%' AND {unsigned} NOT LIKE '%-%' AND {unsigned} NOT LIKE '%.%.%'",
                f"REPLACE({unsigned}, '.', '') <> '' AND x NOT LIKE '%-' AND x NOT LIKE '%  %'",
                *figures,
            ]
        )
        number = "CAST(SUBSTR(x, 1, LENGTH(x) - LENGTH(beyond)) AS DOUBLE PRECISION)"
        return f"(SELECT CASE WHEN {is_number} THEN {number} END AS x, RTRIM(TRIM(beyond), ' .') AS unit FROM {parts})"


def _field(name: str) -> str:
    """A column as text, empty where it is NULL: what can be joined."""
    # With the table's name before it, since SQLite takes a quoted name that is no column for a text.
    return f"COALESCE(CAST(t.{_quote_name(name)} AS TEXT), '')"


def _tidy(text: str) -> str:
    """A text on one line; NULL where it is empty."""
    for blank in _BLANKS:
        text = f"REPLACE({text}, CHAR({blank}), ' ')"
    return f"NULLIF(TRIM(REPLACE({text}, '  ', ' ')), '')"


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


def _quote_name(name: str) -> str:
    """The name of a column."""
    return '"' + name.replace('"', '""') + '"'


def _quote(text: str) -> str:
    """A literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
