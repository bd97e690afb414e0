"""Where rules come from, as the files of the run that learnt them tell: by which edit, at which step, how it was proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from stageb.guidance.files.reflection_file import REFLECTION, LearningRow, parse_row
from stageb.guidance.types import Guidance, Rule
from stageb.runs.folder import RunFolder
from stageb.store.journal import safe_name

LEARNT = "learnt"  # in a rule's metadata, where it was copied out of the run that learnt it: what that run's files say


def read_edits(run: Path, mission: str) -> list[LearningRow]:
    """The rows of reflection.jsonl by which a run edited a mission's guidance, in order.

    Raises ``BadInputError`` where another program changed them.
    """
    files, file = RunFolder(run), f"{safe_name(mission)}/{REFLECTION}"
    found: list[LearningRow] = []
    for line, row in files.read_whole(file, '"applied": true'):
        if row.get("applied") is not True:
            continue
        try:
            found.append(parse_row(row))
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise files.fault(file, line, f"no row of a reflection ({type(error).__name__})") from None
    return found


def read_val_metrics(run: Path, mission: str) -> dict[int, Mapping[str, Any]]:
    """The first figures on val of every step that was judged there."""
    files, file = RunFolder(run), f"{safe_name(mission)}/metrics.jsonl"
    judged: dict[int, Mapping[str, Any]] = {}
    for line, row in files.read_whole(file, '"split": "val"'):
        if not isinstance(row.get("guidance_step"), int) or not isinstance(row.get("n"), int):
            raise files.fault(file, line, "no row of metrics")
        judged.setdefault(row["guidance_step"], row)
    return judged


def find_edit(rule: Rule, made: list[LearningRow]) -> LearningRow | None:
    """The edit that gave a rule its text; None where none of these did, but an earlier run, or a person."""

    def gave(edit: LearningRow) -> bool:
        texts = [(operation.text, list(operation.evidence)) for operation in edit.operations]
        by, sources = rule.metadata.get("reflection_id"), rule.metadata.get("sources")
        return edit.reflection_id == by and (rule.text, sources) in texts

    return next((edit for edit in reversed(made) if gave(edit)), None)


def summarize_edit(edit: LearningRow, run: str) -> dict[str, Any]:
    """What a rule that is copied out of ``run`` remembers of the edit that gave it its text."""
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
