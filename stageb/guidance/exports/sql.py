"""Rules as SQL: a query for each mission, whose verdicts are those of the rules as code, or NULL.

SQL cannot fold any text, so a comparison is made only where its functions fold a cell as
``value_types.py`` does.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby

from stageb.errors import InputError, shown
from stageb.guidance.exports.protocol import CodedMission, Exported, UnsaidError, list_unwritten
from stageb.guidance.exports.sql_cells import ALWAYS, NEVER, CellColumns
from stageb.guidance.exports.sql_conditions import (
    BeyondSql,
    Conditions,
    RuleTest,
    TypedConditions,
    describe_rule,
    read_code,
)
from stageb.guidance.exports.sql_dialects import DIALECTS, Dialect
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.fields import write_decimal
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.words.automation import PERSON, STAGEB
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, PASS_FAIL, Ticket, Verdict


class SqlExporter:
    """A query for each mission over a table ``tickets``."""

    is_typed = False

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The queries. Raises ``InputError`` where they could judge no ticket of a mission."""
        written = [limit_to_sql(mission) for mission in missions]
        untold = [
            line
            for each in zip(missions, written, strict=True)
            if (line := _describe_untold(*each))
        ]
        return Exported(write_sql(missions, dialect), [*list_unwritten(written), *untold])


def write_sql(missions: Sequence[CodedMission], dialect: Dialect = DIALECTS["sqlite"]) -> str:
    """A query for each mission over a table ``tickets`` that has a column for each field."""
    statements = [write_query(mission, dialect, len(missions) > 1) for mission in missions]
    labels = dict.fromkeys(label for mission in missions for label in mission.coded.labels)
    return f"{write_header(labels, dialect)}\n" + "\n".join(f"{each};\n" for each in statements)


def write_header(labels: Iterable[Verdict], dialect: Dialect) -> str:
    """Comments for a reader of the query."""
    header = _SQL_HEADER.format(
        title=dialect.title, tried=dialect.tried, verdicts=", ".join(map(dialect.quote, labels))
    )
    return "".join(f"-- {line}".rstrip() + "\n" for line in header.split("\n"))


def write_query(
    mission: CodedMission, dialect: Dialect, is_one_of_many: bool = False, table: str = "tickets"
) -> str:
    """The query over a table of this name; ``is_one_of_many``: of its rows those of the mission
    alone."""
    return _Query(limit_to_sql(mission), dialect, table).write(is_one_of_many)


Ruled = tuple[str | None, str | None]
"""A verdict, and the key of the rule that gives it."""


def judge_rows(mission: CodedMission, rows: Sequence[Mapping[str, str]]) -> list[Ruled]:
    """Verdict and rule of the query that is exported, tried with SQLite on rows of the mission:
    names of columns and cells."""
    dialect = DIALECTS["sqlite"]
    columns = list(dict.fromkeys([*list_fields(mission), *mission.columns_all]))
    quoted = [dialect.name(name) for name in ("", *columns)]  # a table has one column at least
    with closing(sqlite3.connect(":memory:")) as opened:
        typed = [
            f"{dialect.name(name)}{' DOUBLE PRECISION' * (name in mission.numeric)}"
            for name in columns
        ]
        opened.execute(f"CREATE TABLE tickets ({', '.join([quoted[0], *typed])})")
        marks = ", ".join("?" * len(quoted))
        opened.executemany(
            f"INSERT INTO tickets VALUES ({marks})", [["", *map(row.get, columns)] for row in rows]
        )
        return [
            found[-2:]
            for found in opened.execute(write_query(replace(mission, automation=None), dialect))
        ]


def list_cells(mission: CodedMission, ticket: Ticket) -> dict[str, str]:
    """The cells of a known ticket by their columns' names."""
    cells = dict(ticket.content.fields) if ticket.content else reading(ticket).pairs
    return {name: write_decimal(cell, mission.columns.decimal) for name, cell in cells.items()}


TRIED = 2000  # known tickets, at most, that exported SQL is tried on


def try_known(mission: CodedMission) -> list[tuple[Ticket, dict[str, str], Ruled, Ruled]]:
    """The known tickets, at most ``TRIED``, as rows, with verdict and rule by the rules as code,
    and by SQL."""
    judge, known = mission.coded.compile(), mission.tickets[:TRIED]
    rows = [list_cells(mission, ticket) for ticket in known]
    ruled: list[Ruled] = [
        (None, "") if ticket.is_blank else judge(reading(ticket))[:2] for ticket in known
    ]
    return list(zip(known, rows, ruled, judge_rows(limit_to_sql(mission), rows), strict=True))


def _describe_untold(mission: CodedMission, written: CodedMission) -> str:
    """How many of the tickets known SQL gives no verdict, or another one, where the rules as code
    tell; empty where it is as good as they are. Raises ``InputError`` where it never is."""
    tried = try_known(mission)
    if unreadable := written.unreadable:
        key, why = next(iter(unreadable.items()))
        if (
            not any(verdict for *_, (verdict, _) in tried)
            if tried
            else len(unreadable) == len(written.coded.each)
        ):
            remedy = (
                "export --format python, which reads what these rules do"
                if any(read_code(rule) for rule in written.coded.each if rule.key in unreadable)
                else "no form of code has more: put it so that code reads it"
            )
            raise InputError(
                shown(f"{mission.name}: SQL would give no ticket a verdict: {key}: {why}; {remedy}")
            )
    untold = [ticket.group_id for ticket, _, ruled, by_sql in tried if ruled[0] != by_sql[0]]
    told = f"of {len(tried):,} known tickets SQL does not judge {len(untold):,} as the rules do"
    return f"{mission.name}: {told}; the first: {untold[0]}" if untold else ""


def limit_to_sql(mission: CodedMission) -> CodedMission:
    """The mission with what SQL cannot say marked as out of reach."""
    rules, conditions = [], TypedConditions(mission, DIALECTS["sqlite"])
    for rule in mission.coded.each:
        try:
            conditions.test(rule)
        except UnsaidError as error:
            rule = replace(rule, code=BeyondSql(str(error), code=read_code(rule)))
        rules.append(rule)
    return replace(mission, coded=replace(mission.coded, each=rules))


_SQL_HEADER = """\
Learnt rules as SQL for {title} (stageb guidance export --format sql), {tried}.
The table tickets has a column for each field that rules name, and for those by which a row is empty, if the query asks
whether it is: its value as text or number, NULL or empty where a ticket has none (NULL, not NaN, where it holds numbers).
verdict is {verdicts}, or NULL where the rules cannot tell; rule is the key of the rule that decides, G0 where none speaks of
the ticket. Each combination of values is judged once: the subquery judged has a column for each comparison and each rule (1:
it holds, 0: it does not, -1: the ticket does not tell, NULL: SQL cannot know; of a rule with points, how far above its least
a ticket is). decides, where a bound on errors is known, is stageb or person. Values are compared as
stageb predict --by rules compares them. SQL cannot fold all letters and numbers that exist: where a cell holds letters that
the tickets of the export did not, unless it is a value of the rule in small letters, in capitals or with a capital at the
beginning, or a number in a rare form, the comparison is NULL."""


def _write_cases(name: str, cases: Sequence[str]) -> str:
    return "\n".join(["    CASE", *(f"      {each}" for each in cases), f"    END AS {name}"])


def _any(conditions: Iterable[str]) -> str:
    """Whether any of them is true; empty where none ever is."""
    return " OR ".join(dict.fromkeys(each for each in conditions if each != NEVER))


class _Query:
    """One mission's query in a dialect."""

    def __init__(self, mission: CodedMission, dialect: Dialect, table: str) -> None:
        self._mission, self._sql, self._table = mission, dialect, f"{table} AS t"

    def write(self, is_one_of_many: bool) -> str:
        """The query; ``is_one_of_many``: of the table's rows those of the mission alone."""
        mission = self._mission
        lines = [
            f"-- mission {json.dumps(mission.name)}, step {mission.step}",
            *(f"-- {note}" for note in mission.notes),
        ]
        texts = {rule.key: rule.text for rule in mission.coded.each}
        lines += [
            f"-- not written: {key}. {json.dumps(texts.get(key, ''))}: {json.dumps(why)}"
            for key, why in mission.unreadable.items()
        ]
        of_mission = f" WHERE t.mission = {self._sql.quote(mission.name)}" if is_one_of_many else ""
        conditions = Conditions(mission, self._sql)
        is_empty = self._write_empty(conditions.cells)
        is_typed = _are_numbers(mission)
        test = TypedConditions(mission, self._sql).test if is_typed else conditions.test
        tests = list(map(test, mission.coded.each))
        choose = self._choose_first if has_labels(mission.coded.labels) else self._choose_by_side
        verdicts, keys = choose(tests, mission.coded.labels[0])
        chosen = [{"verdict": verdicts, "rule": keys}]
        chosen += [{"decides": decided}] if (decided := self._list_decided(tests)) else []
        # of a row as it stands, before what is chosen for all that have its values
        unsure = [each for each in (is_empty, self._write_lacks(conditions.cells)) if each]
        first = {"verdict": self._say(is_empty), "rule": self._say(is_empty)}
        first["decides"] = self._say(" OR ".join(unsure), PERSON)
        if conditions.cells.fields:  # none of columns that are numbers
            staged = self._write_stages(conditions.cells, chosen, first, of_mission)
            return "\n".join([*lines, *staged])
        query, source = "", f"{self._table}{of_mission}"
        for columns in chosen:
            said = (_write_cases(name, [*first[name], *of]) for name, of in columns.items())
            query = "SELECT t.*,\n" + ",\n".join(said) + f"\nFROM {source}"
            source = f"(\n{query}\n) AS t"
        rules = map(describe_rule, mission.coded.each) if is_typed else ()
        return "\n".join([*lines, *rules, query])

    def _write_stages(
        self,
        cells: CellColumns,
        chosen: Sequence[Mapping[str, Sequence[str]]],
        first: Mapping[str, Sequence[str]],
        of_mission: str,
    ) -> list[str]:
        """The query whose subqueries are the stages of ``cells``, and what is ``chosen`` by them,
        the cases of each column; those that come ``first`` see the row itself."""
        names = ("judged", "decided")[: len(chosen)]
        written = [{name: _write_cases(name, of) for name, of in each.items()} for each in chosen]
        stages, columns, before = [], "", f"{self._table}{of_mission}"
        for name, stage in (cells.stages | dict(zip(names, written, strict=True))).items():
            if stage:
                said = ",\n".join(stage.values())
                # DISTINCT, since SQLite would work out a column anew wherever a later one names it:
                # six times the time.
                stages.append(
                    f"{name} AS (\n  SELECT DISTINCT{columns}\n{said}\n  FROM {before}\n)"
                )
                columns, before = " t.*,", f"{name} AS t"
        raw = cells.fields
        found = "\n    AND ".join(
            f"j.{raw[field].removeprefix('t.')} = {self._sql.cell(field)}" for field in raw
        )
        told = [
            f"CASE {first[name][0]} ELSE j.{name} END AS {name}" if first[name] else f"j.{name}"
            for each in chosen
            for name in each
        ]
        return [
            f"WITH {', '.join(stages)}",
            f"SELECT t.*, {', '.join(told)}",
            f"FROM {self._table} LEFT JOIN {names[-1]} AS j\n  ON {found}{of_mission}",
        ]

    def _list_decided(self, tests: Sequence[RuleTest]) -> list[str]:
        """The cases of who decides, by verdict, rule and points; none where nothing is promised."""
        found = self._mission.automation
        alone = [
            [*self._are(bound.verdict, key), *self._reach_margin(tests, key, margin)]
            for bound in (found.bounds if found else ())
            for key, margin in bound.least.items()
        ]
        held = [f"({' AND '.join(each)})" for each in alone if NEVER not in each]
        return [*self._say(" OR ".join(held), STAGEB), *self._say(ALWAYS, PERSON)] if found else []

    def _are(self, verdict: Verdict, key: str) -> list[str]:
        """Conditions that a ticket has this verdict, empty: any, of the rule of this key."""
        of_verdict = [f"t.verdict = {self._sql.quote(verdict)}"] if verdict else []
        return [*of_verdict, f"t.rule = {self._sql.quote(key)}"]

    def _reach_margin(self, tests: Sequence[RuleTest], key: str, margin: float) -> list[str]:
        """Conditions that a verdict of this rule has so much margin, as
        ``predicates.measure_margin`` says, or more."""
        own = next((test for test in tests if test.rule.key == key), None)
        cards = [test for test in tests if test.above]
        if key == HEADLINE_KEY and cards:
            return [NEVER] if own else [f"{card.above} <= {-margin!r}" for card in cards]
        if own is None or not own.above:
            return [] if margin <= 0 else [NEVER]
        compared: list[RuleTest] = []
        if has_labels(self._mission.coded.labels):
            runs = [[*run] for _, run in groupby(tests, lambda test: test.may_have_points)]
            compared = next(run for run in runs if own in run)
        ahead = [
            f"{own.above} - {other.above} >= {margin!r}"
            for other in compared
            if other.verdict != own.verdict
        ]
        return [f"{own.above} >= {margin!r}", *ahead]

    def _write_lacks(self, cells: CellColumns) -> str:
        """Whether a row lacks a field that tickets which are decided alone tell; of counts, what is
        not there is 0."""
        found = self._mission.automation
        told = found.told if found and self._mission.is_counted is not True else ()
        return " OR ".join(cells.is_missing(self._sql.cell(name)) for name in told)

    def _write_empty(self, cells: CellColumns) -> str:
        """Whether a row says nothing at all, which code gives no verdict; empty where rules give
        such a row none either, or nothing is known of the columns."""
        mission = self._mission
        rules = [replace(rule, code=read_code(rule) or rule.code) for rule in mission.coded.each]
        if not replace(mission, coded=replace(mission.coded, each=rules)).decides_empty:
            return ""
        return " AND ".join(cells.is_missing(self._sql.cell(name)) for name in mission.columns_all)

    def _say(self, when: str, said: str = "") -> list[str]:
        """A case that gives this, or else NULL; none where it is never so."""
        return [f"WHEN {when} THEN {self._sql.quote(said) if said else 'NULL'}"] if when else []

    def _decide(self, test: RuleTest, said: str, doubts: Iterable[str]) -> list[str]:
        """The cases that say it where a rule holds, and nothing where any of the ``doubts`` is
        true, too."""
        if test.holds == NEVER:
            return []
        doubt = _any(doubts)
        return [*self._say(doubt and f"{test.holds} AND ({doubt})"), *self._say(test.holds, said)]

    def _choose_by_side(
        self, tests: Sequence[RuleTest], default: Verdict
    ) -> tuple[list[str], list[str]]:
        """The cases of the verdict, and of its rule: any that passes wins over one that fails, and
        where none holds, ``default`` does."""
        passes, fails = (
            [test for test in tests if test.verdict in ("", verdict)] for verdict in PASS_FAIL
        )

        def name_first(side: Sequence[RuleTest]) -> Iterator[str]:
            for place, test in enumerate(side):
                yield from self._decide(
                    test, test.rule.key, (earlier.is_lost for earlier in side[:place])
                )

        verdicts = self._say(_any(test.holds for test in passes), "pass")
        keys = [*name_first(passes)]
        none_fails = " AND ".join(test.fails for test in fails) or ALWAYS
        if default == "pass":
            lost = _any(test.is_lost for test in passes)
            verdicts += self._say(none_fails, "pass")
            keys += [
                *self._say(lost and f"{none_fails} AND ({lost})"),
                *self._say(none_fails, HEADLINE_KEY),
            ]
        is_open = self._say(_any(test.is_open for test in passes))
        verdicts, keys = [*verdicts, *is_open], [*keys, *is_open, *name_first(fails)]
        if default == "pass":
            return [*verdicts, *self._say(_any(test.holds for test in fails), "fail")], keys
        lost = _any(test.is_lost for test in fails)
        return [*verdicts, *self._say(ALWAYS, "fail")], [
            *keys,
            *self._say(lost),
            *self._say(ALWAYS, HEADLINE_KEY),
        ]

    def _choose_first(
        self, tests: Sequence[RuleTest], default: Verdict
    ) -> tuple[list[str], list[str]]:
        """The same where the first rule wins, of several with points side by side the one that is
        furthest above, and ``default`` where none holds: NULL where an earlier one of another
        verdict may."""
        verdicts, keys, earlier = list[str](), list[str](), list[RuleTest]()

        def find_doubts(verdict: Verdict, names_rule: bool) -> Iterator[str]:
            for test in earlier:
                if test.verdict != verdict:
                    yield test.is_open
                elif names_rule:
                    yield test.is_lost

        for is_compared, group in groupby(tests, lambda test: test.may_have_points):
            run = [*group]
            # whatever holds, one that nobody knows may win
            if is_compared and not all(test.above for test in run):
                return [*verdicts, *self._say(ALWAYS)], [*keys, *self._say(ALWAYS)]
            lost = self._say(_any(test.is_lost for test in run) if is_compared else "")
            verdicts, keys = [*verdicts, *lost], [*keys, *lost]
            for test in run:
                if is_compared:  # of equal ones the first stands first
                    most = [f"{test.above} >= {other.above}" for other in run if other is not test]
                    test = test._replace(holds=" AND ".join([test.holds, *most]))
                verdicts += self._decide(
                    test, test.verdict, find_doubts(test.verdict, names_rule=False)
                )
                keys += self._decide(
                    test, test.rule.key, find_doubts(test.verdict, names_rule=True)
                )
                earlier += [] if is_compared else [test]
        for cases, said, names_rule in ((verdicts, default, False), (keys, HEADLINE_KEY, True)):
            cases += [*self._say(_any(find_doubts(default, names_rule))), *self._say(ALWAYS, said)]
        return verdicts, keys


def list_fields(mission: CodedMission) -> list[str]:
    """The fields that rules name."""
    codes = [rule.code for rule in mission.coded.each if isinstance(rule.code, RuleCode)]
    return list(dict.fromkeys(name for code in codes for name in code.expression.fields))


def _are_numbers(mission: CodedMission) -> bool:
    """Whether the fields that rules name are numbers in the table, one at the least, all of
    them."""
    named = list_fields(mission)
    return bool(named) and mission.numeric.issuperset(named)
