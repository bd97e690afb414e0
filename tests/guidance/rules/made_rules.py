"""Rules and tickets for tests of rules, and rules judged by what is exported."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from stageb.guidance.exports.protocol import CodedMission, Exporter
from stageb.guidance.exports.python import PythonExporter
from stageb.guidance.exports.sql import write_sql
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.rules.conditions import Expression, Mentions, OneOf
from stageb.guidance.words.types import Ticket

Fields = Mapping[str, str | None]

FIELDS = {
    "en": {
        "Type": ["H", "L", "M"],
        "cap and seal": ["loose", "torn or worn", "fine"],
        "RotationalSpeed rpm": ["1390", "1500", "12.5"],
        "Torque Nm": ["40", "55", "12.5"],
        "is sealed": ["yes", "not yet", "no"],
        "Grade": ["1", "1.0", "2.50", "-0.50", "1.0.0", "10", "A1.0"],
    },
    "zh": {
        "螺钉": ["松动", "牢固"],
        "标签": ["有", "无"],
        "转速": ["1390", "1500"],
        "扭矩": ["40", "1390"],
    },
}
NOTES = {"en": "the lid is cracked, and a stain shows", "zh": "表面有裂纹"}
MENTIONED = {"en": ["lid", "cracked", "stain", "a stain", "stain show"], "zh": ["裂纹", "表面"]}


def ticket(fields: Fields, note: str = "") -> Ticket:
    pairs = "; ".join(f"{name}: {value}" for name, value in fields.items() if value)
    return Ticket(
        "m", pairs + note, "pass", (("image_1", pairs), *([("image_2", note)] if note else []))
    )


def tickets_of(language: str) -> list[Ticket]:
    """One ticket for each value, and one with a note."""
    fields = FIELDS[language]
    most = max(map(len, fields.values()))
    rows = [{name: values[i % len(values)] for name, values in fields.items()} for i in range(most)]
    return [*map(ticket, rows), ticket(rows[0], NOTES[language])]


def listed_with(part: Expression) -> object:
    """What is the same for two alternatives that are written as one list."""
    return part.field if isinstance(part, OneOf) else "" if isinstance(part, Mentions) else part


def export_text(exporter: Exporter, missions: Sequence[CodedMission]) -> str:
    """An export that is one text."""
    written = exporter.write(missions, DIALECTS["sqlite"]).files
    assert isinstance(written, str)
    return written


def load_python(missions: Sequence[CodedMission]) -> dict[str, Any]:
    """The names of the module that is exported."""
    names: dict[str, Any] = {"__name__": "exported"}
    exec(
        compile(export_text(PythonExporter(), missions), "exported.py", "exec", dont_inherit=True),
        names,
    )
    return names


def judge_by_python(missions: Sequence[CodedMission]) -> Any:
    """Its ``judge``."""
    return load_python(missions)["judge"]


def judge_by_sql(
    mission: CodedMission, rows: Sequence[Fields]
) -> list[tuple[str | None, str | None]]:
    """Verdict and rule of each row, by SQLite."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    quoted = ['"' + name.replace('"', '""') + '"' for name in columns]
    with sqlite3.connect(":memory:") as opened:
        opened.execute(f"CREATE TABLE tickets (mission, {', '.join(quoted)})")
        opened.executemany(
            f"INSERT INTO tickets VALUES ({', '.join('?' * (len(columns) + 1))})",
            [[mission.name, *(row.get(name) for name in columns)] for row in rows],
        )
        return [found[-2:] for found in opened.execute(write_sql([mission]))]
