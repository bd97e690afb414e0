"""What the files of a run say of its rules: which edit gave each its text, how that was proven, and
how each step did on val.

What the metadata of a rule holds, anybody may have written there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stageb.errors import shown
from stageb.guidance.learning.reflection_file import REFLECTION, ReflectionRow, parse_row
from stageb.guidance.rules.edits import find_author
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import Guidance, Rule
from stageb.runs.folder import RunFolder
from stageb.store.journal import safe_name

# in a rule's metadata, where it was copied out of the run that learnt it: what that run's files say
LEARNT = "learnt"
TICKETS = 5  # named of those that a rule was learnt from, where all are not asked for
DONE = {"add": "added", "update": "updated", "merge": "merged", "remove": "removed"}


def read_edits(run: Path, mission: str) -> list[ReflectionRow]:
    """The rows of reflection.jsonl by which a run edited a mission's guidance, in order.

    Raises ``BadInputError`` where another program changed them.
    """
    files, file = RunFolder(run), f"{safe_name(mission)}/{REFLECTION}"
    rows = files.read_whole(file, '"applied": true')
    return [
        parse_reflection(files, file, line, row) for line, row in rows if row.get("applied") is True
    ]


def parse_reflection(
    files: RunFolder, file: str, line: int, row: Mapping[str, Any]
) -> ReflectionRow:
    """A row of reflection.jsonl. Raises ``BadInputError`` where no run writes such a one."""
    try:
        return parse_row(row)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise files.fault(file, line, f"no row of a reflection ({type(error).__name__})") from None


def read_val_metrics(run: Path, mission: str) -> dict[int, Mapping[str, Any]]:
    """The first figures on val of every step that was judged there."""
    files, file = RunFolder(run), f"{safe_name(mission)}/metrics.jsonl"
    judged: dict[int, Mapping[str, Any]] = {}
    for line, row in files.read_whole(file, '"split": "val"'):
        if not isinstance(row.get("guidance_step"), int) or not isinstance(row.get("n"), int):
            raise files.fault(file, line, "no row of metrics")
        judged.setdefault(row["guidance_step"], row)
    return judged


def find_edit(rule: Rule, made: list[ReflectionRow]) -> ReflectionRow | None:
    """The edit that gave a rule its text; None where none of these did, but an earlier run, or a
    person."""

    def gave(edit: ReflectionRow) -> bool:
        texts = [(operation.text, list(operation.evidence)) for operation in edit.operations]
        by, sources = rule.metadata.get("reflection_id"), rule.metadata.get("sources")
        return edit.reflection_id == by and (rule.text, sources) in texts

    return next((edit for edit in reversed(made) if gave(edit)), None)


def summarize_edit(edit: ReflectionRow, run: str) -> dict[str, Any]:
    """Metadata of a rule that is copied out of ``run``, on the edit that gave it its text."""
    return {"run": run, "step": edit.step_after, "epoch": edit.epoch, "gate": edit.test}


def add_provenance(guidance: Guidance, run: Path) -> Guidance:
    """The guidance, each of its rules with what the files of ``run`` say of how it was learnt."""
    made = read_edits(run, guidance.mission)

    def annotate(rule: Rule) -> Rule:
        edit = find_edit(rule, made)
        if edit is None or LEARNT in rule.metadata:
            return rule
        return replace(rule, metadata={**rule.metadata, LEARNT: summarize_edit(edit, run.name)})

    return replace(guidance, rules=tuple(annotate(rule) for rule in guidance.rules))


def describe_provenance(rule: Rule, edit: ReflectionRow | None, all_tickets: bool) -> Iterator[str]:
    """How a rule came to its text."""
    data = rule.metadata
    if not data:
        yield "given: by a person, or as the neutral headline"
        return
    told = data.get(LEARNT) if edit is None else summarize_edit(edit, "")
    told = told if isinstance(told, Mapping) else {}
    place = [
        f"{name} {shown(str(told[name]), 60)}"
        for name in ("step", "epoch")
        if told.get(name) is not None
    ]
    place += [f"run {shown(str(told['run']), 60)}"] if told.get("run") else []
    op = data.get("op") if isinstance(data.get("op"), str) else ""
    merged = data.get("merged_from") if isinstance(data.get("merged_from"), list) else []
    made = [DONE.get(str(op), shown(str(op), 20)) or "written"]
    made += [f"from {shown(', '.join(map(str, merged or [])), 80)}"] if merged else []
    made += [f"by {shown(str(data['reflection_id']), 60)}"] if data.get("reflection_id") else []
    yield " ".join(made) + (f" ({', '.join(place)})" if place else "")
    if why := str(data.get("rationale") or ""):
        yield f"why, says {find_author(why)}: {shown(why, 400)}"
    sources = data.get("sources")
    if isinstance(sources, list) and sources:
        named = [name_ticket(str(key)) for key in (sources if all_tickets else sources[:TICKETS])]
        more = len(sources) - len(named)
        yield (
            f"learnt from {count_of(len(sources), 'ticket')}: "
            f"{', '.join(named)}{f' and {more} more' if more else ''}"
        )
    # of another size, it is of the rules in use
    if isinstance(told.get("gate"), Mapping) and not rule.is_provisional:
        yield f"gate: {describe_test(told['gate'])}"


def name_ticket(key: str) -> str:
    """A ticket's key for people."""
    group, _, label = key.rpartition("::")
    return shown(f"{group} ({label})" if group else key, 120)


def describe_test(test: Mapping[str, Any]) -> str:
    """The figures of a test, in a line."""
    figures = {name: value for name, value in test.items() if isinstance(value, int | float)}
    said = [f"mean gain {figures['mean_gain'] * 100:+.1f} points"] if "mean_gain" in figures else []
    said += [f"on {figures['tickets']} tickets"] if "tickets" in figures else []
    said += (
        [f"({figures['won']:g} won, {figures['lost']:g} lost)"]
        if {"won", "lost"} <= figures.keys()
        else []
    )
    tested = [" ".join(said)] if said else []
    if "level" in figures:
        tested.append(
            f"a rule that does not help would pass with a chance of at most {figures['level']:.2g}"
        )
    return "; ".join(tested)
