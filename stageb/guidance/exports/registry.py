"""The exporters that ``stageb guidance export --format`` may name.

To add one, write a class with the members of ``Exporter`` (``protocol.py``) and enter it below. One
of your own, an installed package names under the entry points ``stageb.exports``.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points

from stageb.errors import InputError, shown
from stageb.guidance.exports.protocol import Exporter

EXPORTERS = {
    "python": "stageb.guidance.exports.python:PythonExporter",
    "sql": "stageb.guidance.exports.sql:SqlExporter",
    "dbt": "stageb.guidance.exports.dbt:DbtExporter",
    "json": "stageb.guidance.exports.json_rules:TreeExporter",
    "json-logic": "stageb.guidance.exports.json_rules:JsonLogicExporter",
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
    found = (
        next(iter(entry_points(group=_GROUP, name=name)), None) if name not in EXPORTERS else None
    )
    module, _, attribute = (found.value if found else EXPORTERS[name]).partition(":")
    try:
        made: Exporter = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        remedy = (
            f"python -m pip install 'stageb[{EXTRAS[name]}]'"
            if name in EXTRAS
            else "mend its package"
        )
        raise InputError(shown(f"--format {name}: {error}; {remedy}", 400)) from error
    return made
