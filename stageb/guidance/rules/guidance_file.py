"""Guidance in files: the ``guidance.json`` of a run, one that a person wrote or keeps for many
runs, rules as plain text.

``{mission: {"step": 3, "next_number": 5, "experiences": {"G0": text, ...}, "metadata": {"G4":
{...}}, "spent": {...}}}``: ``spent`` where something was (``types.Budget``), demonstrations,
calibration, judge, automation and what is ``named`` where there are some, ``labels`` of its own. A
person may leave out all but the experiences, or write text (``rules_file``). Commands read whatever
they were pointed at with ``read_guidance``; what it returns has passed every check.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.guidance.rules import rules_file
from stageb.guidance.rules.edits import number
from stageb.guidance.rules.prompts import Words, find_words, name_labels, render_guidance
from stageb.guidance.words.automation import Automation
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.texts import are_named, labels_fault
from stageb.guidance.words.types import (
    BACKGROUND,
    ESTIMATE,
    FIXED,
    FOLDS,
    HEADLINE_KEY,
    NAME_LENGTH,
    NOTHING,
    PASS_FAIL,
    PROVISIONAL,
    UNCALIBRATED,
    Budget,
    Calibration,
    Demonstration,
    Guidance,
    JudgeName,
    Rule,
    Verdict,
)
from stageb.store.trust import file_of
from stageb.untrusted import strict_json
from stageb.untrusted.clean_text import text_fault

KEY = re.compile(r"G(0|[1-9][0-9]{0,8})")
MOST = 999_999  # the highest number that a user may write: a run counts on from it
MOST_BYTES = 64 << 20  # in a file of guidance
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


def make_neutral(
    mission: str, words: Words, labels: tuple[Verdict, ...] = PASS_FAIL, default: Verdict = ""
) -> Guidance:
    """Make a headline alone, by which all tickets have the ``default``, or else the first of
    ``labels``."""
    named = name_labels(words, labels)
    headline = Rule(HEADLINE_KEY, named.headlines.get(default, named.neutral_headline))
    return Guidance(mission, 0, (headline,), 1, labels=labels)


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


def read_guidance(
    source: str | Path, mission: str | None = None, words: Words | None = None
) -> dict[str, Guidance]:
    """Read the guidance that ``source`` names, by mission: of ``mission`` alone if one is given,
    which must be there then.

    A source is a run's folder, a guidance.json, or a text file of rules (``.txt``, its default
    headline in ``words``, or in the language of its rules); each may end in ``@STEP``: the guidance
    of that step, as the run's snapshots or the file's history keep it, except for what was spent,
    which no step back gives back.

    Raises ``InputError`` where there is no such thing, or something in it cannot be used.
    """
    path, step = split_step(source)
    files = find_guidance_files(path) if path.is_dir() else [path]
    found = {
        name: (file, guidance)
        for file in files
        for name, guidance in load_seed(file, words).items()
    }
    _check_mission(path, mission, found)
    wanted = {name: each for name, each in found.items() if mission in (None, name)}
    if step is None:
        return {name: guidance for name, (_, guidance) in wanted.items()}
    find = _read_snapshot if path.is_dir() else _find_step
    return {
        name: _carry_spent(guidance, find(file, guidance, step))
        for name, (file, guidance) in wanted.items()
    }


def split_step(source: str | Path) -> tuple[Path, int | None]:
    """Return the path in ``PATH`` or ``PATH@STEP``, and the step; where a file exists under the
    whole name, there is no step."""
    text = str(source)
    head, _, tail = text.rpartition("@")
    if head and re.fullmatch("[0-9]{1,9}", tail) and not os.path.lexists(text):
        return Path(head), int(tail)
    return Path(text), None


def find_guidance_files(folder: Path) -> list[Path]:
    """Find the guidance.json of every mission of a run. Raises ``InputError`` where no run of this
    loop lies in ``folder``."""
    if not file_of(folder, folder / "config.yaml").exists():
        raise InputError(
            shown(
                f"{folder}: no run lies there (it would hold config.yaml); name a run's folder, "
                f"or a file"
            )
        )
    files = [file_of(folder, file) for file in sorted(folder.glob("*/guidance.json"))]
    if not files:
        raise InputError(
            shown(f"{folder}: this run holds no guidance; name one of loop guidance that has begun")
        )
    return files


def load_seed(path: str | Path, words: Words | None = None) -> dict[str, Guidance]:
    """Load the guidance that a person wrote, or a run, by mission: rules as text where the file's
    name ends in ``.txt``, their default headline in ``words``, or in the language of its rules;
    else JSON.

    Raises ``BadInputError`` where the file cannot be read, is not what its name says, or holds
    something else, numbers that leave a run no room included.
    """
    text, lines = _read_text(path), dict[tuple[str, ...], int]()
    if Path(path).suffix == ".txt":
        content, lines = rules_file.parse(text, str(path), words or find_words(text))
    else:
        try:
            content = strict_json.loads(text)
        except ValueError as error:
            line, why = (
                getattr(error, "lineno", 0) or strict_json.find_fault(text),
                getattr(error, "msg", error),
            )
            raise _unreadable(
                path,
                f"not JSON: {why}",
                "correct it, or give a text file of rules a name ending in .txt",
                line,
            ) from error
        if not isinstance(content, dict) or not content:
            raise _unreadable(
                path,
                "not an object of missions",
                'write {"the mission": {"experiences": {"G0": "..."}}}',
            )
        content, lines = rules_file.adopt(content), strict_json.find_key_lines(text)
    guidance = from_json(content, str(path), lines)
    high = [
        name for name, known in guidance.items() if max(known.step, known.next_number - 1) > MOST
    ]
    if high:
        remedy = "number the rules G0, G1, ... and leave step and next_number out"
        whats = {
            name: f"mission {name!r}: a step or a rule's number beyond {MOST}" for name in high
        }
        bad = [
            BadLine(str(path), lines.get((name,), 0), what, remedy) for name, what in whats.items()
        ]
        raise BadInputError("places in the guidance", bad)
    return guidance


def _read_text(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)  # a device may have no end
    except (OSError, ValueError) as error:  # a ValueError is about a name that no file can have
        why = getattr(error, "strerror", None) or str(error)
        raise _unreadable(
            path, why, "name a readable guidance.json, or a text file of rules"
        ) from error
    if len(data) > MOST_BYTES:
        raise _unreadable(
            path,
            f"more than {MOST_BYTES >> 20} MiB",
            "name a guidance.json, or a text file of rules",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unreadable(
            path, f"not UTF-8 (byte {error.start})", "save it as UTF-8", line
        ) from error


def _check_mission(path: Path, mission: str | None, known: Iterable[str]) -> None:
    if mission is not None and mission not in known:
        names = shown(", ".join(map(repr, known)), 400)
        raise InputError(
            shown(f"{path}: no guidance of mission {mission!r} there; it has: {names}")
        )


def _carry_spent(newest: Guidance, past: Guidance) -> Guidance:
    """Return ``past``, which ``read_past`` read, with what was spent since, and the tickets that
    taught since."""
    return carry_seen(newest, replace(past, spent=past.spent.most(newest.spent)))


def carry_seen(before: Guidance, after: Guidance) -> Guidance:
    """Return ``after``, with the tickets that taught and chose ``before`` added."""
    return replace(
        after,
        taught_by=before.taught_by | after.taught_by,
        chosen_by=before.chosen_by | after.chosen_by,
    )


def keep_origins(base: Guidance, edited: Guidance) -> Guidance:
    """Return ``edited``, which a person wrote, with all that ``base`` says about it: where its
    rules come from, and what was spent and seen. Marks are those of ``edited``."""
    known, marks = (
        {rule.text: rule.metadata for rule in base.rules},
        {FIXED, BACKGROUND, PROVISIONAL},
    )

    def keep(rule: Rule) -> Rule:
        gone = marks if rule.is_provisional else {*marks, ESTIMATE}
        kept = {name: value for name, value in known.get(rule.text, {}).items() if name not in gone}
        return replace(rule, metadata={**kept, **rule.metadata})

    rules = tuple(map(keep, edited.rules))
    is_same = render_guidance(replace(base, rules=rules)) == render_guidance(base)
    return replace(
        base,
        step=base.step if is_same else base.step + 1,
        rules=rules,
        next_number=max(base.next_number, edited.next_number),
        calibration=base.calibration if is_same else UNCALIBRATED,
        judge=base.judge if is_same or base.judge == "rules" else "",
        labels=edited.labels if edited.labels != PASS_FAIL else base.labels,
    )


def _read_snapshot(file: Path, guidance: Guidance, step: int) -> Guidance:
    """Read the guidance of that mission that a run had at ``step``; ``file`` is its
    guidance.json."""
    mission = guidance.mission
    kept = {
        int(each.stem.rpartition("-")[2]): each
        for each in file.parent.glob("snapshots/guidance-[0-9]*.json")
    }
    if step not in kept:
        raise InputError(
            _describe_missing_step(
                file.parent, mission, step, kept, "guidance.retention says how many a run keeps"
            )
        )
    known = load_seed(file_of(file.parent, kept[step]))
    _check_mission(kept[step], mission, known)
    return known[mission]


def _find_step(path: Path, guidance: Guidance, step: int) -> Guidance:
    """Find the guidance of that mission at ``step`` in a file's history, or in the file itself: one
    that was edited by hand has the number of the step that it was."""
    kept = {guidance.step: guidance, **read_past(path, guidance.mission)}
    if step not in kept:
        raise InputError(
            _describe_missing_step(path, guidance.mission, step, kept, "name one of them")
        )
    return kept[step]


def read_past(path: Path, mission: str) -> dict[int, Guidance]:
    """Read the history of a mission in a shared file (``rules_file.py``), by step."""
    kept = dict[int, Guidance]()
    for row in rules_file.read_history(path):
        if row["mission"] == mission:
            history = rules_file.history_path(path)
            known = from_json(row["guidance"], str(history)).get(mission)
            if known is None or known.step != row["step"]:
                what = f"the row of step {row['step']} of mission {mission!r} holds other guidance"
                raise _unreadable(history, what, "remove it, or correct it")
            kept[known.step] = known
    return kept


def _describe_missing_step(
    path: Path, mission: str, step: int, kept: Iterable[int], remedy: str
) -> str:
    steps = ", ".join(map(str, sorted(kept)))
    return shown(
        f"{path}: step {step} of mission {mission!r} is not there; kept: {steps}; {remedy}"
    )


def _unreadable(path: str | Path, what: str, remedy: str, line: int = 0) -> BadInputError:
    return BadInputError("places in the guidance", [BadLine(str(path), line, what, remedy)])


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
    remedy = f'write {{"edits": [{", ".join(["0"] * FOLDS)}]}} with what was spent, 0 to 1 each'
    # older files have more
    if not isinstance(spent, dict) or not isinstance(spent.get("edits"), list | tuple):
        return [(("spent",), "spent: not an object of edits", remedy)]
    shares = spent["edits"]
    if len(shares) != FOLDS or not all(
        type(each) in (int, float) and 0 <= each <= 1 for each in shares
    ):
        return [(("spent",), f"spent: {shares!r}", remedy)]
    return []


def _find_seen_faults(body: Mapping[str, Any]) -> list[_Fault]:
    """Find faults in the names of the tickets that taught and chose."""
    remedy, form = (
        "restore it: it tells which tickets are not new",
        rf"([0-9a-f]{{{NAME_LENGTH}}})*",
    )
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
