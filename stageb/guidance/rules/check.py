"""Rules that name what no ticket has: refused when they are proposed. Where a run starts from them, a field that is not
there is refused too; of a value or a word, which the next ticket may have, the run warns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stageb.guidance.prompts import Words
from stageb.guidance.rules.parse import OutOfReach, parse_rule
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.write import write_rule
from stageb.guidance.types import HEADLINE_KEY, Guidance, Operation, Proposal, Refusal


def check_proposal(proposal: Proposal, vocabulary: Vocabulary, words: Words) -> Proposal:
    """``proposal`` without the operations whose text names a field, value or word that no ticket has; said once is what a
    text says twice, and listed what it ranks, which other tickets might rank otherwise."""
    kept: list[Operation] = []
    refused: list[Refusal] = []
    for operation in proposal.operations:
        read = parse_rule(operation.text, vocabulary, words) if operation.text else None
        if isinstance(read, OutOfReach):
            if why := _why_unknown(read, vocabulary):
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
        if isinstance(read, OutOfReach) and (why := _why_unknown(read, vocabulary)):
            yield UnknownName(guidance.mission, rule.key, why, read.unknown == "field")


def _why_unknown(fault: OutOfReach, vocabulary: Vocabulary) -> str:
    """What the rule names that is not there; empty where that is free wording: of tickets without fields, all but words."""
    return fault.why if fault.unknown == "word" or (fault.unknown and vocabulary.is_tabular) else ""
