"""Reads the guidance of whatever file or folder a person points a command at: a run's folder or its
``guidance.json`` (``guidance_json.py``), a file kept for many runs, rules as plain text
(``rules_as_text.py``). What it returns has passed every check.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.guidance.rules import history_file, rules_as_text
from stageb.guidance.rules.guidance_json import adopt, from_json
from stageb.guidance.rules.prompts import Words, find_words, name_labels, render_guidance
from stageb.guidance.words.types import (
    BACKGROUND,
    ESTIMATE,
    FIXED,
    HEADLINE_KEY,
    PASS_FAIL,
    PROVISIONAL,
    UNCALIBRATED,
    Guidance,
    Rule,
    Verdict,
)
from stageb.store.trust import file_of
from stageb.untrusted import strict_json

HIGHEST_NUMBER = 999_999  # the highest number that a user may write: a run counts on from it
MOST_BYTES = 64 << 20  # in a file of guidance


def make_neutral(
    mission: str, words: Words, labels: tuple[Verdict, ...] = PASS_FAIL, default: Verdict = ""
) -> Guidance:
    """Make a headline alone, by which all tickets have the ``default``, or else the first of
    ``labels``."""
    named = name_labels(words, labels)
    headline = Rule(HEADLINE_KEY, named.headlines.get(default, named.neutral_headline))
    return Guidance(mission, 0, (headline,), 1, labels=labels)


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
        content, lines = rules_as_text.parse(text, str(path), words or find_words(text))
    else:
        try:
            content = strict_json.loads(text)
        except ValueError as error:
            line = getattr(error, "lineno", 0) or strict_json.find_fault(text)
            why = getattr(error, "msg", error)
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
        content, lines = adopt(content), strict_json.find_key_lines(text)
    guidance = from_json(content, str(path), lines)
    high = [
        name
        for name, known in guidance.items()
        if max(known.step, known.next_number - 1) > HIGHEST_NUMBER
    ]
    if high:
        remedy = "number the rules G0, G1, ... and leave step and next_number out"
        whats = {
            name: f"mission {name!r}: a step or a rule's number beyond {HIGHEST_NUMBER}"
            for name in high
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
    known = {rule.text: rule.metadata for rule in base.rules}
    marks = {FIXED, BACKGROUND, PROVISIONAL}

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
    """Read the history of a mission in a shared file (``history_file.py``), by step."""
    kept = dict[int, Guidance]()
    for row in history_file.read_history(path):
        if row["mission"] == mission:
            history = history_file.history_path(path)
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
