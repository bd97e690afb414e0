"""The format of ``guidance.json``: guidance to JSON and back, every field checked.

``{mission: {"step": 3, "next_number": 5, "experiences": {"G0": text, ...}, "metadata": {"G4":
{...}}, "spent": {...}}}``: ``spent`` where something was (``types.Budget``), demonstrations,
calibration, judge, automation and what is ``named`` where there are some, ``labels`` of its own. A
person may leave out all but the experiences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, get_args

from stageb.errors import BadInputError, BadLine
from stageb.guidance.rules.edits import number
from stageb.guidance.words.automation import Automation
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.texts import are_named, labels_fault
from stageb.guidance.words.types import (
    FIXED,
    HEADLINE_KEY,
    NAME_LENGTH,
    NOTHING,
    PASS_FAIL,
    TEACHING_FOLDS,
    UNCALIBRATED,
    Budget,
    Calibration,
    Demonstration,
    Guidance,
    JudgeName,
    Rule,
)
from stageb.untrusted.clean_text import text_fault

KEY = re.compile(r"G(0|[1-9][0-9]{0,8})")
SEEN = ("taught_by", "chosen_by")
SHOWN = ("demonstrations", "calibration", "named", "automation")
FIELDS = (
    "step",
    "next_number",
    "experiences",
    "metadata",
    "spent",
    *SEEN,
    *SHOWN,
    "judge",
    "labels",
)


def to_json(guidance: Guidance) -> dict[str, Any]:
    """Return the content of guidance.json for one mission; ``from_json`` of it gives ``guidance``
    back."""
    return {
        guidance.mission: {
            "step": guidance.step,
            "next_number": guidance.next_number,
            "experiences": {rule.key: rule.text for rule in guidance.rules},
            "metadata": {rule.key: dict(rule.metadata) for rule in guidance.rules if rule.metadata},
            **({"spent": asdict(guidance.spent)} if guidance.spent != NOTHING else {}),
            **{name: "".join(sorted(seen)) for name in SEEN if (seen := getattr(guidance, name))},
            **_format_shown(guidance),
            **({"judge": guidance.judge} if guidance.judge else {}),
            **({"labels": list(guidance.labels)} if guidance.labels != PASS_FAIL else {}),
        }
    }


def format_file(missions: Iterable[Guidance]) -> str:
    """Write the text of a guidance.json of these missions."""
    content = {name: body for each in missions for name, body in to_json(each).items()}
    return json.dumps(content, ensure_ascii=False, indent=2) + "\n"


def from_json(
    content: Mapping[str, Any], path: str, lines: Mapping[tuple[str, ...], int] | None = None
) -> dict[str, Guidance]:
    """Read every mission's guidance from the parsed content of a guidance.json; ``path`` is its
    name in messages, ``lines`` says on which of its lines a key stands, by the keys that lead
    there.

    Raises ``BadInputError`` with every fault found: the file, the line, the mission, the key, and
    the remedy.
    """
    faults: list[BadLine] = []
    for mission, body in content.items():
        for place, what, remedy in _find_faults(mission, body):
            line = (lines or {}).get((mission, *place), 0)
            faults.append(BadLine(path, line, f"mission {mission!r}: {what}", remedy))
    if faults:
        raise BadInputError("places in the guidance", faults)
    return {mission: _make_guidance(mission, body) for mission, body in content.items()}


def _make_guidance(mission: str, body: Mapping[str, Any]) -> Guidance:
    """Make one mission's guidance from a body without faults."""
    metadata, labels = body.get("metadata", {}), tuple(body.get("labels", PASS_FAIL))
    rules = [Rule(key, text, metadata.get(key, {})) for key, text in body["experiences"].items()]
    # with labels, the order decides
    rules.sort(key=(lambda rule: rule.key != HEADLINE_KEY) if has_labels(labels) else number)
    spent = Budget(tuple(map(float, body["spent"]["edits"]))) if "spent" in body else NOTHING
    shown = (Demonstration.parse(each, labels) for each in body.get("demonstrations", ()))
    next_number = body.get("next_number", max(map(number, rules)) + 1)
    taught_by, chosen_by = (
        frozenset(re.findall(rf".{{{NAME_LENGTH}}}", body.get(name, ""))) for name in SEEN
    )
    return Guidance(
        mission,
        body.get("step", 0),
        tuple(rules),
        next_number,
        spent,
        taught_by=taught_by,
        chosen_by=chosen_by,
        demonstrations=tuple(each for each in shown if each),
        calibration=Calibration.parse(body.get("calibration", {}), labels) or UNCALIBRATED,
        judge=body.get("judge", ""),
        labels=labels,
        named=tuple(map(tuple, body.get("named", ()))),
        automation=Automation.parse(body.get("automation"), labels),
    )


def _format_shown(guidance: Guidance) -> dict[str, Any]:
    """Return demonstrations, calibration, what rules are read by and what is decided alone, where
    there are some."""
    shown = [
        {**asdict(each), "per_image": dict(each.per_image)} for each in guidance.demonstrations
    ]
    calibration = guidance.calibration.to_plain() if guidance.calibration != UNCALIBRATED else {}
    automation = guidance.automation.to_plain() if guidance.automation else {}
    found = (shown, calibration, list(map(list, guidance.named)), automation)
    return {name: value for name, value in zip(SHOWN, found, strict=True) if value}


# the keys that lead there from the mission, what is wrong, the remedy
_Fault = tuple[tuple[str, ...], str, str]


def _find_faults(mission: str, body: Any) -> list[_Fault]:
    """Find the faults of one mission's body."""
    if text_fault(mission):
        return [((), f"its name has {text_fault(mission)}", "name the mission as the tickets do")]
    if not isinstance(body, dict):
        return [((), "not an object", 'write {"experiences": {"G0": "..."}}')]
    rules = body.get("experiences")
    if not isinstance(rules, dict) or HEADLINE_KEY not in rules:
        rules_place: tuple[str, ...] = ("experiences",) if "experiences" in body else ()
        return [
            (
                rules_place,
                "no experiences with a headline",
                'write "experiences": {"G0": "the headline", ...}',
            )
        ]
    remedy = f"leave it out; known: {', '.join(FIELDS)}"
    faults: list[_Fault] = [
        ((name,), f"unknown field {name!r}", remedy) for name in body if name not in FIELDS
    ]
    for key, text in rules.items():
        place = ("experiences", key)
        if not KEY.fullmatch(key):
            faults.append(
                (place, f"experiences: the key {key!r}", "name rules G0, G1, ... G999999")
            )
        elif not isinstance(text, str):
            faults.append((place, f"experiences: {key}: not a text", "write the rule as a string"))
        elif text_fault(text):
            faults.append(
                (
                    place,
                    f"experiences: {key}: {text_fault(text)}",
                    "write the rule as one plain line",
                )
            )
    if faults:
        return faults
    if why := labels_fault(body.get("labels", PASS_FAIL)):
        return [
            (
                ("labels",),
                f"labels: {why}",
                "list them, first the one of tickets that no rule speaks of",
            )
        ]
    rest = _find_spent_faults(body) + _find_seen_faults(body) + _find_shown_faults(body)
    return _find_number_faults(body, rules) + _find_metadata_faults(body, rules) + rest


def _find_number_faults(body: Mapping[str, Any], rules: Mapping[str, Any]) -> list[_Fault]:
    faults: list[_Fault] = []
    least = 1 + max(int(key[1:]) for key in rules)
    for name, lowest in (("step", 0), ("next_number", least)):
        value = body.get(name, lowest)
        if type(value) is not int or value < lowest:
            faults.append(
                (
                    (name,),
                    f"{name}: {value!r}",
                    f"write a whole number of at least {lowest}, or leave it out",
                )
            )
    return faults


def _find_spent_faults(body: Mapping[str, Any]) -> list[_Fault]:
    """A share below 0 would give a run more to spend than ``gate.alpha``."""
    spent = body.get("spent", asdict(NOTHING))
    remedy = (
        f'write {{"edits": [{", ".join(["0"] * TEACHING_FOLDS)}]}} with what was spent, 0 to 1 each'
    )
    # older files have more
    if not isinstance(spent, dict) or not isinstance(spent.get("edits"), list | tuple):
        return [(("spent",), "spent: not an object of edits", remedy)]
    shares = spent["edits"]
    if len(shares) != TEACHING_FOLDS or not all(
        type(each) in (int, float) and 0 <= each <= 1 for each in shares
    ):
        return [(("spent",), f"spent: {shares!r}", remedy)]
    return []


def _find_seen_faults(body: Mapping[str, Any]) -> list[_Fault]:
    """Find faults in the names of the tickets that taught and chose."""
    remedy = "restore it: it tells which tickets are not new"
    form = rf"([0-9a-f]{{{NAME_LENGTH}}})*"
    given = {name: body.get(name, "") for name in SEEN}
    return [
        ((name,), f"{name}: not names of tickets' contents", remedy)
        for name, value in given.items()
        if not isinstance(value, str) or not re.fullmatch(form, value)
    ]


def _find_shown_faults(body: Mapping[str, Any]) -> list[_Fault]:
    """Find faults in demonstrations, calibration, names, judge and automation."""
    demonstrations, labels = body.get("demonstrations", []), body.get("labels", PASS_FAIL)
    are_shown = isinstance(demonstrations, list) and all(
        Demonstration.parse(each, labels) for each in demonstrations
    )
    calibration = Calibration.parse(body.get("calibration", {}), labels)
    rights = {
        "demonstrations: not a list of tickets with their verdicts": are_shown,
        "calibration: not a slope, an offset and a weight of rules": calibration is not None,
        "named: not a list of fields, each with a value": are_named(body.get("named", [])),
        "automation: not what stageb automate writes": "automation" not in body
        or Automation.parse(body["automation"], labels) is not None,
        "judge: none of rules, model and weighed": body.get("judge", "") in get_args(JudgeName),
    }
    return [
        ((what.partition(":")[0],), what, "leave it out")
        for what, right in rights.items()
        if not right
    ]


def _find_metadata_faults(body: Mapping[str, Any], rules: Mapping[str, Any]) -> list[_Fault]:
    metadata = body.get("metadata", {})
    if not isinstance(metadata, dict):
        return [(("metadata",), "metadata: not an object", 'write {"G1": {...}}, or leave it out')]
    remedy = "give an object for a key of the experiences, or leave it out"
    return [
        (("metadata", key), f"metadata: {key!r}", remedy)
        for key, value in metadata.items()
        if key not in rules or not isinstance(value, dict)
    ]


# The guidance.json of this design's first implementation: rules S1, S2, ... that learning left
# alone, the time of the last change, and at times what the mission looks at.


def adopt(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same as this one writes it: such rules are fixed, numbered behind the others; what
    the mission looks at is the headline where there is none. Other content stays as it is."""
    return {
        mission: _adopt(body) if isinstance(body, dict) else body
        for mission, body in content.items()
    }


def _adopt(body: Mapping[str, Any]) -> dict[str, Any]:
    rules, known = body.get("experiences"), body.get("metadata", {})
    rest = {name: value for name, value in body.items() if name not in ("updated_at", "focus")}
    if (
        not isinstance(rules, dict)
        or not isinstance(known, dict)
        or not all(isinstance(each, dict) for each in known.values())
    ):
        return rest
    if body.get("focus") and HEADLINE_KEY not in rules:
        rules = {HEADLINE_KEY: body["focus"], **rules}
    first = 1 + max([int(key[1:]) for key in rules if re.fullmatch("G[0-9]{1,9}", key)], default=0)
    keys = {
        key: f"G{n}"
        for n, key in enumerate((key for key in rules if re.fullmatch("S[0-9]{1,9}", key)), first)
    }
    if keys:
        fixed = {new: {**known.get(key, {}), FIXED: True} for key, new in keys.items()}
        rest["metadata"] = {
            **{key: each for key, each in known.items() if key not in keys},
            **fixed,
        }
    return {**rest, "experiences": {keys.get(key, key): text for key, text in rules.items()}}
