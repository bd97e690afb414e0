"""Rules as JSON: as a tree of our own, for programs that show or judge them, or as JSON Logic
(jsonlogic.com), which libraries of many languages evaluate. The latter has no function that folds a
text, so a row must hold texts as the export's ``columns`` say.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stageb.errors import InputError, shown
from stageb.guidance.exports.decisions import (
    Decisions,
    DecisionWriter,
    Number,
    Sign,
    decide,
    list_divisors,
)
from stageb.guidance.exports.protocol import CodedMission, Exported, list_undecided, list_unwritten
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.words.types import PASS_FAIL

VERSION = 1


class TreeExporter:
    """The rules' expressions as a tree."""

    is_typed = False

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The tree."""
        content = {
            "version": VERSION,
            "missions": {mission.name: _to_json(mission) for mission in missions},
        }
        text = json.dumps(content, ensure_ascii=False, indent=2)
        seen = (
            letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1]
            for letter in text
        )
        return Exported("".join(seen) + "\n", list_unwritten(missions))


def _to_json(mission: CodedMission) -> dict[str, Any]:
    coded = [(rule, rule.code) for rule in mission.coded.each if isinstance(rule.code, RuleCode)]
    gone = [(rule, rule.code) for rule in mission.coded.each if isinstance(rule.code, OutOfReach)]
    return {
        "step": mission.step,
        **({"labels": list(mission.coded.labels)} if mission.coded.labels != PASS_FAIL else {}),
        **({"notes": list(mission.notes)} if mission.notes else {}),
        **({"automation": mission.automation.to_plain()} if mission.automation else {}),
        "rules": [
            {
                "key": rule.key,
                "text": rule.text,
                "verdict": code.verdict,
                "if": code.expression.to_plain(),
            }
            | ({"provisional": True} if rule.is_provisional else {})
            for rule, code in coded
        ],
        "unreadable": [
            {"key": rule.key, "text": rule.text, "why": code.why} for rule, code in gone
        ],
    }


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
        raise InputError(
            shown(
                f"{mission.name}: {_FORM} reads the name of the column {paths[0]!r} as a path; "
                f"rename it"
            )
        )
    *cases, last = decisions.cases
    writer = _Logic(decisions)
    logic = [
        part for case in cases for part in (case.when.accept(writer), [case.verdict, case.rule])
    ]
    return {
        "step": mission.step,
        **({"notes": list(mission.notes)} if mission.notes else {}),
        "columns": {name: _KINDS[kind] for name, kind in decisions.kinds.items()},
        "gives": "the verdict and the rule that decides; null where a person decides",
        "rules": {case.rule: case.said for case in decisions.cases if case.rule},
        "logic": {"if": [*logic, [last.verdict, last.rule]]},
    }


class _Logic(DecisionWriter[Any]):
    """Expressions as JSON."""

    def write_comparison(self, left: Number, sign: Sign, right: Number | float) -> Any:
        compared = {
            {"=": "===", "<>": "!=="}.get(sign, sign): [self._number(left), self._number(right)]
        }
        return self._guard(compared, left, right)

    def write_one_of(self, field: str, values: tuple[str, ...], is_in: bool) -> Any:
        is_flag = self.decisions.kinds[field] == "flag"
        found = {
            "in": [{"var": field}, [value == "true" if is_flag else value for value in values]]
        }
        return found if is_in else self._guard({"!": [found]}, field)

    def write_given(self, field: str, is_given: bool) -> Any:
        return {"!=" if is_given else "==": [{"var": field}, None]}

    def write_sum(self, scored: Sequence[tuple[int, Any]], least: int, is_reached: bool) -> Any:
        total = {"+": [{"if": [part, points, 0]} for points, part in scored]}
        return {">=" if is_reached else "<": [total, least]}

    def join(self, parts: Sequence[Any], is_all: bool) -> Any:
        return {"and" if is_all else "or": list(parts)} if parts else is_all

    def _guard(self, said: Any, *compared: Number | float) -> Any:
        """The same, untrue where a cell is missing, or a number is divided by 0."""
        there = [self.write_given(name, True) for name in self.decisions.list_needed(*compared)]
        there += [{"!==": [self._number(name), 0]} for name in list_divisors(*compared)]
        return {"and": [*there, said]} if there else said

    def _number(self, of: Number | float) -> Any:
        if isinstance(of, float):
            return of
        if isinstance(of, str):
            return {"var": [of, 0] if self.decisions.has_count(of) else of}
        return {of.operator.replace("×", "*"): [self._number(of.first), self._number(of.second)]}
