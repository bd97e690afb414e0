"""The edits that a run tried, in their order, and what became of each, as reflection.jsonl tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stageb.guidance.files.reflection_file import ACCEPTED, EditEntry, LearningRow, PruningRow, RaceEntry, ReflectionRow
from stageb.guidance.types import PROVISIONAL, Estimate, Operation

UNTESTED = "applied untested"
NO_CANDIDATE = "no rules were found that do better on tickets which did not teach them"
OUTCOMES = (
    ACCEPTED,
    UNTESTED,
    PROVISIONAL,
    "unproven",
    "unlikely",
    "futile",
    "unpromising",
    "dropped",
    "turns no evidence",
)  # nearest first
APPLIED = OUTCOMES[:3]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One edit, and how far it came."""

    place: int  # which reflection of the run it is of, from 1
    name: str  # R3, or P2 for a search for idle rules
    outcome: str  # one of OUTCOMES
    operations: tuple[Operation, ...]
    traded: tuple[str, ...]  # rules that go to make room for it
    times: int  # answers that proposed it
    turned: tuple[int, int] | None  # of the tickets that it names: turned, named; None where it was not asked
    race: RaceEntry | None  # None where it did not race
    test: Mapping[str, Any] | None  # level, tickets, groups, mean_gain, and won and lost, or log_wealth
    step: int  # of the guidance that it was made for
    estimate: Estimate | None = None  # of what was learnt at once

    @property
    def gain(self) -> float | None:
        """What it gained per ticket, in its test; in its race where there was none."""
        if self.test and self.test["tickets"]:
            return float(self.test["mean_gain"])
        if self.race:
            return float((self.race.won - self.race.lost) / self.race.tickets)
        return None

    @property
    def is_removal(self) -> bool:
        """Whether it comes from a search for rules that can go: then it need not be better."""
        return self.name.startswith("P")


@dataclass(frozen=True, slots=True)
class Attempts:
    """What a mission's reflections came to."""

    reflections: int  # bundles reflected on, and searches for idle rules
    tried: tuple[Attempt, ...]  # in their order
    idle: Mapping[str, int]  # why reflections had nothing to try, and how many
    refused: Mapping[str, int]  # why what answers said was not used, and how often
    earned: tuple[tuple[int, Mapping[str, float], int], ...]  # (guidance step, rule -> what it earns, tickets), per search
    budget: tuple[float, float] | None  # the mission's false-acceptance budget, and what is left of it; None without a gate

    @property
    def edits(self) -> list[Attempt]:
        """Those that reflections proposed; the others let go of rules."""
        return [each for each in self.tried if not each.is_removal]

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        """How many edits came how far, the furthest first."""
        counts = Counter(each.outcome for each in self.edits)
        return [(outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]]

    @property
    def accepted(self) -> list[Attempt]:
        """Those that changed the guidance, rules that went included."""
        return [each for each in self.tried if each.outcome in APPLIED]

    @property
    def gone(self) -> int:
        """Searches for idle rules that found one."""
        return sum(each.is_removal for each in self.accepted)

    @property
    def others(self) -> list[Attempt]:
        """Those that changed nothing."""
        return [each for each in self.tried if each.outcome not in APPLIED]


def keep_furthest(some: Sequence[Attempt], most: int) -> list[Attempt]:
    """At most so many, in their order: those that came furthest, of equals those that gained most."""
    ranked = sorted(some, key=lambda each: (OUTCOMES.index(each.outcome), -(each.gain or 0.0), each.place))
    kept = set(map(id, ranked[:most]))
    return [each for each in some if id(each) in kept]


def list_attempts(rows: Sequence[ReflectionRow | PruningRow]) -> Attempts:
    """What rows of reflection.jsonl say."""
    tried: list[Attempt] = []
    idle: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for place, row in enumerate(rows, 1):
        mine = _parse_attempts(place, row)
        tried += mine
        refused.update(each.reason for proposal in row.proposals for each in proposal.refused)
        if not mine:
            none = "no usable edit was proposed" if row.proposals else NO_CANDIDATE
            idle[(row.why_not if isinstance(row, ReflectionRow) else "") or none] += 1
    earned = tuple((row.step_before, row.credits, _count_raced(row)) for row in rows if isinstance(row, PruningRow))
    gates = [row.gate for row in rows if row.gate]
    budget = (gates[0].budget_before, gates[-1].budget_after) if gates else None
    return Attempts(len(rows), tuple(tried), idle, refused, earned, budget)


def _count_raced(row: LearningRow) -> int:
    """Train tickets that the edits of a row were compared on."""
    return max((edit.race.tickets for edit in row.gate.edits), default=0) if row.gate else 0


def _parse_attempts(place: int, row: LearningRow) -> list[Attempt]:
    name, step = row.reflection_id, row.step_before
    if row.gate is None:
        if row.applied is None:
            return []
        return [Attempt(place, name, UNTESTED, row.operations, (), 1, None, None, None, step)]
    return [
        Attempt(
            place=place,
            name=name,
            outcome=edit.outcome,
            operations=row.operations_of(edit.proposals),
            traded=edit.rules_traded,
            times=edit.proposed_times,
            turned=(edit.evidence.turned, edit.evidence.tickets) if _has_answered(edit) else None,
            race=edit.race if edit.race.tickets else None,
            test=edit.test,
            step=step,
            estimate=edit.estimate,
        )
        for edit in row.gate.edits
    ]


def _has_answered(edit: EditEntry) -> bool:
    """Whether an edit was asked for its evidence: one that joins others was not, and one without any cannot be."""
    return len(edit.proposals) == 1 and edit.evidence.tickets > 0
