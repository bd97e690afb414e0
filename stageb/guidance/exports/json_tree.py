"""Rules as JSON: their expressions as a tree of our own, for programs that show or judge them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stageb.guidance.exports.protocol import CodedMission, Exported, list_unwritten
from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.parse import OutOfReach, RuleCode
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
            {"key": rule.key, "text": rule.text, "verdict": code.verdict, "if": code.expression.to_plain()}
            | ({"provisional": True} if rule.is_provisional else {})
            for rule, code in coded
        ],
        "unreadable": [{"key": rule.key, "text": rule.text, "why": code.why} for rule, code in gone],
    }
