"""How a run's guidance grew: made again from the first one and the edits that were accepted, so
every step of it is known, whatever ``guidance.retention`` kept and whatever a person did to
``guidance.json`` since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stageb.guidance.learning.reflection_file import ReflectionRow
from stageb.guidance.rules.edits import (
    RuleChange,
    apply,
    compare_rules,
    find_author,
    mark_provisional,
)
from stageb.guidance.words.types import PROVISIONAL, Guidance, Rule


@dataclass(frozen=True, slots=True)
class GuidanceStep:
    """A guidance, and how it came about."""

    guidance: Guidance
    # which reflection of the run brought it, from 1; 0 for what the run started with
    place: int = 0
    by: str = ""  # that reflection's name
    changes: tuple[RuleChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Lineage:
    """One rule of a guidance: where its text comes from."""

    rule: Rule
    since: int  # the guidance step at which it got this text
    # how its text changed in this run, oldest first; the first is how it came
    earlier: tuple[RuleChange, ...]

    @property
    def reason(self) -> str:
        """The reason for it, less the rule's own condition, which reasons that count tickets begin
        with."""
        said = self.read_metadata("rationale")
        condition = self.rule.text.partition(" if ")[2].rstrip(".")
        counted = said.removeprefix(condition).strip()
        is_count = (
            bool(condition)
            and counted != said
            and counted.startswith("(")
            and counted.endswith(")")
        )
        return f"when it was proposed, {counted[1:-1]}" if is_count else said

    @property
    def author(self) -> str:
        """Who gave the reason."""
        return find_author(self.read_metadata("rationale"))

    def read_metadata(self, name: str) -> str:
        """A text of its metadata: ``reflection_id``, ``op`` or ``rationale``; empty where it has
        none."""
        value = self.rule.metadata.get(name)
        return value if isinstance(value, str) else ""


def replay(first: Guidance, rows: Iterable[ReflectionRow]) -> tuple[GuidanceStep, ...]:
    """Make every guidance of a run again: ``first``, and one more for each row of
    reflection.jsonl that applied an edit.

    Raises ``ValueError`` where a row names rules that the guidance does not have.
    """
    steps = [GuidanceStep(first)]
    for place, row in enumerate(rows, 1):
        if row.applied is not None:
            before = steps[-1].guidance
            after = apply(before, row.operations, row.reflection_id)
            for each in row.gate.edits if row.gate else ():
                if each.outcome == PROVISIONAL:
                    after = mark_provisional(after, row.reflection_id, each.estimate)
            steps.append(
                GuidanceStep(after, place, row.reflection_id, compare_rules(before, after))
            )
    return tuple(steps)


def trace_rules(steps: Sequence[GuidanceStep], final: int) -> list[Lineage]:
    """Trace the rules of step ``final``."""
    found = []
    for rule in steps[final].guidance.rules:
        own = [
            (step, change)
            for step in steps[: final + 1]
            for change in step.changes
            if change.key == rule.key
        ]
        since = own[-1][0].guidance.step if own else steps[0].guidance.step
        found.append(Lineage(rule, since, tuple(change for _, change in own)))
    return found
