"""Verdicts by code, which tickets an edit may touch, and rules that name what no ticket has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from stageb.guidance.rules.expression import Atom, atoms, compile_expression
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.predicates import CompiledRule, Ruling, make_judge, unreadable
from stageb.guidance.rules.prompts import Words
from stageb.guidance.rules.reading import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.write import write_rule
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Operation, Proposal, Refusal, Rule


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


def find_touched(before: Guidance, after: Guidance, vocabulary: Vocabulary, words: Words) -> Callable[[Reading], bool]:
    """Whether a ticket may be judged otherwise ``after`` than ``before``, as a function of its reading.

    Rules are told apart by key and text, since reasons name keys. One that code cannot read may touch every ticket, and so
    may one of which a ticket does not tell whether it holds.
    """
    changed = {(rule.key, rule.text) for rule in before.rules} ^ {(rule.key, rule.text) for rule in after.rules}
    codes = [parse_rule(text, vocabulary, words) for text in sorted({text for _, text in changed})]
    predicates = [compile_expression(code.expression) for code in codes if not isinstance(code, OutOfReach)]
    if len(predicates) < len(codes):
        return lambda _: True
    return lambda ticket: any(holds(ticket) is not False for holds in predicates)


# Rules that name what no ticket has: refused when they are proposed. Where a run starts from them, a field that is not there
# is refused too; of a value or a word, which the next ticket may have, the run warns.


def check_proposal(proposal: Proposal, vocabulary: Vocabulary, words: Words) -> Proposal:
    """``proposal`` without the operations whose text names a field, value or word that no ticket has; said once is what a
    text says twice, and listed what it ranks, which other tickets might rank otherwise."""
    kept: list[Operation] = []
    refused: list[Refusal] = []
    for operation in proposal.operations:
        read = parse_rule(operation.text, vocabulary, words) if operation.text else None
        if isinstance(read, OutOfReach):
            if why := _why_unheard_of(read, vocabulary):
                refused.append(Refusal(operation.text, why))
                continue
        elif read and read.is_loose:
            operation = replace(operation, text=write_rule(read, words))
        kept.append(operation)
    return replace(proposal, operations=tuple(kept), refusals=(*proposal.refusals, *refused))


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A rule that names what no ticket has."""

    mission: str
    rule: str  # its key
    why: str  # with what is nearest
    is_field: bool  # whether it is a whole field, which further tickets will not have either; else a value or a word

    def __str__(self) -> str:
        return f"rule {self.rule} of mission {self.mission!r}: {self.why}"


def find_unknown(guidance: Guidance, vocabulary: Vocabulary, words: Words) -> Iterator[UnknownName]:
    """The rules of ``guidance`` that name a field, value or word that no ticket has."""
    for rule in guidance.rules:
        read = parse_rule(rule.text, vocabulary, words) if rule.key != HEADLINE_KEY else None
        if isinstance(read, OutOfReach) and (why := _why_unheard_of(read, vocabulary)):
            yield UnknownName(guidance.mission, rule.key, why, read.unknown == "field")


def _why_unheard_of(fault: OutOfReach, vocabulary: Vocabulary) -> str:
    """What the rule names that is not there; empty where that is free wording: of tickets without fields, all but words."""
    return fault.why if fault.unknown == "word" or (fault.unknown and vocabulary.is_tabular) else ""
