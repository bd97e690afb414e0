"""The answer that proposes an edit, as the teacher gives it.

Its rationale is the way to the edit: the lines of the evidence that it takes, then what to look for
besides, the wrong cases that have it, and the right ones that have it too (``but``), condition by
condition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from lab.tiny.rules import CANONICAL, Condition, Kind, WorldRule
from lab.tiny.stage import Stage
from lab.tiny.teacher import Option
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.rules.prompts import ReflectionInput, case_name

MOST_NAMED = 3  # cases of a kind, in a rationale and as evidence


def operation_json(option: Option, stage: Stage, shown: ReflectionInput) -> str:
    """The answer that proposes an option."""
    edit, language = option.edit, stage.pool.world.language
    operation: dict[str, object] = {"rationale": rationale(option, stage, shown), "op": edit.op}
    if edit.op == "merge":
        operation["merged_from"] = list(edit.keys)
    elif edit.keys:
        operation["key"] = edit.keys[0]
    if edit.rule is not None:
        operation["text"] = with_lines(edit.rule, shown, language)
    operation["evidence"] = [case_name(place) for place in option.turned[:MOST_NAMED]]
    return json.dumps({"operations": [operation]}, ensure_ascii=False)


def with_lines(rule: WorldRule, shown: ReflectionInput, language: str) -> str:
    """The rule in words, with the numbers of counted lines in place of what these say."""
    lines = _lines(shown)
    left, parts = list(rule.conditions), []
    if len(left) == 1:
        parts, left = [_either(left[0], lines, language)], []
    while left:
        said = [
            (place, set(line))
            for place, line in lines.items()
            if left[0] in line and set(line) <= set(left)
        ]
        if said:
            place, line = max(said, key=lambda found: len(found[1]))
            left = [condition for condition in left if condition not in line]
            parts.append(f"[{place}]")
        else:
            parts.append(left.pop(0).text(language, CANONICAL))
    exception = _either(rule.exception, lines, language) if rule.exception else ""
    return rule.written(parts, exception, language, CANONICAL)


def _lines(shown: ReflectionInput) -> dict[int, tuple[Condition, ...]]:
    """The counted lines by their numbers, in the world's own conditions."""
    return {
        place: tuple(map(condition_of, clue.conditions))
        for place, clue in enumerate(shown.evidence.clues, 1)
    }


def _either(condition: Condition, lines: Mapping[int, tuple[Condition, ...]], language: str) -> str:
    """A condition that stands alone, its values each by the number of the line that says it, where
    one does."""
    for place, line in lines.items():
        if line == (condition,):
            return f"[{place}]"
    if condition.kind not in ("in", "mentions"):
        return condition.text(language, CANONICAL)
    apart = {
        replace(condition, kind="is" if condition.kind == "in" else "mentions", values=(v,)): v
        for v in condition.values
    }
    places = {
        apart[line[0]]: place
        for place, line in lines.items()
        if len(line) == 1 and line[0] in apart
    }
    rest = tuple(value for value in condition.values if value not in places)
    kind: Kind = "is" if condition.kind == "in" and len(rest) == 1 else condition.kind
    first = [replace(condition, kind=kind, values=rest).text(language, CANONICAL)] if rest else []
    return (" or " if language == "en" else "或").join(
        [*first, *(f"[{place}]" for place in places.values())]
    )


def rationale(option: Option, stage: Stage, shown: ReflectionInput) -> str:
    """``[2]; B is y: T7 T9 but T2``: the lines of the evidence that the edit takes, then what to
    look for besides, with the wrong and (``but``) the right cases that have it."""
    steps, left, language = [], stage.pool.everyone, stage.pool.world.language
    changed = [key for key in option.edit.keys if stage.book.rules[key].verdict != stage.label]
    if changed:
        left = stage.decided(changed[0])
        steps.append(changed[0] if stage.rule else _step(changed[0], left, stage))
    places, rest = cited(option.edit.grounds, shown)
    steps += [f"[{place}]" for place in places]
    for condition in option.edit.grounds:
        left &= stage.pool.meet(condition)
        if condition in rest:
            steps.append(_step(condition.text(language, CANONICAL), left, stage))
    return "; ".join(steps)


def cited(
    grounds: Sequence[Condition], shown: ReflectionInput
) -> tuple[list[int], list[Condition]]:
    """The lines of the evidence that say most of some conditions, and the conditions of which they
    say nothing."""
    lines = _lines(shown)
    said_of = {part for line in lines.values() for condition in line for part in _parts(condition)}
    left = {part for each in grounds if said_of.issuperset(_parts(each)) for part in _parts(each)}
    unsaid = [condition for condition in grounds if not said_of.issuperset(_parts(condition))]
    places: list[int] = []
    for place, line in sorted(
        lines.items(), key=lambda pair: (not set(pair[1]) <= set(grounds), -len(pair[1]))
    ):
        said = {part for condition in line for part in _parts(condition)}
        if said <= left:
            left -= said
            places.append(place)
    return places, [
        condition for condition in grounds if condition in unsaid or left & set(_parts(condition))
    ]


def _parts(condition: Condition) -> list[tuple[Kind, str, str]]:
    """Each value apart."""
    kind: Kind = "is" if condition.kind == "in" else condition.kind
    return [(kind, condition.attribute, value) for value in condition.values]


def _step(what: str, mask: int, stage: Stage) -> str:
    wrong, right = (
        " ".join(case_name(place) for place in stage.places(mask & kind)[:MOST_NAMED])
        for kind in (stage.wrong, stage.right)
    )
    return f"{what}: {wrong}" + (f" but {right}" if right else "")


def condition_of(counted: Expression) -> Condition:
    """A condition that was counted, as rules have it."""
    kind, name, value, other = counted.key
    assert kind not in ("", "within", "missing")  # lessons are counted without
    return (
        Condition("in", name, (value, other))
        if kind == "among"
        else Condition(cast(Kind, kind), name, (value,))
    )
