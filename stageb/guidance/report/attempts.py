"""The edits that a run tried, in their order, and what became of each, as reflection.jsonl tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNTESTED = "applied untested"
OUTCOMES = ("accepted", UNTESTED, "unproven", "futile", "unpromising", "dropped", "turns no evidence")  # nearest first


@dataclass(frozen=True, slots=True)
class Attempt:
    """One edit, and how far it came."""

    place: int  # which reflection of the run it is of, from 1
    name: str  # R3, or P2 for a search for idle rules
    outcome: str  # one of OUTCOMES
    operations: tuple[Mapping[str, Any], ...]  # op, key, merged_from, text, rationale, evidence
    traded: tuple[str, ...]  # rules that go to make room for it
    times: int  # answers that proposed it
    turned: tuple[int, int] | None  # of the tickets that it names: turned, named; None where it was not asked
    race: Mapping[str, float] | None  # tickets, won, lost
    test: Mapping[str, float] | None  # level, tickets, groups, mean_gain, and won and lost, or log_wealth
    step: int  # of the guidance that it was made for

    @property
    def gain(self) -> float | None:
        """What it gained per ticket, in its test; in its race where there was none."""
        if self.test and self.test["tickets"]:
            return float(self.test["mean_gain"])
        if self.race and self.race["tickets"]:
            return float((self.race["won"] - self.race["lost"]) / self.race["tickets"])
        return None

    @property
    def removes(self) -> bool:
        """Whether it comes from a search for rules that can go: then it need not be better."""
        return self.name.startswith("P")

    @property
    def said(self) -> str:
        """The outcome, for people."""
        if not self.removes:
            return self.outcome
        return "let go" if self.outcome == "accepted" else "stays" if self.test is None else f"stays ({self.outcome})"


@dataclass(frozen=True, slots=True)
class Attempts:
    """What a mission's reflections came to."""

    reflections: int  # bundles reflected on, and searches for idle rules
    tried: tuple[Attempt, ...]  # in their order
    idle: Mapping[str, int]  # why reflections had nothing to try, and how many
    refused: Mapping[str, int]  # why what answers said was not used, and how often
    earned: tuple[tuple[int, Mapping[str, float]], ...]  # (guidance step, rule -> what it earns), per search
    budget: tuple[float, float] | None  # the mission's false-acceptance budget, and what is left of it; None without a gate

    @property
    def edits(self) -> list[Attempt]:
        """Those that reflections proposed; the others let go of rules."""
        return [each for each in self.tried if not each.removes]

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        """How many edits came how far, the furthest first."""
        counts = Counter(each.outcome for each in self.edits)
        return [(outcome, counts[outcome]) for outcome in OUTCOMES if counts[outcome]]

    @property
    def accepted(self) -> list[Attempt]:
        """Those that changed the guidance, rules that went included."""
        return [each for each in self.tried if each.outcome in ("accepted", UNTESTED)]

    @property
    def gone(self) -> int:
        """Searches for idle rules that found one."""
        return sum(each.removes for each in self.accepted)

    @property
    def others(self) -> list[Attempt]:
        """Those that changed nothing."""
        return [each for each in self.tried if each.outcome not in ("accepted", UNTESTED)]


def furthest(some: Sequence[Attempt], most: int) -> list[Attempt]:
    """At most so many, in their order: those that came furthest, of equals those that gained most."""
    ranked = sorted(some, key=lambda each: (OUTCOMES.index(each.outcome), -(each.gain or 0.0), each.place))
    kept = set(map(id, ranked[:most]))
    return [each for each in some if id(each) in kept]


def attempts(reflections: Sequence[Mapping[str, Any]]) -> Attempts:
    """What rows of reflection.jsonl say."""
    tried: list[Attempt] = []
    idle: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for place, row in enumerate(reflections, 1):
        mine = _of_row(place, row)
        tried += mine
        refused.update(each["reason"] for proposal in row["proposals"] for each in proposal["refused"])
        if not mine:
            idle[row.get("why_not") or "no usable edit was proposed"] += 1
    earned = tuple((row["guidance_step_before"], row["credits"]) for row in reflections if "credits" in row)
    gates = [row["gate"] for row in reflections if row["gate"]]
    budget = (gates[0]["budget_before"], gates[-1]["budget_after"]) if gates else None
    return Attempts(len(reflections), tuple(tried), idle, refused, earned, budget)


def _of_row(place: int, row: Mapping[str, Any]) -> list[Attempt]:
    proposals = {proposal["proposal"]: proposal["operations"] for proposal in row["proposals"]}
    name, step = row["reflection_id"], row["guidance_step_before"]
    if row["gate"] is None:
        operations = tuple(operation for index in row["applied_proposals"] for operation in proposals[index])
        return [Attempt(place, name, UNTESTED, operations, (), 1, None, None, None, step)] if row["applied"] else []
    return [
        Attempt(
            place=place,
            name=name,
            outcome=edit["outcome"],
            operations=tuple(operation for index in edit["proposals"] for operation in proposals[index]),
            traded=tuple(edit["rules_traded"]),
            times=edit["proposed_times"],
            turned=(edit["evidence"]["turned"], edit["evidence"]["tickets"]) if _alone(edit) else None,
            race=edit["race"] if edit["race"]["tickets"] else None,
            test=edit["test"],
            step=step,
        )
        for edit in row["gate"]["edits"]
    ]


def _alone(edit: Mapping[str, Any]) -> bool:
    """Whether an edit was asked for its evidence: one that joins others was not, and one without any cannot be."""
    return len(edit["proposals"]) == 1 and edit["evidence"]["tickets"] > 0
