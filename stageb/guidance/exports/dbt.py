"""Rules as dbt models (docs.getdbt.com) over the model or seed ``tickets``, with tests: the values
that verdict and rule may have, and known tickets with what the rules say of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from stageb.guidance.exports.markup import free_name
from stageb.guidance.exports.protocol import CodedMission, Exported
from stageb.guidance.exports.sql import (
    SqlExporter,
    list_fields,
    try_known,
    write_header,
    write_query,
)
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.words.types import HEADLINE_KEY

_TABLE = "__tickets__"
_OF_EACH = 2  # known tickets that a test shows of each rule


class DbtExporter:
    """For each mission, a model and a file of its tests."""

    is_typed = False

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The files by their names. Raises ``InputError`` where a query could judge no ticket of a
        mission."""
        files: dict[str, str] = {}
        for mission in missions:
            name = _name_model(mission.name, files)
            query = write_query(mission, dialect, len(missions) > 1, _TABLE)
            text = _escape(write_header(mission.coded.labels, dialect) + query)
            files[f"{name}.sql"] = text.replace(_TABLE, "{{ ref('tickets') }}") + "\n"
            files[f"{name}.yml"] = "\n".join(_write_tests(name, mission, len(missions) > 1)) + "\n"
        return Exported(files, SqlExporter().write(missions, dialect).notes)


def _name_model(mission: str, taken: dict[str, str]) -> str:
    plain = "judged_" + (re.sub("[^a-z0-9]+", "_", mission.lower()).strip("_") or "tickets")
    return free_name(plain, {path.removesuffix(".sql") for path in taken})


def _escape(text: str) -> str:
    """A text of which dbt's templates (Jinja) read nothing."""
    return re.sub(r"\{[{%#]", lambda found: f"{{{{ '{found[0]}' }}}}", text)


def _quote(value: object) -> str:
    return _escape(json.dumps(value, ensure_ascii=False))


def _write_tests(name: str, mission: CodedMission, is_one_of_many: bool) -> Iterator[str]:
    keys = [rule.key for rule in mission.coded.each if rule.key != HEADLINE_KEY]
    yield from ("version: 2", "models:", f"  - name: {name}", "    columns:")
    for column, values in (("verdict", mission.coded.labels), ("rule", [*keys, HEADLINE_KEY])):
        yield f"      - name: {column}"
        yield (
            f"        data_tests: [accepted_values: {{arguments: {{values: "
            f"{_quote(list(values))}}}}}]"
        )
    shown = [*_choose_tickets(mission)]
    of_mission = {"mission": mission.name} if is_one_of_many else {}
    if not shown:
        return
    yield from (
        "unit_tests:",
        f"  - name: {name}_known_tickets",
        f"    model: {name}",
        "    given:",
    )
    yield from ("      - input: ref('tickets')", "        rows:")
    yield from (f"          - {_quote({**row, **of_mission})}" for row, _ in shown)
    yield from ("    expect:", "      rows:")
    yield from (f"        - {_quote({**row, **said})}" for row, said in shown)


def _choose_tickets(
    mission: CodedMission,
) -> Iterator[tuple[dict[str, str | None], dict[str, str | None]]]:
    """Some known tickets that the rules decide, in SQL too, as rows, and what they say."""
    counts = Counter[str | None]()
    names = dict.fromkeys([*list_fields(mission), *mission.columns_all])
    for _, row, ruled, by_sql in try_known(mission):
        verdict, rule = ruled
        if not verdict or ruled != by_sql or counts[rule] == _OF_EACH:
            # by_sql differs where words decide, or a cell cannot be told from what was read of it
            continue
        counts[rule] += 1
        yield {name: row.get(name) for name in names}, {"verdict": verdict, "rule": rule}
