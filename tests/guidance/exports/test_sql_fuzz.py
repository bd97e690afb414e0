"""Tickets of every kind, judged by generated rules as code, and by the SQL that is exported: the
same, in every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest
from guidance.exports.databases import ENGINES, ask
from guidance.exports.kinds import KINDS, Cells, Kind, make_missions, make_ticket
from guidance.rules.made_rules import judge_by_python
from guidance.rules.test_generated_rules import LABELS
from times import TIMES

from stageb.guidance.exports.protocol import CodedMission, code_mission
from stageb.guidance.exports.sql import judge_rows, limit_to_sql, write_sql
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.rules.prompts import WORDS, name_labels
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import PASS_FAIL, Guidance, Rule, Verdict

MISSIONS = {"sqlite": 3 * TIMES, "spark": 2}  # of each kind; of the others 2, or more
ROWS = {"spark": 600 * TIMES, "sqlite": 60}  # of each mission; of the others 60, or more


def ask_sql(
    engine: str, mission: CodedMission, rows: Sequence[Cells], kind: Kind
) -> list[tuple[str | None, str | None]]:
    names = list(dict.fromkeys([*kind.values, *(name for row in rows for name in row)]))
    types = {
        name: "text" if kind.are_texts else find_type([row.get(name) for row in rows])
        for name in names
    }

    def keep(name: str, cell: Any) -> Any:
        if cell is None or (cell == "" and types[name] != "text"):
            return None
        kept = {"text": str, "number": float, "flag": int if engine == "sqlite" else bool}
        return kept[types[name]](cell)

    cells = [["m", *(keep(name, row.get(name)) for name in names)] for row in rows]
    return ask(engine, write_sql([mission], DIALECTS[engine]), {"mission": "text", **types}, cells)


def find_type(cells: Sequence[Any]) -> str:
    found = {type(cell) for cell in cells if cell not in (None, "")}
    return "flag" if found == {bool} else "number" if found and found <= {int, float} else "text"


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_sql_gives_every_ticket_the_verdict_and_the_rule_that_code_gives(
    engine: str, name: str
) -> None:
    kind, told, missions = KINDS[name], 0, MISSIONS.get(engine, 2 * TIMES)
    for mission, rows in make_missions(
        name, kind, missions, ROWS.get(engine, 600 if TIMES > 1 else 60)
    ):
        judge, tickets = mission.coded.compile(), mission.tickets
        expected = [
            Ruling(None) if ticket.is_blank else judge(reading(ticket)) for ticket in tickets
        ]
        if engine == "sqlite":
            by_python = judge_by_python([mission])
            said = [by_python({"per_image": row} if kind.is_json else row, "m") for row in rows]
            assert [each[:2] for each in said] == [each[:2] for each in expected]
        asked = rows if not kind.is_json else [dict(reading(ticket).pairs) for ticket in tickets]
        is_whole = not limit_to_sql(mission).unreadable and mission.is_counted is not None
        for row, ruling, found in zip(
            rows, expected, ask_sql(engine, mission, asked, kind), strict=True
        ):
            wanted = ruling.verdict, ruling.rule or None
            is_same = found == wanted or (
                not is_whole and found[0] in (wanted[0], None) and found[1] in (wanted[1], None)
            )
            assert is_same, (row, found, wanted, [rule.text for rule in mission.coded.each])
            told += found[0] is not None
    assert told > missions


def compare_in_sqlite(
    rules: Sequence[str],
    labels: tuple[Verdict, ...],
    rows: Sequence[Mapping[str, str]],
    is_typed: bool,
) -> list[tuple[str | None, str | None]]:
    """Verdict and rule of each row by SQL, which are those by code."""
    kind = Kind({}, lambda draw: {}, is_typed=is_typed)
    texts = [name_labels(WORDS["en"], labels).neutral_headline, *rules]
    all_rules = tuple(Rule(f"G{n}", text) for n, text in enumerate(texts))
    guidance = Guidance("m", 1, all_rules, len(texts), labels=labels)
    tickets = [make_ticket(kind, row) for row in rows]
    coded = read_rules(guidance, Vocabulary.of(tickets), WORDS["en"])
    judge = coded.compile()
    found = judge_rows(code_mission(guidance, coded, kind.columns, tickets, is_typed), rows)
    assert found == [
        (None, None) if each.is_blank else judge(reading(each))[:2] for each in tickets
    ]
    return found


CARD = (
    "{} if it has {} points or more: 1 if {} is above 0; 1 if {} is above 0; -1 if {} is above 0."
)


@pytest.mark.parametrize("least", [-1, 0, 1, 2])
@pytest.mark.parametrize("verdicts", ["Fail", "Pass Fail", "High", "High Mid", "Low High Mid"])
@pytest.mark.parametrize("is_typed", [True, False])
def test_sql_counts_points_as_code_does_below_at_and_above_the_least(
    least: int, verdicts: str, is_typed: bool
) -> None:
    """And of rules whose points are compared chooses the same one."""
    names = zip(verdicts.split(), ("abc", "bca", "cab"), strict=False)
    rules = [CARD.format(verdict, least, *fields) for verdict, fields in names]
    cells = product(("0", "1", None), repeat=3)
    rows = [{name: cell for name, cell in zip("abc", each, strict=True) if cell} for each in cells]
    labels = PASS_FAIL if "Fail" in verdicts else LABELS
    assert len({*compare_in_sqlite(rules, labels, rows, is_typed)}) > 1


@pytest.mark.parametrize("blank", " \t\n\r\u00a0")
def test_sql_takes_up_to_eight_blanks_for_one_as_code_does(blank: str) -> None:
    rows = [{"Note": f"{blank * count}worn{blank * count}out{blank}"} for count in range(1, 9)]
    rows += [{"Note": f"worn{blank} {blank}out"}, {"Note": "wornout"}]
    found = compare_in_sqlite(["Fail if Note is worn out."], PASS_FAIL, rows, False)
    assert [rule for _, rule in found] == ["G1"] * (len(rows) - 1) + ["G0"]
