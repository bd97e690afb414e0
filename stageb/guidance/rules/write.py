"""Rules as text again: what ``parse.py`` reads back as the same code."""

from __future__ import annotations

from stageb.guidance.rules.expression import All, Arithmetic, AtLeast, Atom, Expression, Not, Points, Relation, Some
from stageb.guidance.rules.grammar import Grammar
from stageb.guidance.rules.parse import RuleCode, choose_grammar
from stageb.guidance.rules.prompts import Words
from stageb.guidance.words.types import Verdict


def begin_rule(verdict: Verdict, words: Words) -> tuple[str, str]:
    """What stands before a rule's condition, and behind it, in the language and the verdict words of ``words``."""
    grammar = choose_grammar(words)
    return f"{_spell(verdict, words)}{grammar.if_[0]}", grammar.end


def write_rule(code: RuleCode, words: Words) -> str:
    """``code`` in the language and the verdict words of ``words``."""
    grammar, verdict = choose_grammar(words), _spell(code.verdict, words)
    if code.condition is None:
        assert code.exception is not None  # it says something
        return f"{verdict}{grammar.unless[0]}{_write(code.exception, grammar)}{grammar.end}"
    exception = f"{grammar.unless[1]}{_write(code.exception, grammar)}" if code.exception else ""
    return f"{verdict}{grammar.if_[0]}{_write(code.condition, grammar)}{exception}{grammar.end}"


def _spell(verdict: Verdict, words: Words) -> str:
    spelled = words.verdicts[verdict]
    return spelled[:1].upper() + spelled[1:]


def _write(expression: Expression, grammar: Grammar, is_denied: bool = False) -> str:
    if isinstance(expression, Not):
        return _write(expression.part, grammar, not is_denied)
    if within := _find_limits(expression):
        return f"{within[0]}{grammar.within[0]}{within[1]}{grammar.within[1]}{within[2]}"
    if isinstance(expression, All | Some):
        mark = grammar.and_ if isinstance(expression, All) else grammar.or_
        return mark.join(_write(part, grammar) for part in expression.parts)
    if isinstance(expression, AtLeast):
        form = next(form for form, denied in grammar.counts.items() if denied == is_denied)
        parts = grammar.part.join(_write(part, grammar) for part in expression.parts)
        return form.format(count=expression.count - is_denied, parts=parts)
    if isinstance(expression, Points):  # never denied: a rule says "unless"
        scored = (f"{points}{grammar.scored}{_write(part, grammar)}" for points, part in expression.parts)
        return grammar.points.format(least=expression.least) + grammar.part.join(scored)
    if isinstance(expression, Arithmetic):
        return f"{expression.left}{_mark(expression.relation, is_denied, grammar)}{expression.right}"
    if expression.relation == "missing":
        return expression.name + next(ending for ending, denied in grammar.missing.items() if denied == is_denied)
    *first, last = expression.values
    listed = grammar.comma.join(first) + grammar.or_ + last if first else last
    if expression.relation == "mentions":
        return next(opening for opening, denied in grammar.mentions.items() if denied == is_denied) + listed
    return f"{expression.name}{_mark(expression.relation, is_denied, grammar)}{listed}"


def _mark(relation: Relation, is_denied: bool, grammar: Grammar) -> str:
    """What stands between the two sides of a comparison."""
    said = {"over": "above", "under": "below"}.get(relation, relation)
    return next(mark for mark, found in grammar.relations.items() if found == (said, is_denied))


def _find_limits(expression: Expression) -> tuple[str, str, str] | None:
    """The field that is above one limit and below another, and these; None where something else is said."""
    parts = expression.parts if isinstance(expression, All) else ()
    sides = [part for part in parts if isinstance(part, Atom)]
    if [side.relation for side in sides] != ["above", "below"] or len(parts) > 2 or sides[0].name != sides[1].name:
        return None
    return sides[0].name, sides[0].values[0], sides[1].values[0]
