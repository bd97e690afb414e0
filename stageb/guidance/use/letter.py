"""How often the model judged as the rules say, by their letter: rules read as code beside the verdicts that a model gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stageb.guidance.reflection.conditions import reading
from stageb.guidance.rules.judge import CodedRule, compile_rules
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.types import HEADLINE_KEY, Ticket

LOUD = 0.9  # share of a rule's tickets judged as it says, below which a person should know

Judged = Callable[[], Iterable[tuple[Mapping[str, Any], Ticket]]]
"""Rows of predictions, each with its ticket; read as often as needed."""


def compare_with_letter(judged: Judged, coded: Mapping[str, Sequence[CodedRule]], by_model: bool = True) -> dict[str, Any]:
    """By mission: ``decided`` tickets, those of which the rules' letter alone tells a verdict, how many of them are
    ``right`` by that, and if the rows are ``by_model``, how many the model judged so (``followed``), and how many rightly
    (``model_right``); and the same for each rule, with its text, or why its letter is out of reach. The headline stands for
    tickets that no rule speaks of.

    Leaving a rule out changes the verdicts on tickets that it decides, and no others: of these, ``won`` are right with it
    alone, and ``lost`` without it alone; those of which the other rules tell no verdict are not right without it."""
    names = ("decided", "right", "won", "lost", *(("followed", "model_right") if by_model else ()))
    judges = {mission: compile_rules(rules) for mission, rules in coded.items()}
    without = {
        (mission, left_out.key): compile_rules([rule for rule in rules if rule is not left_out])
        for mission, rules in coded.items()
        for left_out in rules
    }
    tickets: Counter[str] = Counter()
    counts: dict[str, dict[str, dict[str, int]]] = {mission: {} for mission in coded}
    for row, ticket in judged():
        if row["mission"] not in coded:
            continue
        tickets[row["mission"]] += 1
        mission, label, read = row["mission"], row["label"], reading(ticket)
        ruling = judges[mission](read)
        if ruling.verdict:
            count = counts[mission].setdefault(ruling.rule, dict.fromkeys(names, 0))
            is_right, others = ruling.verdict == label, without.get((mission, ruling.rule), judges[mission])
            is_right_without = others(read).verdict == label
            gains = (is_right and not is_right_without, is_right_without and not is_right)
            facts = (True, is_right, *gains, ruling.verdict == row["verdict"], row["verdict"] == label)
            for name, holds in zip(names, facts, strict=False):
                count[name] += holds
    return {
        mission: _describe(rules, counts[mission], names) | {"tickets": tickets[mission]}
        for mission, rules in coded.items()
        if tickets[mission]
    }


def warn_of_misread(mission: str, of: Mapping[str, Any]) -> list[str]:
    """Lines for a person: what the rules' letter is worth, and which rules the model does not apply as written."""
    if not of["rules"] or not of["decided"] or "followed" not in of:
        return []
    right, followed = (of[name] / of["decided"] for name in ("right", "followed"))
    lines = [
        f"{mission}: by their letter the rules decide {of['decided']:,} of {of['tickets']:,} tickets, {right:.1%} of them "
        f"rightly; the model judged {followed:.1%} of these as the rules say"
    ]
    return [*lines, *name_misread(mission, of)]


def name_misread(mission: str, of: Mapping[str, Any]) -> list[str]:
    """A line for each rule that the model does not apply as written, and what to do about them; none where there is none."""
    lines = [
        f"{mission}: the model does not apply {rule['rule']} as written: it judged {rule['decided'] - rule['followed']:,} "
        f"of its {rule['decided']:,} tickets otherwise: {rule['text']}"
        for rule in of.get("rules", ())
        if is_misread(rule)
    ]
    if not lines:
        return []
    is_whole = not any("out_of_reach" in rule for rule in of["rules"])
    by = "--by rules" if is_whole else "--by both, which asks the model for what rules cannot decide"
    return [*lines, f"{mission}: to judge by code, as the rules are written: {by}"]


def is_misread(rule: Mapping[str, Any]) -> bool:
    """Whether the model judged many of the tickets that a rule of ``compare_with_letter`` decides otherwise than it says."""
    return bool(rule.get("decided") and rule.get("followed", rule["decided"]) < LOUD * rule["decided"])


def _describe(rules: Sequence[CodedRule], counts: Mapping[str, Mapping[str, int]], names: Sequence[str]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for rule in rules:
        row: dict[str, Any]
        if isinstance(rule.code, OutOfReach):
            row = {"out_of_reach": rule.code.why}
        else:
            row = {"verdict": rule.code.verdict, **counts.get(rule.key, dict.fromkeys(names, 0))}
        rows.append({"rule": rule.key, "text": rule.text, "provisional": rule.is_provisional, **row})
    if HEADLINE_KEY in counts:
        rows.insert(0, {"rule": HEADLINE_KEY, "text": "no rule speaks of it", **counts[HEADLINE_KEY]})
    totals = {name: sum(count[name] for count in counts.values()) for name in names}
    return {"tickets": 0, **totals, "rules": rows if rules else []}
