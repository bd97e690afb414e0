"""A run's figures in sentences for people who know no statistics, and texts, as a page shows
them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stageb.guidance.learning.attempts import Attempt
from stageb.guidance.learning.proposals import MAX_RATIONALE_CHARS
from stageb.guidance.learning.reflection_file import ACCEPTED
from stageb.guidance.words.costs import EQUAL, Prices, count_alarms, count_wrong, warn_of_constant
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import PASS_FAIL, PROVISIONAL
from stageb.runs.figures import wilson


def format_percent(value: float | None, places: int = 1) -> str:
    """A share for people; a dash for none."""
    return "–" if value is None else f"{value:.{places}%}"


def format_span(seconds: float) -> str:
    """A stretch of time for people."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {left} s"


def escape_unseen(text: str) -> str:
    """``text`` with escapes for what hides or moves: controls, marks of direction, halves of
    letters."""
    return "".join(
        letter
        if letter.isprintable() or letter in "\n\u3000"
        else letter.encode("unicode_escape").decode()
        for letter in text.replace("\t", " ").replace("\xa0", " ")
    )


def shorten(text: str, letters: int) -> str:
    """``text`` as ``escape_unseen`` shows it, cut where it is too long."""
    if len(text) <= letters:
        return escape_unseen(text)
    return f"{escape_unseen(text[:letters])}… ({len(text):,} characters)"


COMMON = 0.05  # share of failures above which it is said what alarms are worth where they are rarer


@dataclass(frozen=True, slots=True)
class Outcome:
    """Figures of guidance on labelled tickets."""

    lead: str  # one sentence
    more: str  # further ones
    warning: str  # where looking at no ticket would do as well; empty elsewhere


def describe_rules(own_labels: Collection[object]) -> str:
    """The page's first sentence; ``own_labels``: the missions that have labels of their own."""
    told = "the labels of tickets apart" if own_labels else "passing tickets from failing ones"
    return f"Rules that tell {told}, learnt from tickets whose right verdict is known."


def describe_outcome(row: Mapping[str, Any], prices: Prices, rules: int) -> Outcome:
    """Figures of guidance of so many ``rules`` beside the headline, by a row of metrics.jsonl with
    one ticket or more."""
    if has_labels(row["classes"]):
        return _describe_labels(row, rules)
    fails, passes, always = row["classes"]["fail"], row["classes"]["pass"], row["always"]
    caught, alarms = round((fails["recall"] or 0) * fails["n"]), count_alarms(passes)
    n = fails["n"] + passes["n"]
    which = _name_tickets(n, row["split"])
    who, catch, let = (
        ("the rules", "catch", "raise")
        if rules
        else ("the model without rules", "catches", "raises")
    )
    what = (
        f"{caught:,} of {count_of(fails['n'], 'failure')}"
        if fails["n"]
        else "no failure, since there is none,"
    )
    unanswered = fails["unanswered"] + passes["unanswered"]
    without = f", {unanswered:,} have no verdict" if unanswered else ""
    constant = (
        "catch none"
        if always["verdict"] == "pass"
        else f"catch all and raise {count_of(passes['n'], 'false alarm')}"
    )
    lead = (
        f"On {which}, {who} {catch} {what} and {let} {count_of(alarms, 'false alarm')}; "
        f"always {always['verdict']}ing would {constant}."
    )
    more = (
        f"{format_percent(row['acc'])} of the tickets are judged right{without}; always "
        f"{always['verdict']}ing would be "
    )
    more += f"right for {format_percent(always['acc'])}."
    if prices["fail"] != prices["pass"]:
        more += (
            f" At a price of {prices['fail']:g} for a missed failure and {prices['pass']:g} for "
            f"a false alarm, a ticket costs {row['cost']:.3f} on average; with always "
            f"{always['verdict']}ing {always['cost']:.3f}."
        )
    more += (
        _describe_chance((caught, fails["n"]), (alarms, passes["n"]))
        if fails["n"] and n == row["n"]
        else ""
    )
    warning = warn_of_constant(row, prices)
    return Outcome(lead, more, f"{warning}." if warning else "")


def _name_tickets(n: int, split: str) -> str:
    return (
        f"{n:,} test tickets that learning never saw"
        if split == "test"
        else f"{n:,} {split} tickets"
    )


def _describe_labels(row: Mapping[str, Any], rules: int) -> Outcome:
    """``describe_outcome`` of other labels than pass and fail."""
    right, always = row["n"] - row["unanswered"] - count_wrong(row), row["always"]
    who = "the rules judge" if rules else "the headline alone judges"
    lead = (
        f"Of {_name_tickets(row['n'], row['split'])}, {who} {right:,} right "
        f"({format_percent(row['acc'])}); "
    )
    lead += f"always {always['verdict']} would be right for {format_percent(always['acc'])}."
    without = f" {row['unanswered']:,} have no verdict." if row["unanswered"] else ""
    more = (
        f"Macro-F1, in which a rare label counts as much as a common one, is "
        f"{row['macro_f1']:.3f}.{without}"
    )
    warning = warn_of_constant(row, EQUAL)
    return Outcome(lead, more, f"{warning}." if warning else "")


def _describe_chance(caught: tuple[int, int], alarms: tuple[int, int]) -> str:
    """What (failures caught, failures) and (false alarms, tickets that should pass) say of other
    tickets: how many failures are caught there, and what alarms are worth where failures are
    rarer."""
    low, high = wilson(*caught)
    said = (
        f" Of all failures like these, {low:.0%} to {high:.0%} are likely to be caught (a "
        f"range that holds 19 times in 20)."
    )
    share, catches = caught[1] / (caught[1] + alarms[1]), 10 * caught[0] / caught[1]
    if share > COMMON and alarms[1]:
        said += (
            f" {share:.0%} of these tickets are failures. If it were 1%, 1,000 tickets would "
            f"bring about {catches:.0f} failures caught and "
            f"{count_of(round(990 * alarms[0] / alarms[1]), 'false alarm')}, at worst "
            f"{990 * wilson(*alarms)[1]:.0f} (19 times in 20)."
        )
    return said


def describe_unmeasured(keys: Sequence[str]) -> str:
    """That the rules ``keys``, or where there are none what was let go, came after the last figures
    on val."""
    if not keys:
        return (
            "The rules have not been measured on val since one was removed: the figures "
            "below are of the rules before that."
        )
    named = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
    have, them = ("has", "it") if len(keys) == 1 else ("have", "them")
    return (
        f"{named} {have} not been measured on val yet: the figures below are of the rules "
        f"before {them}."
    )


def describe_decided(coded: Mapping[str, Any]) -> str:
    """How many tickets a rule decides as code, one at least, and how many of them rightly."""
    count, right = coded["decided"], coded["right"]
    if count == 1:
        return f"1 held-out ticket, {'rightly' if right else 'wrongly'}"
    rightly = "all" if right == count else f"{right:,} of them" if right else "none"
    return f"{count:,} held-out tickets, {rightly} rightly"


def describe_left_out(rule: Mapping[str, Any], coded: Mapping[str, Any], prices: Prices) -> str:
    """The figures of code's verdicts without a rule, by its row in what ``compare_with_code`` says
    of val and test."""
    if "won" not in rule or not coded["decided"]:
        return "was not measured: code cannot judge by the rules"
    won = rule["won"]
    lost = rule["lost"]
    verdict = rule["verdict"]
    decided = coded["decided"]
    tickets = coded["tickets"]
    many = f"all {tickets:,}" if decided == tickets else f"{decided:,} of {tickets:,}"
    n = f"code judged {many} held-out tickets with it and without it"
    if not won and not lost:
        return f"changes nothing ({n})"
    if verdict not in PASS_FAIL:
        return (
            f"{won:,} fewer judged rightly and {lost:,} more: {(lost - won) / decided * 100:+.1f} "
            f"points of accuracy ({n})"
        )
    errors = [("fail", won, "more missed failure"), ("pass", lost, "fewer false alarm")]
    if verdict == "pass":
        errors = [("pass", won, "more false alarm"), ("fail", lost, "fewer missed failure")]
    what = " and ".join(count_of(count, name) for _, count, name in errors if count)
    change = f"{(lost - won) / decided * 100:+.1f} points of accuracy"
    if prices["fail"] != prices["pass"]:
        (more, *_), (less, *_) = errors
        change = (
            f"{(won * prices[more] - lost * prices[less]) / decided:+.3f} in the cost of a ticket"
        )
    return f"{what}: {change} ({n})"


def name_ticket(key: str) -> str:
    """A ticket by its key, ``{group_id}::{label}``; what a user wrote in its place stays as it
    is."""
    group_id, mark, label = key.rpartition("::")
    return f"{group_id}, labelled {label}" if mark else key


def mark_cut(rationale: str) -> str:
    """A rationale, with a mark where it was cut when it was read."""
    return rationale + "…" * (len(rationale) >= MAX_RATIONALE_CHARS)


def describe_attempt(attempt: Attempt, is_weighed: bool) -> str:
    """How far an edit came, and by which figures. ``is_weighed``: gains are weighed by unequal
    prices."""
    said = ""
    if attempt.race:
        race = attempt.race
        said = (
            f"On {race.tickets:,} train tickets set apart to compare edits: "
            f"{_describe_gain(race.won, race.lost)}."
        )
    if attempt.test and attempt.test["tickets"]:
        test = attempt.test
        points = (
            f"{test['mean_gain'] * 100:+.1f} "
            f"points{', weighed by the prices' if is_weighed else ' of accuracy'}"
        )
        many = "groups of equal tickets " if test["groups"] != test["tickets"] else ""
        counts = (
            f"{_describe_gain(test['won'], test['lost'], many)}, {points}"
            if "won" in test
            else points
        )
        said += f" On {test['tickets']:,} other train tickets that it was not made from: {counts}."
        if errors := test.get("calibration_errors"):
            raw, calibrated = (format_percent(each) for each in errors)
            said += (
                f" How sure the model is of a verdict is off by {raw} on average there, "
                f"once calibrated by {calibrated}."
            )
    return f"{said} {_describe_end(attempt)}".strip()


def _describe_gain(won: float, lost: float, many: str = "") -> str:
    return f"{round(won):,} {many}judged better, {round(lost):,} worse"


def _describe_end(attempt: Attempt) -> str:
    if attempt.outcome == "turns no evidence" and attempt.turned:
        tickets = attempt.turned[1]
        none = f"None of the {tickets:,} tickets" if tickets > 1 else "The one ticket"
        return (
            f"{none} that it was made for {'is' if tickets > 1 else 'is not'} judged right with it."
        )
    return {
        ACCEPTED: "Chance alone would hardly do that: it is proven." if attempt.test else "",
        "over a limit": "It does more than gate.max_false_passes or gate.max_changed_verdicts "
        "allows.",
        "unproven": "The tickets ended before that was proven.",
        "unlikely": "The tickets ended before that was proven, and it does not seem better by "
        "more than chance explains.",
        PROVISIONAL: "That is no proof; they stay as provisional rules, since they seem better "
        "by more than chance explains.",
        "futile": "There was little hope left of proving it.",
        "unpromising": "That promises too little to be worth a test.",
        "dropped": "So it was not tested: another edit promised more, or this one too little.",
    }.get(attempt.outcome, "")


def split_fields(summary: str) -> list[tuple[str, str]]:
    """The names and values of a summary that holds nothing else, as a table's row does; none of
    another text."""
    pairs = [piece.partition(": ") for piece in summary.split("; ")]
    return (
        [(name, value) for name, _, value in pairs]
        if all(mark and name for name, mark, _ in pairs)
        else []
    )
