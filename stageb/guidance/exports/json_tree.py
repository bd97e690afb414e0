"""Rules as JSON: their expressions as a tree of our own, for programs that show or judge them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stageb.guidance.exports.missions import CodedMission
from stageb.guidance.exports.protocol import Exported, list_unwritten
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.value_types import Computed, parse_number
from stageb.guidance.words.types import PASS_FAIL

VERSION = 1


class TreeExporter:
    """The rules' expressions as a tree."""

    is_typed = False

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The tree."""
        return Exported(write_json(missions), list_unwritten(missions))


def write_json(missions: Sequence[CodedMission]) -> str:
    """The rules' expressions as a tree."""
    content = {"version": VERSION, "missions": {mission.name: _to_json(mission) for mission in missions}}
    text = json.dumps(content, ensure_ascii=False, indent=2)
    seen = (letter if letter.isprintable() or letter == "\n" else json.dumps(letter)[1:-1] for letter in text)
    return "".join(seen) + "\n"


def _to_json(mission: CodedMission) -> dict[str, Any]:
    coded = [(rule, rule.code) for rule in mission.coded.each if isinstance(rule.code, RuleCode)]
    gone = [(rule, rule.code) for rule in mission.coded.each if isinstance(rule.code, OutOfReach)]
    return {
        "step": mission.step,
        **({"labels": list(mission.coded.labels)} if mission.coded.labels != PASS_FAIL else {}),
        **({"notes": list(mission.notes)} if mission.notes else {}),
        **({"automation": mission.automation.to_plain()} if mission.automation else {}),
        "rules": [
            {"key": rule.key, "text": rule.text, "verdict": code.verdict, "if": _to_tree(code.expression)}
            | ({"provisional": True} if rule.is_provisional else {})
            for rule, code in coded
        ],
        "unreadable": [{"key": rule.key, "text": rule.text, "why": code.why} for rule, code in gone],
    }


def _to_tree(expression: Expression) -> Mapping[str, Any]:
    if isinstance(expression, Not):
        return {"not": _to_tree(expression.part)}
    if isinstance(expression, Atom):
        if expression.relation == "mentions":
            return {**({"field": expression.name} if expression.name else {}), "mentions": list(expression.values)}
        if expression.relation == "missing":
            return {"field": expression.name, "missing": True}
        if expression.relation == "is":
            return {"field": expression.name, "is": list(expression.values)}
        if expression.relation in ("above", "below"):
            return {"field": expression.name, expression.relation: parse_number(expression.values[0])}
        return {"field": expression.name, expression.relation: {"field": expression.values[0]}}
    if isinstance(expression, Arithmetic):
        right = expression.right
        other = _to_quantity(right) if isinstance(right, Computed) else parse_number(right)
        return {**_to_quantity(expression.left), expression.relation: other}
    if isinstance(expression, Points):
        scored = [{"points": points, "if": _to_tree(part)} for points, part in expression.parts]
        return {"points_at_least": expression.least, "of": scored}
    parts = [_to_tree(part) for part in expression.parts]
    if isinstance(expression, AtLeast):
        return {"at_least": expression.count, "of": parts}
    return {"all" if isinstance(expression, All) else "any": parts}


def _to_quantity(computed: Computed) -> Mapping[str, Any]:
    return {"compute": computed.operator, "fields": [computed.first, computed.second]}
