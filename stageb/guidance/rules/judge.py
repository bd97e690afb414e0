"""Verdicts by code: what a mission's rules say of a ticket where all that matters of them can be read, and is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stageb.guidance.prompts import Words
from stageb.guidance.rules.expression import Atom, atoms, compile_expression
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.predicates import CompiledRule, Ruling, make_judge, unreadable
from stageb.guidance.rules.reading import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import HEADLINE_KEY, Guidance, Rule


@dataclass(frozen=True, slots=True)
class CodedRule:
    """A rule and what it says."""

    key: str
    text: str
    code: RuleCode | OutOfReach
    is_provisional: bool = False


def read_rules(guidance: Guidance, vocabulary: Vocabulary, words: Words, is_whole: bool = True) -> list[CodedRule]:
    """All rules of ``guidance``, those that are out of reach included; the headline only if it is not the neutral one.

    Where ``vocabulary`` is not the ``is_whole`` one that rules were learnt by, a value or word that it lacks is taken as it
    stands, if it can be read in one way alone.
    """
    parse = parse_rule if is_whole else _parse_openly
    return [
        CodedRule(rule.key, rule.text, parse(rule.text, vocabulary, words), rule.is_provisional)
        for rule in speaking_rules(guidance.rules, words)
    ]


def speaking_rules(rules: Sequence[Rule], words: Words) -> list[Rule]:
    """``rules`` without the neutral headline, which says what happens where none of the others speaks."""
    return [rule for rule in rules if rule.key != HEADLINE_KEY or rule.text != words.neutral_headline]


def compile_rules(rules: Sequence[CodedRule]) -> Callable[[Reading], Ruling]:
    """What gives the verdict on a ticket, as ``predicates.make_judge`` says."""
    return make_judge(map(_compile_rule, rules), HEADLINE_KEY)


def explain_unknown(rules: Sequence[CodedRule], ruling: Ruling, reading: Reading) -> str:
    """Why rules give no verdict on a ticket: those that it hangs on, and what it does not tell."""
    return "; ".join(f"{rule.key}: {_why_unknown(rule.code, reading)}" for rule in rules if rule.key in ruling.unknown)


def _parse_openly(text: str, vocabulary: Vocabulary, words: Words) -> RuleCode | OutOfReach:
    """What a rule says where tickets may lack its values. In a list, one may be a part of a longer value: no one way."""
    read = first = parse_rule(text, vocabulary, words)
    added: set[tuple[str, str]] = set()
    while isinstance(read, OutOfReach) and read.value:
        added.add((read.field, read.value))
        vocabulary = vocabulary.with_value(read.field, read.value)
        read = parse_rule(text, vocabulary, words)
    if isinstance(read, OutOfReach):
        return first
    lists = [
        atom for atom in atoms(read.expression) if isinstance(atom, Atom) and atom.relation == "is" and len(atom.values) > 1
    ]
    return first if any((atom.name, value) in added for atom in lists for value in atom.values) else read


def _why_unknown(code: RuleCode | OutOfReach, reading: Reading) -> str:
    if isinstance(code, OutOfReach):
        return f"cannot be read as code: {code.why}"
    named = [name for atom in atoms(code.expression) for name in atom.fields]
    missing = [name for name in dict.fromkeys(named) if name not in reading.pairs]
    numbers = [name for name in dict.fromkeys(named) if name not in missing]
    return (
        f"the ticket does not tell {', '.join(missing)}"
        if missing
        else f"no number that it can compare in {', '.join(numbers)}"
    )


def _compile_rule(rule: CodedRule) -> CompiledRule:
    if isinstance(rule.code, OutOfReach):
        return CompiledRule(rule.key, rule.text, ("pass", "fail"), unreadable)
    return CompiledRule(rule.key, rule.text, (rule.code.verdict,), compile_expression(rule.code.expression))
