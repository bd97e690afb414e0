"""Word lists: lines of guidance that give many words one name, by which rules speak of them.

    G1. "swift" words: asap, immediately, swift, urgent
    G3. High if a summary mentions a "swift" word.

A line like the first decides nothing. It is kept, numbered, shown, reviewed and promoted as rules are, so that whoever reads
the guidance reads its words once. Whoever reads a rule as code takes the words for the list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from stageb.guidance.rules.value_types import fold_text
from stageb.guidance.rules.vocabulary import is_mentionable
from stageb.guidance.rules.wordings import CHINESE, ENGLISH, Grammar
from stageb.guidance.words.types import HEADLINE_KEY, Rule

MOST_NAMED = 40  # characters of a name


@dataclass(frozen=True, slots=True)
class WordList:
    """Words, stems and phrases, folded, of which a rule may ask for one, or give points for each."""

    name: str  # any text without quotation marks
    words: tuple[str, ...]


def read_word_list(text: str) -> WordList | None:
    """The list that a line names; None where it is a rule, or names what tickets cannot mention."""
    for grammar in (ENGLISH, CHINESE):
        opening, between = grammar.word_list
        name, found, listed = text.removeprefix(opening).partition(between)
        if (
            text.startswith(opening)
            and found
            and name.strip()
            and len(name) <= MOST_NAMED
            and not {*name} & {*opening, *between[:1]}
        ):
            words = tuple(
                dict.fromkeys(
                    fold_text(word.strip()) for word in re.split(_commas(grammar), listed.removesuffix(grammar.end))
                )
            )
            return WordList(name, words) if all(map(is_mentionable, words)) else None
    return None


def write_word_list(found: WordList, grammar: Grammar) -> str:
    """The line that names it."""
    return found.name.join(grammar.word_list) + grammar.comma.join(found.words)


def find_word_lists(rules: Iterable[Rule]) -> dict[str, tuple[str, ...]]:
    """Name -> words. A name that two lists have, which differ, stands for none."""
    found: dict[str, set[tuple[str, ...]]] = {}
    for each in filter(None, (read_word_list(rule.text) for rule in rules)):
        found.setdefault(each.name, set()).add(each.words)
    return {name: words.pop() for name, words in found.items() if len(words) == 1}


def find_deciding(rules: Iterable[Rule]) -> list[Rule]:
    """Those that give a ticket its verdict: neither the headline, nor background, nor a word list."""
    return [rule for rule in rules if rule.key != HEADLINE_KEY and not rule.is_background and not read_word_list(rule.text)]


def _commas(grammar: Grammar) -> str:
    return f"{re.escape(grammar.comma.strip())}|{re.escape(CHINESE.comma)}"
