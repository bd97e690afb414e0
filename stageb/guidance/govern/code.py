"""``stageb guidance export`` of rules as code: by which tickets they are read, and what is told of those that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stageb.cli.draft import Draft
from stageb.errors import InputError, shown
from stageb.guidance.columns import ColumnsConfig
from stageb.guidance.files.tables import list_roles
from stageb.guidance.outcomes import describe_provisional
from stageb.guidance.prompts import Words
from stageb.guidance.reflection.conditions import reading
from stageb.guidance.rules import export, sql
from stageb.guidance.rules.export import CodedMission
from stageb.guidance.rules.sql import find_letters
from stageb.guidance.types import Guidance
from stageb.guidance.use.code import code_rules, find_columns, find_scales, find_tickets

WRITERS: Mapping[str, Callable[[Sequence[CodedMission]], str]] = {
    "python": export.write_python,
    "sql": sql.write_sql,
    "json": export.write_json,
}


def code_missions(args: Any, guidance: Mapping[str, Guidance], words: Words) -> list[CodedMission]:
    """The rules of each mission as code. Raises ``InputError`` where no tickets say what they name."""
    columns = _parse_columns(args.columns) if args.columns else None
    tickets, why = find_tickets(args.source, args.tickets, columns, "--tickets FILE ...")
    if why:
        raise InputError(shown(f"{args.source}: {why}", 400))
    rules = code_rules(guidance, tickets, words, find_scales(args.source))
    roles = list_roles(columns or find_columns(args.source))
    readings = {mission: [reading(ticket) for ticket in tickets if ticket.mission == mission] for mission in guidance}
    return [
        CodedMission(
            mission,
            each.step,
            rules[mission],
            roles,
            any(read.is_counted for read in readings[mission]),
            find_letters(readings[mission]),
            describe_provisional(each.rules),
        )
        for mission, each in guidance.items()
    ]


def write(form: str, missions: Sequence[CodedMission]) -> tuple[str, list[str]]:
    """The text in one of the ``WRITERS``' forms, and a line for each rule that is not in it as code."""
    written = [sql.limit_to_sql(mission) for mission in missions] if form == "sql" else missions
    lines = [
        f"{mission.name}: {key} is not written as code: {why}"
        for mission in written
        for key, why in mission.unreadable.items()
    ]
    return WRITERS[form](missions), lines


@dataclass(frozen=True)
class _TableKeys:
    """What an option may say of ticket files."""

    columns: ColumnsConfig = field(default_factory=ColumnsConfig)


def _parse_columns(text: str) -> ColumnsConfig:
    """Raises ``InputError`` as ``predict`` does."""
    draft = Draft(_TableKeys)
    draft.add_option("columns", text)
    draft.check()
    keys: _TableKeys = draft.build()
    return keys.columns
