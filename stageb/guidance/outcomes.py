"""What became of edits, in words: for the lines of a run's progress, its last words and its report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from stageb.guidance.attempts import UNTESTED, Attempt, Attempts, keep_furthest
from stageb.guidance.files.reflection_file import ACCEPTED, LearningRow
from stageb.guidance.types import PROVISIONAL, Estimate, Rule

OUTCOMES = {
    ACCEPTED: "accepted",
    UNTESTED: "applied untested",
    PROVISIONAL: "kept as provisional",
    "unproven": "not proven",
    "unlikely": "neither proven nor likely",
    "futile": "given up",
    "unpromising": "promised too little",
    "dropped": "not tested",
    "turns no evidence": "no effect",
}
ENDS = {  # what so many edits did
    "unproven": "fell short of a proof",
    "unlikely": "fell short of a proof, and of seeming better by two standard errors",
    "futile": "left little hope of a proof",
    "unpromising": "promised too little for a test",
    "dropped": "promised too little, or less than another",
    "turns no evidence": "had no effect on the tickets that taught them",
}
STAGES = {  # where the edit stopped that came furthest
    "unproven": "the edit that came furthest was tested, and not proven",
    "unlikely": "the rules that were found were tested, and are neither proven nor likely",
    "futile": "the edit that came furthest was given up in its test",
    "unpromising": "the edit that came furthest won too little in its race to be tested",
    "dropped": "the edit that came furthest lost its race",
    "turns no evidence": "no edit mended a ticket that it was made for",
}
REFUSALS = (  # how a reason in reflection.jsonl begins, or what it holds -> in words
    (r".*(no ticket has|no ticket mentions|is no number in|is neither a number)", "named what no ticket has"),
    (r"too late:", "named a rule that another edit of the same round had changed, or did what one had done"),
    (r"text copied", "copied a ticket instead of saying what tickets have in common"),
    (r"no change", "would have changed nothing"),
    (r"no evidence|evidence:", "did not say which of the tickets shown they would fix"),
    (r"more operations", "held more edits than were asked for"),
    (r"thinking never closed", "came to no end of thinking: raise reflection.max_new_tokens"),
    (r"text without a verdict", "said neither pass nor fail"),
    (r"no rule|never removed|an earlier operation|merge needs", "named a rule that is not there or may not be touched"),
    (r"text of \d+", "were longer than a rule may be"),
    (r"not one|not an|no operations|longer|op is|\w+ takes no|\w+ without|\w+ is not", "were not in the form asked for"),
)
OTHERWISE = "could not be used for other reasons"
IDLE = {"all right with high agreement": "the model was right and sure about all tickets that it could learn from"}
LONGEST = 120  # characters of a rule, where one is shown beside what became of it


def count_of(n: int, what: str) -> str:
    """``1 failure``, ``2,000 failures``, ``no failure``."""
    return f"{n:,} {what}{'s' * (n != 1)}" if n else f"no {what}"


def name_reflection(name: str) -> str:
    """``R3``: reflection 3; ``P2``: the search for rules that bring nothing at step 2."""
    found = re.fullmatch(r"([RP])(\d+)", name)
    if not found:
        return name
    return f"reflection {found[2]}" if found[1] == "R" else f"search for idle rules at step {found[2]}"


def name_outcome(attempt: Attempt) -> str:
    """The outcome of an edit, in a word or two."""
    if attempt.is_removal:
        return "rule removed" if attempt.outcome == ACCEPTED else "rule stays"
    return OUTCOMES[attempt.outcome]


def explain_refusals(refused: Mapping[str, int]) -> list[tuple[str, int]]:
    """Why proposals could not be used, in words, the most frequent first; what a parser says of them stands in files."""
    counts: Counter[str] = Counter()
    for why, count in refused.items():
        counts[next((words for pattern, words in REFUSALS if re.match(pattern, why)), OTHERWISE)] += count
    return [(re.sub("^were ", "was ", why) if n == 1 else why, n) for why, n in counts.most_common()]


def explain_idle(idle: Mapping[str, int]) -> list[tuple[str, int]]:
    """Why reflections had nothing to try, in words."""
    return [(IDLE.get(why, why), count) for why, count in idle.items()]


def describe_gain(attempt: Attempt, is_weighed: bool = False) -> str:
    """What an accepted edit gained; empty where nothing was measured. ``is_weighed``: by unequal prices."""
    if not attempt.test or not attempt.test["tickets"]:
        return ""
    points = "points of cost, weighed by the prices," if is_weighed else "points"
    count = f"{attempt.test['tickets']:,}"
    return f"{attempt.test['mean_gain'] * 100:+.1f} {points} on {count} tickets that it was not made from"


def name_last_stage(attempts: Attempts) -> str:
    """Which stage stopped a run that has learnt nothing: how far the edit came that came furthest, or why none was tried."""
    if not attempts.reflections:
        return "nothing was reflected on"
    if not attempts.edits:
        return f"no edit was tried: {'; '.join(_why_nothing(attempts))}"
    (best,) = keep_furthest(attempts.edits, 1)
    stage = STAGES[best.outcome]
    if best.estimate:
        stage += f" ({describe_estimate(best.estimate)})"
    elif best.race:
        won, lost = round(best.race.won), round(best.race.lost)
        stage += f" (on {best.race.tickets:,} tickets {won:,} judged better, {lost:,} worse)"
    return stage


def describe_estimate(estimate: Estimate) -> str:
    """What learnt rules are hoped to come to, in words: shares of right verdicts, and costs where prices differ."""
    before, after = estimate.acc_before, estimate.acc
    said = f"{before:.1%} right without these rules, {after:.1%} with them"
    if abs(1 - before - estimate.cost_before) > 1e-5 or abs(1 - after - estimate.cost) > 1e-5:
        said = f"a ticket costs {estimate.cost_before:.3f} without these rules, {estimate.cost:.3f} with them; {said}"
    return f"{said}, estimated out of fold on {estimate.tickets:,} train tickets"


def describe_provisional(rules: Sequence[Rule]) -> list[str]:
    """A line for each estimate that provisional rules came with: which these are, and what they are hoped to come to."""
    keys: dict[Estimate | None, list[str]] = {}
    for rule in rules:
        if rule.is_provisional:
            keys.setdefault(rule.estimate, []).append(rule.key)
    return [
        f"{', '.join(of)} {'is' if len(of) == 1 else 'are'} provisional, not proven to help"
        f"{f': {describe_estimate(estimate)}' if estimate else ''}"
        for estimate, of in keys.items()
    ]


def describe_reflection(row: LearningRow, attempts: Attempts, is_weighed: bool = False) -> str:
    """What one reflection, or search for idle rules, tried, and the outcome, in one line. ``attempts`` are those of the row;
    ``is_weighed``: gains are weighed by unequal prices."""
    if row.reflection_id.startswith("P"):
        return _describe_search(attempts, is_weighed)
    tried, accepted = attempts.edits, attempts.accepted
    if not tried:
        return f"nothing to try: {'; '.join(_why_nothing(attempts))}"
    if not accepted:
        ends = Counter(each.outcome for each in tried)
        compared = [each for each in tried if each.race or each.test]  # others are often plain nonsense
        best = max(compared, key=lambda each: (each.gain or 0.0, -len(each.operations)), default=None)
        texts = [part.text for part in best.operations if part.text] if best else []
        shown = f"; such as: {texts[0][:LONGEST]}" if texts else ""
        return f"{count_of(len(tried), 'edit')} tried, none accepted: {_join_ends(ends)}{shown}"
    gain = describe_gain(accepted[0], is_weighed)
    if accepted[0].outcome == PROVISIONAL:
        rules = count_of(len(accepted[0].operations), "rule")
        return f"{rules} learnt, not proven, and kept as provisional{f': {gain}' if gain else ''}"
    if accepted[0].outcome == UNTESTED:
        return "an edit applied untested"
    return f"{count_of(len(tried), 'edit')} tried, one accepted{f': {gain}' if gain else ''}"


def _describe_search(attempts: Attempts, is_weighed: bool) -> str:
    rules = count_of(len(attempts.tried), "rule")
    if attempts.accepted:
        gain = describe_gain(attempts.accepted[0], is_weighed)
        return f"{rules} looked at, one brings nothing and goes{f': {gain}' if gain else ''}"
    return f"{rules} looked at, none could be shown to be idle"


def _why_nothing(attempts: Attempts) -> Iterator[str]:
    refused = explain_refusals(attempts.refused)
    if refused:
        yield ", ".join(f"{count_of(count, 'proposal')} {why}" for why, count in refused)
    else:
        yield from (why for why, _ in explain_idle(attempts.idle))


def _join_ends(ends: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {ENDS[outcome]}" for outcome, count in ends.items())
