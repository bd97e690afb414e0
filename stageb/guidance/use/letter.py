"""How often the model judged as the rules say, by their letter: rules read as code beside the verdicts that a model gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stageb.guidance.prompts import Words
from stageb.guidance.reflection.conditions import reading
from stageb.guidance.rules.judge import CodedRule, compile_rules, read_rules
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import HEADLINE_KEY, Guidance, Ticket

LOUD = 0.9  # share of a rule's tickets judged as it says, below which a person should know

Judged = Callable[[], Iterable[tuple[Mapping[str, Any], Ticket]]]
"""Rows of predictions, each with its ticket; read as often as needed."""


def compare_with_letter(judged: Judged, guidances: Mapping[str, Guidance], words: Words) -> dict[str, Any]:
    """By mission: ``decided`` tickets, those of which the rules' letter alone tells a verdict, how many of them are
    ``right`` by that, and how many the model judged so (``followed``); and the same for each rule, with its text, or why
    its letter is out of reach. The headline stands for tickets that no rule speaks of."""
    tickets: dict[str, list[Ticket]] = {}
    for row, ticket in judged():
        tickets.setdefault(row["mission"], []).append(ticket)
    coded = {
        mission: read_rules(guidances[mission], Vocabulary.of(of), words)
        for mission, of in tickets.items()
        if mission in guidances
    }
    judges = {mission: compile_rules(rules) for mission, rules in coded.items()}
    counts: dict[str, dict[str, dict[str, int]]] = {mission: {} for mission in coded}
    for row, ticket in judged():
        if row["mission"] not in coded:
            continue
        ruling = judges[row["mission"]](reading(ticket))
        if ruling.verdict:
            none = {"decided": 0, "right": 0, "followed": 0}
            count = counts[row["mission"]].setdefault(ruling.rule, none)
            count["decided"] += 1
            count["right"] += ruling.verdict == row["label"]
            count["followed"] += ruling.verdict == row["verdict"]
    return {mission: _describe(rules, counts[mission], len(tickets[mission])) for mission, rules in coded.items()}


def warn_of_misread(mission: str, of: Mapping[str, Any]) -> list[str]:
    """Lines for a person: what the rules' letter is worth, and which rules the model does not apply as written."""
    if not of["rules"] or not of["decided"]:
        return []
    right, followed = (of[name] / of["decided"] for name in ("right", "followed"))
    lines = [
        f"{mission}: by their letter the rules decide {of['decided']:,} of {of['tickets']:,} tickets, {right:.1%} of them "
        f"rightly; the model judged {followed:.1%} of these as the rules say"
    ]
    for rule in of["rules"]:
        if is_misread(rule):
            other = rule["decided"] - rule["followed"]
            lines.append(
                f"  {rule['rule']}: the model judged {other:,} of its {rule['decided']:,} tickets otherwise: {rule['text']}"
            )
    return lines


def is_misread(rule: Mapping[str, Any]) -> bool:
    """Whether the model judged many of the tickets that a rule of ``compare_with_letter`` decides otherwise than it says."""
    return bool(rule.get("decided") and rule["followed"] < LOUD * rule["decided"])


def _describe(rules: list[CodedRule], counts: Mapping[str, Mapping[str, int]], tickets: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for rule in rules:
        if isinstance(rule.code, OutOfReach):
            rows.append({"rule": rule.key, "text": rule.text, "out_of_reach": rule.code.why})
        else:
            none = {"decided": 0, "right": 0, "followed": 0}
            rows.append({"rule": rule.key, "text": rule.text, **counts.get(rule.key, none)})
    if HEADLINE_KEY in counts:
        rows.insert(0, {"rule": HEADLINE_KEY, "text": "no rule speaks of it", **counts[HEADLINE_KEY]})
    totals = {name: sum(count[name] for count in counts.values()) for name in ("decided", "right", "followed")}
    return {"tickets": tickets, **totals, "rules": rows if rules else []}
