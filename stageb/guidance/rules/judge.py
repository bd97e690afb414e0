"""Verdicts by code: what a mission's rules say of a ticket where all that matters of them can be read, and is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stageb.guidance.prompts import Words
from stageb.guidance.rules.expression import holds
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.reading import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import HEADLINE_KEY, Guidance, Verdict


@dataclass(frozen=True, slots=True)
class CodedRule:
    """A rule and what it says."""

    key: str
    text: str
    code: RuleCode | OutOfReach


@dataclass(frozen=True, slots=True)
class Ruling:
    """What rules say of a ticket."""

    verdict: Verdict | None  # None: they cannot tell
    rule: str = ""  # the key of the first rule that decides; the headline's where none speaks of the ticket


def read_rules(guidance: Guidance, vocabulary: Vocabulary, words: Words) -> list[CodedRule]:
    """All rules of ``guidance``, those that are out of reach included; the headline only if it is not the neutral one."""
    return [
        CodedRule(rule.key, rule.text, parse_rule(rule.text, vocabulary, words))
        for rule in guidance.rules
        if rule.key != HEADLINE_KEY or rule.text != words.neutral_headline
    ]


def rule_on(rules: Sequence[CodedRule], reading: Reading) -> Ruling:
    """The verdict on a ticket: a pass where a pass rule holds, else a fail where a fail rule does, else a pass.

    None where that hangs on a rule that is out of reach, or on what the ticket does not tell.
    """
    held: dict[Verdict, str] = {}
    open_: set[Verdict] = set()  # verdicts of rules of which nobody knows whether they hold
    for rule in rules:
        if isinstance(rule.code, OutOfReach):
            open_ |= {"pass", "fail"}
            continue
        is_held = holds(rule.code.expression, reading)
        if is_held:
            held.setdefault(rule.code.verdict, rule.key)
        elif is_held is None:
            open_.add(rule.code.verdict)
    if "pass" in held:
        return Ruling("pass", held["pass"])
    if "fail" in held:
        return Ruling(None) if "pass" in open_ else Ruling("fail", held["fail"])
    return Ruling(None) if "fail" in open_ else Ruling("pass", HEADLINE_KEY)
