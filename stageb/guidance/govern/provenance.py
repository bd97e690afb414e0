"""Where rules come from, as the files of the run that learnt them tell: by which edit, at which step, how it was proven."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stageb.errors import BadInputError, BadLine
from stageb.guidance.files.guidance_file import files_of_run
from stageb.guidance.types import Guidance, Rule
from stageb.store.trust import file_of
from stageb.untrusted import strict_json

LEARNT = "learnt"  # in a rule's metadata, where it was copied out of the run that learnt it: what that run's files say


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that a run applied."""

    name: str  # R1, R2, ... for reflections, P3, ... for searches for idle rules
    epoch: int | None  # None where the run's files are older than this figure
    step: int  # of the guidance that it made
    operations: tuple[Mapping[str, Any], ...]
    gate: Mapping[str, Any] | None  # the figures of its test; None where it was applied untested

    def plain(self, run: str) -> dict[str, Any]:
        """What a copied rule remembers of it."""
        return {"run": run, "step": self.step, "epoch": self.epoch, "gate": self.gate}


def edits(folder: Path) -> list[Edit]:
    """The edits that a run applied to a mission's guidance, in order; ``folder`` is the mission's.

    Raises ``BadInputError`` where another program changed the rows.
    """
    found = []
    for line, row in _rows(folder / "reflection.jsonl", '"applied": true'):
        if row.get("applied") is not True:
            continue
        try:
            applied = set(row["applied_proposals"])
            operations = (op for each in row["proposals"] if each["proposal"] in applied for op in each["operations"])
            tried = row["gate"]["edits"] if row["gate"] else []
            gate = next((each["test"] for each in tried if each["outcome"] == "accepted"), None)
            step = int(row["guidance_step_after"])
            found.append(Edit(str(row["reflection_id"]), row.get("epoch"), step, tuple(operations), gate))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _changed(folder / "reflection.jsonl", line, f"no row of a reflection ({type(error).__name__})") from None
    return found


def on_val(folder: Path) -> dict[int, Mapping[str, Any]]:
    """The first figures on val of every step that was judged there."""
    judged: dict[int, Mapping[str, Any]] = {}
    for line, row in _rows(folder / "metrics.jsonl", '"split": "val"'):
        if not isinstance(row.get("guidance_step"), int) or not isinstance(row.get("n"), int):
            raise _changed(folder / "metrics.jsonl", line, "no row of metrics")
        judged.setdefault(row["guidance_step"], row)
    return judged


def edit_of(rule: Rule, made: list[Edit]) -> Edit | None:
    """The edit that gave a rule its text; None where none of these did, but an earlier run, or a person."""

    def gave(edit: Edit) -> bool:
        texts = [(op.get("text"), op.get("evidence")) for op in edit.operations]
        return edit.name == rule.metadata.get("reflection_id") and (rule.text, rule.metadata.get("sources")) in texts

    return next((edit for edit in reversed(made) if gave(edit)), None)


def remembering(guidance: Guidance, run: Path) -> Guidance:
    """The guidance, each of its rules with what the files of ``run`` say of how it was learnt."""
    made = edits(files_of_run(run)[guidance.mission].parent)

    def learnt(rule: Rule) -> Rule:
        edit = edit_of(rule, made)
        if edit is None or LEARNT in rule.metadata:
            return rule
        return replace(rule, metadata={**rule.metadata, LEARNT: edit.plain(run.name)})

    return replace(guidance, rules=tuple(learnt(rule) for rule in guidance.rules))


def _rows(path: Path, having: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The whole rows of a run's file that hold a text, each with its line; a run may be writing the next one."""
    if not file_of(path.parent, path).exists():
        return
    with path.open(encoding="utf-8", errors="replace") as opened:
        for number, line in enumerate(opened, 1):
            if having in line and line.endswith("\n"):
                try:
                    row = strict_json.loads(line)
                except ValueError as error:
                    raise _changed(path, number, f"not JSON: {error}") from None
                if not isinstance(row, dict):
                    raise _changed(path, number, "not an object")
                yield number, row


def _changed(path: Path, line: int, what: str) -> BadInputError:
    return BadInputError("rows of a run", [BadLine(str(path), line, what, "another program changed it; take the row out")])
