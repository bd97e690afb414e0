"""How a guidance grew: every step made again from the first one and the edits that were accepted, and what it changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stageb.guidance.changes import RuleChange, compare_rules
from stageb.guidance.files.reflection_file import LearningRow
from stageb.guidance.reflection.edits import apply, mark_provisional
from stageb.guidance.types import PROVISIONAL, Guidance, Operation, Rule


@dataclass(frozen=True, slots=True)
class GuidanceStep:
    """A guidance, and how it came about."""

    guidance: Guidance
    place: int = 0  # which reflection of the run brought it, from 1; 0 for what the run started with
    by: str = ""  # that reflection's name
    changes: tuple[RuleChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Lineage:
    """One rule of a guidance: where its text comes from."""

    rule: Rule
    since: int  # the guidance step at which it got this text
    earlier: tuple[RuleChange, ...]  # how its text changed in this run, oldest first; the first is how it came
    worth: float | None  # what leaving it out would cost, in accuracy as the gate weighs it; None where it was not measured
    worth_at: int  # the guidance step at which that was measured
    worth_on: int  # train tickets that it was measured on

    @property
    def reason(self) -> str:
        """The model's reason for it, less the rule's own condition, which reasons that count tickets begin with."""
        said, condition = self.read_metadata("rationale"), self.rule.text.partition(" if ")[2].rstrip(".")
        counted = said.removeprefix(condition).strip()
        is_count = bool(condition) and counted != said and counted.startswith("(") and counted.endswith(")")
        return f"when it was proposed, {counted[1:-1]}" if is_count else said

    def read_metadata(self, name: str) -> str:
        """A text of its metadata: ``reflection_id``, ``op`` or ``rationale``; empty where it has none."""
        value = self.rule.metadata.get(name)
        return value if isinstance(value, str) else ""


def replay(first: Guidance, rows: Iterable[LearningRow]) -> tuple[GuidanceStep, ...]:
    """Every guidance of a run: ``first``, and one more for each row of reflection.jsonl that applied an edit.

    Raises ``ValueError`` where a row names rules that the guidance does not have.
    """
    steps = [GuidanceStep(first)]
    for place, row in enumerate(rows, 1):
        if row.applied is not None:
            before = steps[-1].guidance
            edit = row.accepted_edit
            traded = [
                Operation("remove", key, (), "", "it earns least, and room was needed", ())
                for key in (edit.rules_traded if edit else ())
            ]
            after = apply(before, [*row.operations, *traded], row.reflection_id)
            for each in row.gate.edits if row.gate else ():
                if each.outcome == PROVISIONAL:
                    after = mark_provisional(after, row.reflection_id, each.estimate)
            steps.append(GuidanceStep(after, place, row.reflection_id, compare_rules(before, after)))
    return tuple(steps)


def trace_rules(
    steps: Sequence[GuidanceStep], final: int, earned: Sequence[tuple[int, Mapping[str, float], int]]
) -> list[Lineage]:
    """The rules of step ``final``. ``earned`` are (guidance step, rule -> what it earns, tickets), in the order they were
    measured; one counts for a rule that has the same text since."""
    found, last = [], steps[final].guidance.step
    for rule in steps[final].guidance.rules:
        own = [(step, change) for step in steps[: final + 1] for change in step.changes if change.key == rule.key]
        since = own[-1][0].guidance.step if own else steps[0].guidance.step
        measured = [(at, worth[rule.key], on) for at, worth, on in earned if rule.key in worth and since <= at <= last]
        at, worth, on = measured[-1] if measured else (since, None, 0)
        found.append(Lineage(rule, since, tuple(change for _, change in own), worth, at, on))
    return found
