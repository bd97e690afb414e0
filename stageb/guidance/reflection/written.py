"""What was learnt at once, as the texts of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stageb.guidance.prompts import Words, clue_text
from stageb.guidance.reflection.conditions import Condition
from stageb.guidance.reflection.scorecards import Scorecard
from stageb.guidance.reflection.terms import Line, Term
from stageb.guidance.reflection.whole import Whole
from stageb.guidance.rules.expression import All, Expression, Points, negate
from stageb.guidance.rules.parse import OutOfReach, RuleCode, parse_rule
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.write import begin_rule, write_rule

Read = Callable[[Condition], Expression | None]


@dataclass(frozen=True, slots=True)
class WrittenRule:
    """The text of one rule, and the line that it says; None for a scorecard."""

    text: str
    line: Line | None


def write_whole(whole: Whole, vocabulary: Vocabulary, words: Words) -> list[WrittenRule]:
    """The rules of what was learnt, without those that would not be read back as meant: a value may look like two."""

    def read(condition: Condition) -> Expression | None:
        opening, end = begin_rule("fail", words)
        code = parse_rule(f"{opening}{clue_text((condition,), words)}{end}", vocabulary, words)
        return None if isinstance(code, OutOfReach) else code.condition

    codes = [(_card_code(whole.card, read), None)] if whole.card else _line_codes(whole, read)
    texts = [(write_rule(code, words), code, line) for code, line in codes if code]
    return [WrittenRule(text, line) for text, code, line in texts if _is_same(parse_rule(text, vocabulary, words), code)]


def _is_same(read: RuleCode | OutOfReach, code: RuleCode) -> bool:
    return isinstance(read, RuleCode) and (read.verdict, read.expression) == (code.verdict, code.expression)


def _card_code(card: Scorecard, read: Read) -> RuleCode | None:
    """A card as one rule: where a ticket without any point fails, by what keeps it from failing."""
    scored = [(points, read(term.condition)) for term, points in card.points.items()]
    parts = [(points, part) for points, part in scored if part]
    if not parts:
        return None
    if card.least > 0:
        return RuleCode("fail", Points(card.least, tuple(parts)))
    return RuleCode("fail", None, Points(1 - card.least, tuple((-points, part) for points, part in parts)))


def _line_codes(whole: Whole, read: Read) -> list[tuple[RuleCode | None, Line | None]]:
    """A rule for each line. Where what has no line fails, the first rule says so: fail unless it holds."""
    codes: list[tuple[RuleCode | None, Line | None]] = []
    is_open = whole.replaces and whole.verdict == "pass"
    for line in whole.lines:
        parts = [_meant(term, read) for term in line]
        known = tuple(part for part in parts if part)
        if len(known) == len(parts):
            meant = known[0] if len(known) == 1 else All(known)
            codes.append((RuleCode("fail", None, meant) if is_open else RuleCode(whole.verdict, meant), line))
            is_open = False
    return codes


def _meant(term: Term, read: Read) -> Expression | None:
    part = read(term.condition)
    return negate(part) if part and term.is_denied else part
