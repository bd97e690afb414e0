"""Which tickets an edit may touch: all but those of which every rule that it changes is false, before and after, as code."""

from __future__ import annotations

from collections.abc import Callable

from stageb.guidance.prompts import Words
from stageb.guidance.rules.expression import compile_expression
from stageb.guidance.rules.parse import OutOfReach, parse_rule
from stageb.guidance.rules.reading import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import Guidance


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
