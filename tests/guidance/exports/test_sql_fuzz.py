"""Tickets of every kind, judged by generated rules as code, and by the SQL that is exported: the
same, in every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from guidance.exports.databases import ENGINES, ask
from guidance.exports.kinds import KINDS, Cells, Kind, make_missions
from guidance.rules.made_rules import judge_by_python
from times import TIMES

from stageb.guidance.exports.protocol import CodedMission
from stageb.guidance.exports.sql import limit_to_sql, write_sql
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.predicates import Ruling

MISSIONS = {"sqlite": 6 * TIMES, "spark": 2}  # of each kind; of the others 2, or more
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
    assert told > missions or "JSON" in name
