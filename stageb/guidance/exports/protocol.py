"""What writes rules for a place where people judge, and how it is found by its name.

An exporter of one's own is a class with these members that an installed package names under the entry points
``stageb.exports``; ``stageb guidance export --format NAME`` finds it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from typing import NamedTuple, Protocol

from stageb.errors import InputError, shown
from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.sql_dialects import Dialect


class Exported(NamedTuple):
    """What an exporter has written."""

    files: str | bytes | Mapping[str, str]  # one, or several by their names
    notes: Sequence[str] = ()  # which rules it lacks, and which known tickets it judges otherwise; a line each


class Exporter(Protocol):
    """A form that rules leave in."""

    is_typed: bool  # whether columns of which the known tickets have numbers alone must be numbers where it judges

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The rules in this form. Raises ``InputError``, which names a rule that it cannot say."""


EXPORTERS = {
    "python": "stageb.guidance.exports.python:PythonExporter",
    "sql": "stageb.guidance.exports.sql:SqlExporter",
    "dbt": "stageb.guidance.exports.dbt:DbtExporter",
    "json": "stageb.guidance.exports.json_tree:TreeExporter",
    "json-logic": "stageb.guidance.exports.json_logic:JsonLogicExporter",
    "dmn": "stageb.guidance.exports.dmn:DmnExporter",
    "xlsx": "stageb.guidance.exports.sheet:SheetExporter",
    "pmml": "stageb.guidance.exports.pmml:PmmlExporter",
}
EXTRAS = {"xlsx": "sheet"}  # that an exporter needs
_GROUP = "stageb.exports"


def list_exporters() -> list[str]:
    """The names of all, those of installed packages included."""
    return [*EXPORTERS, *sorted({each.name for each in entry_points(group=_GROUP)} - {*EXPORTERS})]


def make_exporter(name: str) -> Exporter:
    """The exporter of this name. Raises ``InputError`` where its package cannot be loaded."""
    found = next(iter(entry_points(group=_GROUP, name=name)), None) if name not in EXPORTERS else None
    module, _, attribute = (found.value if found else EXPORTERS[name]).partition(":")
    try:
        made: Exporter = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        remedy = f"python -m pip install 'stageb[{EXTRAS[name]}]'" if name in EXTRAS else "mend its package"
        raise InputError(shown(f"--format {name}: {error}; {remedy}", 400)) from error
    return made


def list_unwritten(missions: Sequence[CodedMission]) -> list[str]:
    """A line for each rule that cannot be read as code."""
    return [*_list_unwritten(missions)]


def list_undecided(mission: CodedMission) -> list[str]:
    """What a form lacks that does not say who decides, where some tickets are decided alone."""
    return [f"{mission.name}: who decides is not written; --format python and sql have it"] if mission.automation else []


def _list_unwritten(missions: Sequence[CodedMission]) -> Iterator[str]:
    for mission in missions:
        for key, why in mission.unreadable.items():
            yield f"{mission.name}: {key} is not written as code: {why}"
