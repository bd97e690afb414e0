"""The edits that a run tried, in their order, and what became of each, as records and in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stageb.guidance.learning.reflection_file import ACCEPTED, EditEntry, RaceEntry, ReflectionRow
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import PROVISIONAL, Estimate, Operation, Rule

UNTESTED = "applied untested"
ALL_RIGHT = "all right with high agreement"
NO_ROOM = (
    "no room: the rules would be beyond reflection.max_rules or reflection.max_guidance_tokens"
)
NO_CANDIDATE = "no rules were found that do better on tickets which did not teach them"
APPLIED = (ACCEPTED, UNTESTED, PROVISIONAL)
OUTCOME_TEXTS = {  # the furthest first
    ACCEPTED: "accepted",
    UNTESTED: "applied untested",
    PROVISIONAL: "kept as provisional",
    "over a limit": "refused by a limit",
    "unproven": "not proven",
    "unlikely": "neither proven nor likely",
    "futile": "given up",
    "unpromising": "promised too little",
    "dropped": "not tested",
    "turns no evidence": "no effect",
}

JUDGES: Mapping[str, str] = {  # by value of ``Guidance.judge``
    "rules": "the rules as code, and the model where they give none",
    "weighed": "the model, weighed beside the rules as code, which decide alone where they are "
    "sure",
    "model": "the model",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One edit, and how far it came."""

    place: int  # number of its reflection in the run, from 1
    name: str  # R3
    outcome: str  # one of OUTCOME_TEXTS
    operations: tuple[Operation, ...]
    times: int  # number of answers that proposed it
    # how many of the tickets that it names it turned, and how many it names; None: not asked
    turned: tuple[int, int] | None
    race: RaceEntry | None  # None where it did not race
    # level, tickets, groups, mean_gain, and won and lost, or log_wealth
    test: Mapping[str, Any] | None
    estimate: Estimate | None = None  # of what was learnt at once

    @property
    def gain(self) -> float | None:
        """Its gain per ticket in its test; if it had none, in its race."""
        if self.test and self.test["tickets"]:
            return float(self.test["mean_gain"])
        if self.race:
            return float((self.race.won - self.race.lost) / self.race.tickets)
        return None


@dataclass(frozen=True, slots=True)
class Attempts:
    """The outcome of a mission's reflections."""

    reflections: int  # bundles reflected on
    tried: tuple[Attempt, ...]  # in their order
    idle: Mapping[str, int]  # why reflections had nothing to try -> how many
    refused: Mapping[str, int]  # why parts of answers were not used -> how often
    # the mission's false-acceptance budget, and what is left of it; None without a gate
    budget: tuple[float, float] | None

    @property
    def outcomes(self) -> list[tuple[str, int]]:
        """The number of edits by outcome, the furthest outcome first."""
        counts = Counter(each.outcome for each in self.tried)
        return [(outcome, counts[outcome]) for outcome in OUTCOME_TEXTS if counts[outcome]]

    @property
    def accepted(self) -> list[Attempt]:
        """The edits that changed the guidance."""
        return [each for each in self.tried if each.outcome in APPLIED]

    @property
    def settled(self) -> list[Attempt]:
        """The edits that changed the guidance, and not as provisional rules."""
        return [each for each in self.accepted if each.outcome != PROVISIONAL]

    @property
    def judge(self) -> str:
        """The judge since the last change; empty where none was chosen."""
        return str(self._measured.get("judge", ""))

    @property
    def judges(self) -> Mapping[str, float]:
        """The share of tickets that each judge judged right, as measured then."""
        found: Mapping[str, float] = self._measured.get("judges", {})
        return found

    @property
    def _measured(self) -> Mapping[str, Any]:
        return next(
            (each.test for each in reversed(self.accepted) if each.test and "judge" in each.test),
            {},
        )

    @property
    def others(self) -> list[Attempt]:
        """The edits that changed nothing."""
        return [each for each in self.tried if each.outcome not in APPLIED]


def keep_furthest(some: Sequence[Attempt], most: int) -> list[Attempt]:
    """Keep at most ``most`` attempts, in their order: those that came furthest, of equals those
    that gained most."""
    order = [*OUTCOME_TEXTS]
    ranked = sorted(some, key=lambda each: (order.index(each.outcome), -(each.gain or 0.0)))
    kept = set(map(id, ranked[:most]))
    return [each for each in some if id(each) in kept]


def list_attempts(rows: Sequence[ReflectionRow]) -> Attempts:
    """Read rows of reflection.jsonl."""
    tried: list[Attempt] = []
    idle: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for place, row in enumerate(rows, 1):
        mine = _parse_attempts(place, row)
        tried += mine
        refused.update(each.reason for proposal in row.proposals for each in proposal.refused)
        if not mine:
            none = "no usable edit was proposed" if row.proposals else NO_CANDIDATE
            idle[row.why_not or none] += 1
    gates = [row.gate for row in rows if row.gate]
    budget = (gates[0].budget_before, gates[-1].budget_after) if gates else None
    return Attempts(len(rows), tuple(tried), idle, refused, budget)


def _parse_attempts(place: int, row: ReflectionRow) -> list[Attempt]:
    name = row.reflection_id
    if row.gate is None:
        if row.applied is None:
            return []
        return [Attempt(place, name, UNTESTED, row.operations, 1, None, None, None)]
    return [
        Attempt(
            place=place,
            name=name,
            outcome=edit.outcome,
            operations=row.operations_of(edit.proposals),
            times=edit.proposed_times,
            turned=(edit.evidence.turned, edit.evidence.tickets) if _has_answered(edit) else None,
            race=edit.race if edit.race.tickets else None,
            test=edit.test,
            estimate=edit.estimate,
        )
        for edit in row.gate.edits
    ]


def _has_answered(edit: EditEntry) -> bool:
    """Whether an edit was tried on its evidence: a joined edit was not, and one without any cannot
    be."""
    return len(edit.proposals) == 1 and edit.evidence.tickets > 0


ENDS = {  # said behind a number of edits
    "over a limit": "would do more than gate.max_false_passes or gate.max_changed_verdicts allows",
    "unproven": "fell short of a proof",
    "unlikely": "fell short of a proof, and of seeming better by more than chance explains",
    "futile": "left little hope of a proof",
    "unpromising": "promised too little for a test",
    "dropped": "promised too little, or less than another",
    "turns no evidence": "had no effect on the tickets that taught them",
}
STAGES = {  # by outcome of the edit that came furthest
    "over a limit": "the edit that came furthest does more than gate.max_false_passes or "
    "gate.max_changed_verdicts allows",
    "unproven": "the edit that came furthest was tested, and not proven",
    "unlikely": "the rules that were found were tested, and are neither proven nor likely",
    "futile": "the edit that came furthest was given up in its test",
    "unpromising": "the edit that came furthest won too little in its race to be tested",
    "dropped": "the edit that came furthest lost its race",
    "turns no evidence": "no edit mended a ticket that it was made for",
}
TOO_MANY = "more than reflection.max_rules or reflection.max_guidance_tokens allows"
REFUSALS = (  # how a reason in reflection.jsonl begins, or what it holds -> in words
    (
        r".*(no ticket has|no ticket mentions|is no number in|is neither a number)",
        "named what no ticket has",
    ),
    (
        r"too late:",
        "named a rule that another edit of the same round had changed, or did what one had done",
    ),
    (r"no room", f"would be {TOO_MANY}"),
    (r"text copied", "copied a ticket instead of saying what tickets have in common"),
    (r"no change", "would have changed nothing"),
    (r"no evidence|evidence:", "did not say which of the tickets shown they would fix"),
    (r"more operations", "held more edits than were asked for"),
    (r"thinking never closed", "came to no end of thinking: raise reflection.max_new_tokens"),
    (r"text without a verdict", "said neither pass nor fail"),
    (
        r"no rule|never removed|an earlier operation|merge needs",
        "named a rule that is not there or may not be touched",
    ),
    (r"text of \d+", "were longer than a rule may be"),
    (
        r"not one|not an|no operations|longer|op is|\w+ takes no|\w+ without|\w+ is not",
        "were not in the form asked for",
    ),
)
OTHERWISE = "could not be used for other reasons"
IDLE = {
    ALL_RIGHT: "the model was right and sure about all tickets that it could learn from",
    NO_ROOM: f"the rules that were found are {TOO_MANY}",
}
LONGEST = 120  # characters of a rule, where one is shown beside what became of it


def name_reflection(name: str) -> str:
    """``R3``: reflection 3."""
    return re.sub(r"^R(?=\d+$)", "reflection ", name)


def explain_refusals(refused: Mapping[str, int]) -> list[tuple[str, int]]:
    """Say why proposals could not be used, in words, the most frequent reason first; a parser's own
    words on them stand in files."""
    counts: Counter[str] = Counter()
    for why, count in refused.items():
        counts[
            next((words for pattern, words in REFUSALS if re.match(pattern, why)), OTHERWISE)
        ] += count
    return [
        (re.sub("^were ", "was ", why) if n == 1 else why, n) for why, n in counts.most_common()
    ]


def explain_idle(idle: Mapping[str, int]) -> list[tuple[str, int]]:
    """Say why reflections had nothing to try, in words."""
    return [(IDLE.get(why, why), count) for why, count in idle.items()]


def describe_gain(attempt: Attempt, is_weighed: bool = False) -> str:
    """Describe the gain of an accepted edit; empty where nothing was measured. ``is_weighed``:
    gains are weighed by unequal prices."""
    if not attempt.test or not attempt.test["tickets"]:
        return ""
    points = "points of cost, weighed by the prices," if is_weighed else "points of accuracy"
    count = f"{attempt.test['tickets']:,}"
    return (
        f"{attempt.test['mean_gain'] * 100:+.1f} {points} on {count} tickets that it was not "
        f"made from"
    )


def name_last_stage(attempts: Attempts) -> str:
    """Say what stopped a run that has learnt nothing: the outcome of the edit that came furthest,
    or why none was tried."""
    if not attempts.reflections:
        return "nothing was reflected on"
    if not attempts.tried:
        return f"no edit was tried: {'; '.join(_why_nothing(attempts))}"
    (best,) = keep_furthest(attempts.tried, 1)
    stage = STAGES[best.outcome]
    if best.estimate:
        stage += f" ({describe_estimate(best.estimate)})"
    elif best.race:
        won, lost = round(best.race.won), round(best.race.lost)
        stage += f" (on {best.race.tickets:,} tickets {won:,} judged better, {lost:,} worse)"
    return stage


def describe_estimate(estimate: Estimate) -> str:
    """Describe an estimate of learnt rules: shares of right verdicts, and costs where prices
    differ."""
    before, after = estimate.acc_before, estimate.acc
    said = f"{before:.1%} right without these rules, {after:.1%} with them"
    if abs(1 - before - estimate.cost_before) > 1e-5 or abs(1 - after - estimate.cost) > 1e-5:
        said = (
            f"a ticket costs {estimate.cost_before:.3f} without these rules, "
            f"{estimate.cost:.3f} with them; {said}"
        )
    return f"{said}, estimated out of fold on {estimate.tickets:,} train tickets"


def describe_judge(judge: str, edits: Attempts) -> Iterator[str]:
    """Say who gives the verdicts, where learning chose that, and how accurate each judge was."""
    if judge:
        right = ", ".join(f"{name} {share:.1%}" for name, share in edits.judges.items())
        measured = f" (right of train tickets that taught none of it: {right})" if right else ""
        yield f"Judged by {JUDGES[judge]}{measured}."


def describe_provisional(rules: Sequence[Rule]) -> list[str]:
    """Write a line for each estimate that provisional rules came with: which rules these are, and
    their estimate."""
    keys: dict[Estimate | None, list[str]] = {}
    for rule in rules:
        if rule.is_provisional:
            keys.setdefault(rule.estimate, []).append(rule.key)
    return [
        f"{', '.join(of)} {'is' if len(of) == 1 else 'are'} provisional, not proven to help"
        f"{f': {describe_estimate(estimate)}' if estimate else ''}"
        for estimate, of in keys.items()
    ]


def describe_reflection(attempts: Attempts, is_weighed: bool = False) -> str:
    """Describe one reflection and its outcome in one line; ``is_weighed``: gains are weighed by
    unequal prices."""
    tried, accepted = attempts.tried, attempts.accepted
    if not tried:
        return f"nothing to try: {'; '.join(_why_nothing(attempts))}"
    if not accepted:
        ends = ", ".join(
            f"{count:,} {ENDS[outcome]}"
            for outcome, count in Counter(each.outcome for each in tried).items()
        )
        # others are often plain nonsense
        compared = [each for each in tried if each.race or each.test]
        best = max(
            compared, key=lambda each: (each.gain or 0.0, -len(each.operations)), default=None
        )
        texts = [part.text for part in best.operations if part.text] if best else []
        shown = f"; such as: {texts[0][:LONGEST]}" if texts else ""
        return f"{count_of(len(tried), 'edit')} tried, none accepted: {ends}{shown}"
    gain = describe_gain(accepted[0], is_weighed)
    if accepted[0].outcome == PROVISIONAL:
        rules = count_of(len(accepted[0].operations), "rule")
        return f"{rules} learnt, not proven, and kept as provisional{f': {gain}' if gain else ''}"
    if accepted[0].outcome == UNTESTED:
        return "an edit applied untested"
    return f"{count_of(len(tried), 'edit')} tried, one accepted{f': {gain}' if gain else ''}"


def _why_nothing(attempts: Attempts) -> Iterator[str]:
    refused = explain_refusals(attempts.refused)
    if refused:
        yield ", ".join(f"{count_of(count, 'proposal')} {why}" for why, count in refused)
    else:
        yield from (why for why, _ in explain_idle(attempts.idle))
