"""The texts of what was learnt at once: a rule for each line or card, as it is read back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stageb.guidance.learning.scorecards import Scorecard
from stageb.guidance.learning.terms import Line
from stageb.guidance.learning.whole import Whole
from stageb.guidance.rules.evidence_forms import Condition
from stageb.guidance.rules.expression import All, Expression, Points, join_words, negate
from stageb.guidance.rules.judge import begin_rule, write_rule
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.prompts import Words, clue_text
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Verdict

Read = Callable[[Condition], Expression | None]


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """The text of one rule, and the line that it says; None for a scorecard."""

    text: str
    line: Line | None
    verdict: Verdict  # of the tickets for which the line holds


def write_whole(whole: Whole, vocabulary: Vocabulary, words: Words) -> list[WrittenRule]:
    """The rules of what was learnt, without those that would not be read back as meant: a value may look like two."""

    if whole.lists:
        return [rule for each in whole.lists for rule in write_whole(each, vocabulary, words)]

    def read(condition: Condition) -> Expression | None:
        opening, end = begin_rule([*words.verdicts][-1], words)
        code = parse_rule(f"{opening}{clue_text((condition,), words)}{end}", vocabulary, words)
        return None if isinstance(code, OutOfReach) else code.condition

    codes = [(_card_code(whole, whole.card, read), None)] if whole.card else _line_codes(whole, read)
    texts = [(write_rule(code, words), code, line) for code, line in codes if code]
    return [
        WrittenRule(text, line, whole.verdict)
        for text, code, line in texts
        if _is_same(parse_rule(text, vocabulary, words), code)
    ]


def _is_same(read: RuleCode | OutOfReach, code: RuleCode) -> bool:
    return isinstance(read, RuleCode) and (read.verdict, read.expression) == (code.verdict, code.expression)


def _card_code(whole: Whole, card: Scorecard, read: Read) -> RuleCode | None:
    """A card as one rule."""
    parts = [(points, meant) for line, points in card.points.items() if (meant := _meant(line, read))]
    return RuleCode(whole.verdict, Points(card.least, join_words(parts))) if parts else None


def _line_codes(whole: Whole, read: Read) -> list[tuple[RuleCode | None, Line | None]]:
    """A rule for each line."""
    return [(RuleCode(whole.verdict, meant), line) for line in whole.lines if (meant := _meant(line, read))]


def _meant(line: Line, read: Read) -> Expression | None:
    """What a line says; None where one of its conditions cannot be read."""
    parts = []
    for term in line:
        part = read(term.condition)
        if part is None:
            return None
        parts.append(negate(part) if term.is_denied else part)
    return parts[0] if len(parts) == 1 else All(tuple(parts))
