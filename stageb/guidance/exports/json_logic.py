"""Rules as JSON Logic (jsonlogic.com), which libraries of many languages evaluate.

It has no function that folds a text, so a row must hold texts as the export's ``columns`` say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stageb.errors import InputError, shown
from stageb.guidance.exports.decisions import (
    Compare,
    Decisions,
    Every,
    Formula,
    Given,
    OneOf,
    PointSum,
    Same,
    decide,
    list_missing,
)
from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.protocol import Exported, list_undecided
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.value_types import Computed

_FORM = "JSON Logic"
_KINDS = {
    "number": "number, or null",
    "flag": "true, false or null",
    "text": "text in small letters, without blanks around it or a full stop behind it, or null",
}


class JsonLogicExporter:
    """For each mission, an expression that gives verdict and rule of a row."""

    is_typed = True

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The expressions. Raises ``InputError``, which names a rule that JSON Logic cannot say."""
        written = {mission.name: _write_mission(decide(mission, _FORM)) for mission in missions}
        notes = [line for mission in missions for line in list_undecided(mission)]
        return Exported(json.dumps({"version": 1, "missions": written}, indent=2) + "\n", notes)


def _write_mission(decisions: Decisions) -> dict[str, Any]:
    mission = decisions.mission
    if paths := [name for name in decisions.kinds if "." in name or "\\" in name]:
        raise InputError(shown(f"{mission.name}: {_FORM} reads the name of the column {paths[0]!r} as a path; rename it"))
    *cases, last = decisions.cases
    logic = [part for case in cases for part in (_write(case.when, decisions), [case.verdict, case.rule])]
    return {
        "step": mission.step,
        **({"notes": list(mission.notes)} if mission.notes else {}),
        "columns": {name: _KINDS[kind] for name, kind in decisions.kinds.items()},
        "gives": "the verdict and the rule that decides; null where a person decides",
        "rules": {case.rule: case.said for case in decisions.cases if case.rule},
        "logic": {"if": [*logic, [last.verdict, last.rule]]},
    }


def _write(formula: Formula, decisions: Decisions) -> Any:
    if isinstance(formula, Given):
        return {"!=" if formula.is_given else "==": [{"var": formula.field}, None]}
    if isinstance(formula, Compare):
        sign = {"=": "===", "<>": "!=="}.get(formula.sign, formula.sign)
        return _guard(formula, {sign: [_number(formula.left, decisions), _number(formula.right, decisions)]}, decisions)
    if isinstance(formula, OneOf):
        is_flag = decisions.kinds[formula.field] == "flag"
        values = [value == "true" for value in formula.values if value in ("true", "false")] if is_flag else formula.values
        found = {"in": [{"var": formula.field}, list(values)]}
        return found if formula.is_in else _guard(formula, {"!": [found]}, decisions)
    if isinstance(formula, Same):
        compared = [{"var": formula.one}, {"var": formula.other}]
        return _guard(formula, {"===" if formula.is_same else "!==": compared}, decisions)
    if isinstance(formula, PointSum):
        scored = [{"if": [_write(part, decisions), points, 0]} for points, part in formula.parts]
        return {">=" if formula.is_reached else "<": [{"+": scored}, formula.least]}
    parts = [_write(part, decisions) for part in formula.parts]
    is_all = isinstance(formula, Every)
    return {"and" if is_all else "or": parts} if parts else is_all


def _guard(formula: Compare | OneOf | Same, said: Any, decisions: Decisions) -> Any:
    """The same, untrue where a cell is missing, or a number is divided by 0."""
    missing, divisors = list_missing(formula, decisions)
    there: list[Any] = [{"!=": [{"var": name}, None]} for name in missing]
    there += [{"!==": [_number(name, decisions), 0]} for name in divisors]
    return {"and": [*there, said]} if there else said


def _number(of: float | str | Computed, decisions: Decisions) -> Any:
    if isinstance(of, float):
        return of
    if isinstance(of, str):
        return {"var": [of, 0]} if decisions.is_counted else {"var": of}
    return {of.operator.replace("×", "*"): [_number(of.first, decisions), _number(of.second, decisions)]}
