"""Guidance as JSON: the ``guidance.json`` of a run, and one that a user wrote to start from.

``{mission: {"step": 3, "next_number": 5, "experiences": {"G0": text, ...}, "metadata": {"G4": {...}}}}``. A user may leave
out everything but the experiences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stageb import strict_json
from stageb.errors import BadInputError, BadLine
from stageb.guidance.prompts import WORDS
from stageb.guidance.reflection.edits import number
from stageb.guidance.texts import text_fault
from stageb.guidance.types import HEADLINE_KEY, Guidance, Rule

KEY = re.compile(r"G(0|[1-9][0-9]{0,8})")
MOST = 999_999  # of the numbers in what a user wrote: a run counts on from them
FIELDS = ("step", "next_number", "experiences", "metadata")


def neutral(mission: str, language: str) -> Guidance:
    """The guidance of a mission that nothing is known of: a headline that favours no rule."""
    return Guidance(mission, 0, (Rule(HEADLINE_KEY, WORDS[language].neutral_headline),), 1)


def to_json(guidance: Guidance) -> dict[str, Any]:
    """The content of guidance.json for one mission; ``from_json`` of it gives ``guidance`` back."""
    return {
        guidance.mission: {
            "step": guidance.step,
            "next_number": guidance.next_number,
            "experiences": {rule.key: rule.text for rule in guidance.rules},
            "metadata": {rule.key: dict(rule.metadata) for rule in guidance.rules if rule.metadata},
        }
    }


def from_json(content: Mapping[str, Any], path: str) -> dict[str, Guidance]:
    """Every mission's guidance in the parsed content of a guidance.json; ``path`` is its name in messages.

    Raises ``BadInputError`` with every fault found: the file, the mission, the key, and what to do.
    """
    faults: list[BadLine] = []
    for mission, body in content.items():
        faults += [BadLine(path, 0, f"mission {mission!r}: {what}", remedy) for what, remedy in _faults(mission, body)]
    if faults:
        raise BadInputError("places in the guidance", faults)
    return {mission: _guidance(mission, body) for mission, body in content.items()}


def load_seed(path: str | Path) -> dict[str, Guidance]:
    """The guidance that a user wrote, by mission.

    Raises ``BadInputError`` where the file cannot be read, is not strict JSON in UTF-8, or holds something else, numbers
    that leave a run no room included.
    """
    try:
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:  # a ValueError is about a name that no file can have
        why = getattr(error, "strerror", None) or str(error)
        raise _unreadable(path, why, "name a readable guidance.json in guidance.path") from error
    try:
        content = strict_json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _unreadable(path, f"not UTF-8 (byte {error.start})", "save it as UTF-8") from error
    except ValueError as error:
        raise _unreadable(path, f"not JSON: {error}", "mend it") from error
    if not isinstance(content, dict) or not content:
        raise _unreadable(path, "not an object of missions", 'write {"the mission": {"experiences": {"G0": "..."}}}')
    guidance = from_json(content, str(path))
    high = [mission for mission, known in guidance.items() if max(known.step, known.next_number - 1) > MOST]
    if high:
        remedy = "number the rules G0, G1, ... and leave step and next_number out"
        whats = [f"mission {mission!r}: a step or a rule's number beyond {MOST}" for mission in high]
        raise BadInputError("places in the guidance", [BadLine(str(path), 0, what, remedy) for what in whats])
    return guidance


def _unreadable(path: str | Path, what: str, remedy: str) -> BadInputError:
    return BadInputError("places in the guidance", [BadLine(str(path), 0, what, remedy)])


def _guidance(mission: str, body: Mapping[str, Any]) -> Guidance:
    """One mission's guidance from a body without faults."""
    metadata = body.get("metadata", {})
    rules = sorted((Rule(key, text, metadata.get(key, {})) for key, text in body["experiences"].items()), key=number)
    return Guidance(mission, body.get("step", 0), tuple(rules), body.get("next_number", number(rules[-1]) + 1))


def _faults(mission: str, body: Any) -> list[tuple[str, str]]:
    """What is wrong with one mission's body, and the remedy."""
    if text_fault(mission):
        return [(f"its name has {text_fault(mission)}", "name the mission as the tickets do")]
    if not isinstance(body, dict):
        return [("not an object", 'write {"experiences": {"G0": "..."}}')]
    experiences = body.get("experiences")
    if not isinstance(experiences, dict) or HEADLINE_KEY not in experiences:
        return [("no experiences with a headline", 'write "experiences": {"G0": "the headline", ...}')]
    found = [(f"unknown field {name!r}", f"leave it out; known: {', '.join(FIELDS)}") for name in body if name not in FIELDS]
    for key, text in experiences.items():
        if not KEY.fullmatch(key):
            found.append((f"experiences: the key {key!r}", "name rules G0, G1, ... G999999"))
        elif not isinstance(text, str):
            found.append((f"experiences: {key}: not a text", "write the rule as a string"))
        elif text_fault(text):
            found.append((f"experiences: {key}: {text_fault(text)}", "write the rule as one plain line"))
    return found or _number_faults(body, experiences) + _metadata_faults(body, experiences)


def _number_faults(body: Mapping[str, Any], experiences: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = []
    least = 1 + max(int(key[1:]) for key in experiences)
    for name, lowest in (("step", 0), ("next_number", least)):
        value = body.get(name, lowest)
        if type(value) is not int or value < lowest:
            found.append((f"{name}: {value!r}", f"write a whole number of at least {lowest}, or leave it out"))
    return found


def _metadata_faults(body: Mapping[str, Any], experiences: Mapping[str, Any]) -> list[tuple[str, str]]:
    metadata = body.get("metadata", {})
    if not isinstance(metadata, dict):
        return [("metadata: not an object", 'write {"G1": {...}}, or leave it out')]
    return [
        (f"metadata: {key!r}", "give an object for a key of the experiences, or leave it out")
        for key, value in metadata.items()
        if key not in experiences or not isinstance(value, dict)
    ]
