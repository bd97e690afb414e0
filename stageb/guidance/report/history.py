"""How a guidance grew: every step made again from the first one and the edits that were accepted, and what it changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stageb.guidance.changes import RuleChange, compare_rules
from stageb.guidance.reflection.edits import apply
from stageb.guidance.types import Guidance, Operation, Rule


@dataclass(frozen=True, slots=True)
class Step:
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

    @property
    def sources(self) -> list[str]:
        """The tickets that it was learnt from. Metadata that a person wrote may hold anything."""
        keys = self.rule.metadata.get("sources")
        return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []

    def said(self, name: str) -> str:
        """A text of its metadata: ``reflection_id``, ``op`` or ``rationale``; empty where it has none."""
        value = self.rule.metadata.get(name)
        return value if isinstance(value, str) else ""


def replayed(first: Guidance, reflections: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Every guidance of a run: ``first``, and one more for each applied row of reflection.jsonl.

    Raises ``ValueError`` where a row names rules that the guidance does not have.
    """
    steps = [Step(first)]
    for place, row in enumerate(reflections, 1):
        if row["applied"]:
            before = steps[-1].guidance
            after = apply(before, _operations(row), row["reflection_id"])
            steps.append(Step(after, place, row["reflection_id"], compare_rules(before, after)))
    return tuple(steps)


def lineages(steps: Sequence[Step], final: int, earned: Sequence[tuple[int, Mapping[str, float]]]) -> list[Lineage]:
    """The rules of step ``final``. ``earned`` are (guidance step, rule -> what it earns), in the order they were measured;
    one counts for a rule that has the same text since."""
    found, last = [], steps[final].guidance.step
    for rule in steps[final].guidance.rules:
        own = [(step, change) for step in steps[: final + 1] for change in step.changes if change.key == rule.key]
        since = own[-1][0].guidance.step if own else steps[0].guidance.step
        measured = [(at, worth[rule.key]) for at, worth in earned if rule.key in worth and since <= at <= last]
        at, worth = measured[-1] if measured else (since, None)
        found.append(Lineage(rule, since, tuple(change for _, change in own), worth, at))
    return found


def _operations(row: Mapping[str, Any]) -> list[Operation]:
    """The operations that a row applied: those of its proposals, and the rules that went to make room."""
    applied = [proposal for proposal in row["proposals"] if proposal["proposal"] in row["applied_proposals"]]
    operations = [_operation(each) for proposal in applied for each in proposal["operations"]]
    tried = row["gate"]["edits"] if row["gate"] else []
    traded = [key for each in tried if each["outcome"] == "accepted" for key in each["rules_traded"]]
    return operations + [Operation("remove", key, (), "", "it earns least, and room was needed", ()) for key in traded]


def _operation(row: Mapping[str, Any]) -> Operation:
    return Operation(**{**row, "merged_from": tuple(row["merged_from"]), "evidence": tuple(row["evidence"])})
