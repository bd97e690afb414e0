"""Where rules come from, as the files of the run that learnt them tell: by which edit, at which step, how it was proven."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stageb.guidance.files.guidance_file import files_of_run
from stageb.guidance.files.reflection_file import REFLECTION, parse_row
from stageb.guidance.types import Guidance, Operation, Rule
from stageb.runs.folder import RunFolder

LEARNT = "learnt"  # in a rule's metadata, where it was copied out of the run that learnt it: what that run's files say


@dataclass(frozen=True, slots=True)
class EditRecord:
    """An edit that a run applied."""

    name: str  # R1, R2, ... for reflections, P3, ... for searches for idle rules
    epoch: int | None  # None where the run's files are older than this figure
    step: int  # of the guidance that it made
    operations: tuple[Operation, ...]
    gate: Mapping[str, Any] | None  # the figures of its test; None where it was applied untested

    def plain(self, run: str) -> dict[str, Any]:
        """What a copied rule remembers of it."""
        return {"run": run, "step": self.step, "epoch": self.epoch, "gate": self.gate}


def read_edits(run: Path, mission: str) -> list[EditRecord]:
    """The edits that a run applied to a mission's guidance, in order.

    Raises ``BadInputError`` where another program changed the rows.
    """
    files, file = RunFolder(run), f"{_find_folder(run, mission)}/{REFLECTION}"
    found = []
    for line, row in files.whole_rows(file, '"applied": true'):
        if row.get("applied") is not True:
            continue
        try:
            each = parse_row(row)
            operations = each.operations_of(each.applied or ())
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise files.changed(file, line, f"no row of a reflection ({type(error).__name__})") from None
        test = each.accepted_edit.test if each.accepted_edit else None
        found.append(EditRecord(each.reflection_id, each.epoch, each.step_after, operations, test))
    return found


def read_val_metrics(run: Path, mission: str) -> dict[int, Mapping[str, Any]]:
    """The first figures on val of every step that was judged there."""
    files, file = RunFolder(run), f"{_find_folder(run, mission)}/metrics.jsonl"
    judged: dict[int, Mapping[str, Any]] = {}
    for line, row in files.whole_rows(file, '"split": "val"'):
        if not isinstance(row.get("guidance_step"), int) or not isinstance(row.get("n"), int):
            raise files.changed(file, line, "no row of metrics")
        judged.setdefault(row["guidance_step"], row)
    return judged


def _find_folder(run: Path, mission: str) -> str:
    """The mission's folder in the run's."""
    return files_of_run(run)[mission].parent.name


def find_edit(rule: Rule, made: list[EditRecord]) -> EditRecord | None:
    """The edit that gave a rule its text; None where none of these did, but an earlier run, or a person."""

    def gave(edit: EditRecord) -> bool:
        texts = [(op.text, list(op.evidence)) for op in edit.operations]
        return edit.name == rule.metadata.get("reflection_id") and (rule.text, rule.metadata.get("sources")) in texts

    return next((edit for edit in reversed(made) if gave(edit)), None)


def add_provenance(guidance: Guidance, run: Path) -> Guidance:
    """The guidance, each of its rules with what the files of ``run`` say of how it was learnt."""
    made = read_edits(run, guidance.mission)

    def learnt(rule: Rule) -> Rule:
        edit = find_edit(rule, made)
        if edit is None or LEARNT in rule.metadata:
            return rule
        return replace(rule, metadata={**rule.metadata, LEARNT: edit.plain(run.name)})

    return replace(guidance, rules=tuple(learnt(rule) for rule in guidance.rules))
