"""``stageb guidance export`` of rules as code: by which tickets they are read, and what is told of those that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stageb.cli.draft import Draft
from stageb.errors import InputError, shown
from stageb.guidance.commands.use.code import code_rules, find_columns, find_scales, find_tickets
from stageb.guidance.learning.attempts import describe_provisional
from stageb.guidance.rules import export, sql
from stageb.guidance.rules.conditions import reading
from stageb.guidance.rules.export import CodedMission
from stageb.guidance.rules.judge import compile_rules
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.sql import find_letters
from stageb.guidance.tickets.tables import list_roles
from stageb.guidance.words.columns import ColumnsConfig
from stageb.guidance.words.types import Guidance

TRIED = 2000  # known tickets, at most, that exported SQL is tried on
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
    known = {mission: [ticket for ticket in tickets if ticket.mission == mission] for mission in guidance}
    readings = {mission: list(map(reading, mine)) for mission, mine in known.items()}
    return [
        CodedMission(
            mission,
            each.step,
            rules[mission],
            roles,
            any(read.is_counted for read in readings[mission]),
            find_letters(readings[mission]),
            describe_provisional(each.rules),
            known[mission],
        )
        for mission, each in guidance.items()
    ]


def write_code(form: str, missions: Sequence[CodedMission]) -> tuple[str, list[str]]:
    """The text in one of the ``WRITERS``' forms, and what a person should know of it: a line for each rule that is not in it
    as code, and for each mission of which SQL leaves known tickets without a verdict."""
    written = [sql.limit_to_sql(mission) for mission in missions] if form == "sql" else missions
    lines = [
        f"{mission.name}: {key} is not written as code: {why}"
        for mission in written
        for key, why in mission.unreadable.items()
    ]
    lines += [line for mission in (written if form == "sql" else ()) if (line := _describe_untold(mission))]
    return WRITERS[form](missions), lines


def _describe_untold(mission: CodedMission) -> str:
    """How many of the tickets known SQL gives no verdict, or another one, where the rules as code tell; empty where it is as
    good as they are."""
    judge, known = compile_rules(mission.rules), mission.tickets[:TRIED]
    read = [(ticket, reading(ticket)) for ticket in known]
    rows = [dict(ticket.content.fields) if ticket.content else each.pairs for ticket, each in read]
    by_sql = sql.judge_rows(mission, rows)
    untold = [
        ticket.group_id for (ticket, each), verdict in zip(read, by_sql, strict=True) if judge(each).verdict != verdict
    ]
    first = f"{mission.name}: of {len(known):,} known tickets SQL cannot read the cells of {len(untold):,}; the first: "
    return first + untold[0] if untold else ""


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
