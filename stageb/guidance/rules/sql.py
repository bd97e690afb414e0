"""Rules as SQL: a query for each mission, whose verdicts are those of the rules as code, or NULL.

SQL cannot fold any text, so a comparison is made only where its functions fold a cell as ``value_types.py`` does.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby

from stageb.guidance.rules.export import CodedMission
from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points, atoms
from stageb.guidance.rules.judge import CodedRule
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.sql_conditions import (
    NEVER,
    NO_LIMIT,
    NO_WORDS,
    SIGNS,
    BeyondSql,
    Conditions,
    RuleTest,
    count_true,
    is_one_of,
    read_code,
    write_field,
)
from stageb.guidance.rules.sql_dialects import quote, quote_name
from stageb.guidance.rules.value_types import Computed, Reading, parse_number
from stageb.guidance.words.costs import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, PASS_FAIL, Verdict


def write_sql(missions: Sequence[CodedMission]) -> str:
    """A query for each mission over a table ``tickets`` that has a column for each field."""
    statements = [_write_query(limit_to_sql(mission), len(missions) > 1) for mission in missions]
    labels = dict.fromkeys(label for mission in missions for label in mission.coded.labels)
    header = _SQL_HEADER.format(verdicts=", ".join(map(quote, labels)))
    return "\n".join(f"-- {line}".rstrip() for line in header.split("\n")) + "\n\n" + "\n".join(statements)


def judge_rows(mission: CodedMission, rows: Sequence[Mapping[str, str]]) -> list[str | None]:
    """The verdicts of the query that is exported, tried with SQLite on rows of the mission: names of columns and cells."""
    columns = list(dict.fromkeys([*_list_fields(mission), *mission.columns_all]))
    quoted = [quote_name(name) for name in ("", *columns)]  # a table has one column at least
    with closing(sqlite3.connect(":memory:")) as opened:
        typed = [f"{quote_name(name)} DOUBLE PRECISION" if name in mission.numeric else quote_name(name) for name in columns]
        opened.execute(f"CREATE TABLE tickets ({', '.join([quoted[0], *typed])})")
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
            rule = replace(rule, code=BeyondSql(NO_WORDS, code=read_code(rule)))
        elif any(limit is None or math.isinf(limit) for limit in limits):
            rule = replace(rule, code=BeyondSql(NO_LIMIT, code=read_code(rule)))
        rules.append(rule)
    return replace(mission, coded=replace(mission.coded, each=rules))


def _limit_of(atom: Atom | Arithmetic) -> str:
    """The number that it compares with, as it is written; empty where that is another field's."""
    if atom.relation not in ("above", "below"):
        return ""
    return atom.values[0] if isinstance(atom, Atom) else str(atom.right)


_SQL_HEADER = """\
Learnt rules as SQL (stageb guidance export --format sql), tried with SQLite.
The table tickets has a column for each field that rules name, and for those by which a row is empty, if the query asks
whether it is: its value as text or number, NULL or empty where a ticket has none. verdict is {verdicts}, or NULL where the
rules cannot tell; rule is the key of the rule that decides, G0 where none speaks of the ticket. Each combination of values
is judged once: the subquery judged has a column for each comparison and each rule (1: it holds, 0: it does not, -1: the
ticket does not tell, NULL: SQL cannot know; of rules whose points are compared, how far above their least they are).
Values are compared as stageb predict --by rules compares them. SQL cannot fold all letters and numbers that exist: where a
cell holds letters that the tickets of the export did not, unless it is a value of the rule in small letters, in capitals or
with a capital at the beginning, or a number in a rare form, the comparison is NULL. CHAR(10) is a line break, CHR in
PostgreSQL and Oracle."""


def _write_query(mission: CodedMission, is_one_of_many: bool) -> str:
    lines = [f"-- mission {json.dumps(mission.name)}, step {mission.step}", *(f"-- {note}" for note in mission.notes)]
    texts = {rule.key: rule.text for rule in mission.coded.each}
    lines += [
        f"-- not written: {key}. {json.dumps(texts.get(key, ''))}: {json.dumps(why)}"
        for key, why in mission.unreadable.items()
    ]
    of_mission = f" WHERE t.mission = {quote(mission.name)}" if is_one_of_many else ""
    conditions, is_empty = Conditions(mission), _write_empty(mission)
    is_typed = _are_numbers(mission)
    tests = [(rule, _name_typed(rule, mission) if is_typed else conditions.name(rule)) for rule in mission.coded.each]
    choose = _choose_first if has_labels(mission.coded.labels) else _choose_by_side
    verdicts, keys = choose(tests, mission.coded.labels[0])
    if is_typed or not conditions.stages["fields"]:
        first = [f"WHEN {is_empty} THEN NULL"] if is_empty else []
        said = [f"-- {rule.key}{' (provisional)' * rule.is_provisional}. {json.dumps(rule.text)}" for rule, _ in tests]
        choice = ",\n".join(_write_cases(name, [*first, *of]) for name, of in (("verdict", verdicts), ("rule", keys)))
        return "\n".join([*lines, *(said if is_typed else []), f"SELECT t.*,\n{choice}\nFROM tickets AS t{of_mission};", ""])
    return "\n".join([*lines, *_write_stages(conditions, (verdicts, keys), is_empty, of_mission), ""])


def _write_stages(
    conditions: Conditions, chosen: tuple[Sequence[str], Sequence[str]], is_empty: str, of_mission: str
) -> list[str]:
    """The query whose subqueries are the ``conditions``' stages, and what is chosen by them: verdict and rule."""
    judged = {name: _write_cases(name, cases) for name, cases in zip(("verdict", "rule"), chosen, strict=True)}
    stages, columns, before = [], "", f"tickets AS t{of_mission}"
    for name, stage in {**conditions.stages, "judged": judged}.items():
        if stage:
            said = ",\n".join(stage.values())
            # DISTINCT, since SQLite would work out a column anew wherever a later one names it: six times the time.
            stages.append(f"{name} AS (\n  SELECT DISTINCT{columns}\n{said}\n  FROM {before}\n)")
            columns, before = " t.*,", f"{name} AS t"
    fields = conditions.stages["fields"]
    found = "\n    AND ".join(f"j.{quote_name(raw)} = {write_field(raw.removeprefix('raw '))}" for raw in fields)
    told = [f"CASE WHEN {is_empty} THEN NULL ELSE j.{name} END AS {name}" if is_empty else f"j.{name}" for name in judged]
    return [
        f"WITH {', '.join(stages)}",
        f"SELECT t.*, {', '.join(told)}",
        f"FROM tickets AS t LEFT JOIN judged AS j\n  ON {found}{of_mission};",
    ]


def _write_empty(mission: CodedMission) -> str:
    """Whether a row says nothing at all, which code gives no verdict; empty where rules give such a row none either, or
    nothing is known of the columns."""
    rules = [replace(rule, code=read_code(rule) or rule.code) for rule in mission.coded.each]
    if replace(mission.coded, each=rules).compile()(Reading({}, frozenset())).verdict is None:
        return ""
    return " AND ".join(f"TRIM({write_field(name)}) = ''" for name in mission.columns_all)


def _write_cases(name: str, cases: Sequence[str]) -> str:
    return "\n".join(["    CASE", *(f"      {each}" for each in cases), f"    END AS {name}"])


_Told = tuple[CodedRule, RuleTest]  # a rule, and what says whether it holds


def _any(conditions: Iterable[str]) -> str:
    """Whether any of them is true; empty where none ever is."""
    return " OR ".join(dict.fromkeys(each for each in conditions if each != NEVER))


def _decide(test: RuleTest, said: str, doubts: Iterable[str]) -> list[str]:
    """The cases that say it where a rule holds, and nothing where any of the ``doubts`` is true, too."""
    if test.holds == NEVER:
        return []
    doubt = _any(doubts)
    return [*([f"WHEN {test.holds} AND ({doubt}) THEN NULL"] if doubt else []), f"WHEN {test.holds} THEN {quote(said)}"]


def _choose_by_side(tests: Sequence[_Told], default: Verdict) -> tuple[list[str], list[str]]:
    """The cases of the verdict, and of its rule: any that passes wins over one that fails, and where none holds, ``default``
    does."""
    read = [(rule.key, test, read_code(rule)) for rule, test in tests]
    passes, fails = (
        [(key, test) for key, test, code in read if code is None or code.verdict == verdict] for verdict in PASS_FAIL
    )

    def name_first(side: Sequence[tuple[str, RuleTest]]) -> Iterator[str]:
        for place, (key, test) in enumerate(side):
            yield from _decide(test, key, (earlier.is_lost for _, earlier in side[:place]))

    verdicts, keys = list[str](), [*name_first(passes)]
    if held := _any(test.holds for _, test in passes):
        verdicts.append(f"WHEN {held} THEN 'pass'")
    if default == "pass":
        none_fails = " AND ".join(test.fails for _, test in fails) or "1 = 1"
        verdicts.append(f"WHEN {none_fails} THEN 'pass'")
        if lost := _any(test.is_lost for _, test in passes):
            keys.append(f"WHEN {none_fails} AND ({lost}) THEN NULL")
        keys.append(f"WHEN {none_fails} THEN {quote(HEADLINE_KEY)}")
    if is_open := _any(test.is_open for _, test in passes):
        verdicts.append(f"WHEN {is_open} THEN NULL")
        keys.append(f"WHEN {is_open} THEN NULL")
    if default == "pass":
        if failed := _any(test.holds for _, test in fails):
            verdicts.append(f"WHEN {failed} THEN 'fail'")
        return verdicts, [*keys, *name_first(fails)]
    keys += name_first(fails)
    if lost := _any(test.is_lost for _, test in fails):
        keys.append(f"WHEN {lost} THEN NULL")
    return [*verdicts, "WHEN 1 = 1 THEN 'fail'"], [*keys, f"WHEN 1 = 1 THEN {quote(HEADLINE_KEY)}"]


def _choose_first(tests: Sequence[_Told], default: Verdict) -> tuple[list[str], list[str]]:
    """The same where the first rule wins, of several with points side by side the one that is furthest above, and
    ``default`` where none holds: NULL where an earlier one of another verdict may."""
    verdicts, keys, earlier = list[str](), list[str](), list[tuple[Verdict, RuleTest]]()

    def find_doubts(verdict: Verdict, names_rule: bool) -> Iterator[str]:
        for other, test in earlier:
            if other != verdict:
                yield test.is_open
            elif names_rule:
                yield test.is_lost

    def may_be_compared(told: _Told) -> bool:
        code = read_code(told[0])
        return code is None or isinstance(code.expression, Points)

    for is_compared, group in groupby(tests, may_be_compared):
        run = [(rule.key, read_code(rule), test) for rule, test in group]
        if is_compared and not all(test.above for _, _, test in run):  # whatever holds, one that nobody knows may win
            return [*verdicts, "WHEN 1 = 1 THEN NULL"], [*keys, "WHEN 1 = 1 THEN NULL"]
        if is_compared and (lost := _any(test.is_lost for _, _, test in run)):
            verdicts.append(f"WHEN {lost} THEN NULL")
            keys.append(f"WHEN {lost} THEN NULL")
        for key, code, test in run:
            assert code is not None  # as of those that are compared
            if is_compared:  # of equal ones the first stands first
                most = [f"{test.above} >= {other.above}" for _, _, other in run if other is not test]
                test = test._replace(holds=" AND ".join([test.holds, *most]))
            verdicts += _decide(test, code.verdict, find_doubts(code.verdict, names_rule=False))
            keys += _decide(test, key, find_doubts(code.verdict, names_rule=True))
            earlier += [] if is_compared else [(code.verdict, test)]
    for cases, said, names_rule in ((verdicts, default, False), (keys, HEADLINE_KEY, True)):
        doubt = _any(find_doubts(default, names_rule))
        cases += [f"WHEN {doubt} THEN NULL"] if doubt else []
        cases.append(f"WHEN 1 = 1 THEN {quote(said)}")
    return verdicts, keys


# Where all fields that rules name are numbers in the table, SQL's own three answers are those of code.


def _list_fields(mission: CodedMission) -> list[str]:
    """The fields that rules name."""
    named = [atoms(rule.code.expression) for rule in mission.coded.each if isinstance(rule.code, RuleCode)]
    return list(dict.fromkeys(name for each in named for atom in each for name in atom.fields))


def _are_numbers(mission: CodedMission) -> bool:
    """Whether the fields that rules name are numbers in the table, one at the least, all of them."""
    named = _list_fields(mission)
    return bool(named) and mission.numeric.issuperset(named)


def _name_typed(rule: CodedRule, mission: CodedMission) -> RuleTest:
    """What says whether a rule holds whose fields are numbers in the table."""
    if isinstance(rule.code, OutOfReach):
        return Conditions(mission).name(rule)
    told = rule.code.expression
    if isinstance(told, Points):
        total, is_compared = _sum_typed(told), has_labels(mission.coded.labels)
        above = f"({total} - ({told.least}))" if is_compared else ""
        return RuleTest(f"{total} >= {told.least}", f"{total} < {told.least}", NEVER, NEVER, above)
    said = _write_typed(told)
    return RuleTest(f"({said})", f"NOT ({said})", f"({said}) IS NULL", NEVER)


def _write_typed(expression: Expression) -> str:
    if isinstance(expression, Not):
        return f"NOT ({_write_typed(expression.part)})"
    if isinstance(expression, Arithmetic):
        right = expression.right
        other = _compute_typed(right) if isinstance(right, Computed) else repr(parse_number(right))
        return f"{_compute_typed(expression.left)} {SIGNS[expression.relation]} {other}"
    if isinstance(expression, Atom):
        column = f"t.{quote_name(expression.name)}"
        if expression.relation == "missing":
            return f"{column} IS NULL"
        if expression.relation == "is":
            return is_one_of(column, expression.values)
        value = expression.values[0]
        if expression.relation in ("above", "below"):
            return f"{column} {SIGNS[expression.relation]} {parse_number(value)!r}"
        sign = {"equals": "=", "differs": "<>"}.get(expression.relation) or SIGNS[expression.relation]
        return f"{column} {sign} t.{quote_name(value)}"
    if isinstance(expression, Points):
        return f"{_sum_typed(expression)} >= {expression.least}"
    parts = [f"({_write_typed(part)})" for part in expression.parts]
    if not isinstance(expression, AtLeast):
        return (" AND " if isinstance(expression, All) else " OR ").join(parts)
    true = count_true(parts, expression.count)
    possible = " + ".join(f"CASE WHEN NOT {part} THEN 0 ELSE 1 END" for part in parts)
    return f"CASE WHEN {true} THEN 1 = 1 WHEN {possible} < {expression.count} THEN 1 = 0 END"


def _sum_typed(told: Points) -> str:
    scored = (f"CASE WHEN {_write_typed(part)} THEN {points} ELSE 0 END" for points, part in told.parts)
    return f"({' + '.join(scored)})"


def _compute_typed(computed: Computed) -> str:
    first, other = (f"t.{quote_name(name)}" for name in (computed.first, computed.second))
    if computed.operator == "/":
        return f"(1.0 * {first} / NULLIF({other}, 0))"
    return f"(1.0 * {first} {computed.operator.replace('×', '*')} {other})"
