"""Word lists: lines of guidance that give many words one name, by which rules speak of them.

    G1. "swift" words: asap, immediately, swift, urgent
    G3. High if a summary mentions a "swift" word.

A line like the first decides nothing. It is kept, numbered, shown, reviewed and promoted as rules
are, so that whoever reads the guidance reads its words once. Whoever reads a rule as code takes the
words for the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stageb.guidance.rules.conditions.words import is_mentionable
from stageb.guidance.rules.wordings import CHINESE, ENGLISH, Grammar
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import HEADLINE_KEY, Rule
from stageb.untrusted.clean_text import fold_text

_NAME = '[^\\s"“”][^"“”]{0,59}'  # a name, without quotation marks
_FORMS = [
    (grammar, re.compile(f"{grammar.word_list[0]}({_NAME}){grammar.word_list[1]}(.+)"))
    for grammar in (ENGLISH, CHINESE)
]
_COMMA = re.compile("[,，、]")
FIRST = 12  # words of a list that a line of progress shows, at most


@dataclass(frozen=True, slots=True)
class WordList:
    """Words, stems and phrases, folded: a rule may ask for one of them, or give points for each."""

    name: str  # any text without quotation marks
    words: tuple[str, ...]


def read_word_list(text: str) -> WordList | None:
    """Read the list that a line names; None where the line is a rule, or names what tickets cannot
    mention."""
    for grammar, form in _FORMS:
        if found := form.fullmatch(text):
            listed = _COMMA.split(found[2].removesuffix(grammar.end))
            words = tuple(dict.fromkeys(fold_text(word.strip()) for word in listed))
            return WordList(found[1], words) if all(map(is_mentionable, words)) else None
    return None


def write_word_list(found: WordList, grammar: Grammar) -> str:
    """Write the line that names the list."""
    return found.name.join(grammar.word_list) + grammar.comma.join(found.words)


def count_rules(rules: Sequence[Rule]) -> tuple[int, str]:
    """Count the rules that decide; say so in words, with the word lists that they speak of."""
    count, lists = len(find_deciding(rules)), len(find_word_lists(rules))
    named = f" with {count_of(lists, 'word list')}" if lists else ""
    return count, f"{count_of(count, 'rule')}{named}"


def shorten_list(text: str) -> str:
    """Shorten a line that names a list of many words to the first ones and their number; return any
    other line as it is."""
    for grammar, form in _FORMS:
        found = form.fullmatch(text)
        words = grammar.comma.join(found[2].split(grammar.comma)[:FIRST]) if found else ""
        if found and len(words) < len(found[2]):
            return f"{text[: found.start(2)]}{words} ... ({len(_COMMA.split(found[2]))})"
    return text


def find_word_lists(rules: Iterable[Rule]) -> dict[str, tuple[str, ...]]:
    """Return the word lists: name -> words. A name that stands for two different lists is left
    out."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for each in filter(None, (read_word_list(rule.text) for rule in rules)):
        found.setdefault(each.name, set()).add(each.words)
    return {name: words.pop() for name, words in found.items() if len(words) == 1}


def find_deciding(rules: Iterable[Rule]) -> list[Rule]:
    """Return the rules that give a ticket its verdict: neither the headline, nor background, nor a
    word list."""
    return [
        rule
        for rule in rules
        if rule.key != HEADLINE_KEY and not rule.is_background and not read_word_list(rule.text)
    ]
