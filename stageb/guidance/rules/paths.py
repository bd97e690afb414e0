"""The names that rules give to counts of nested objects: their paths as phrases, in a language that
has them.

The field ``统计_光纤_保护措施_无保护`` of JSON is 保护措施为无保护的光纤. A rule is written with the phrase where no
other field could be meant. It is read with the path or the phrase, with or without the name that
wraps all paths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from stageb.guidance.rules.conditions import Expression, Limit, OneOf, negate
from stageb.guidance.rules.fields import OF_ONE_IMAGE
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.wordings import Grammar, compile_form
from stageb.untrusted.clean_text import fold_text


def call_counts(vocabulary: Vocabulary, grammar: Grammar) -> dict[str, str]:
    """Map each field that counts to its phrase; nothing in a language without phrases, or for
    tickets that count nothing."""
    if not (grammar.paths and vocabulary.is_counted):
        return {}
    paths = {name: name.split("_") for name in _list_counts(vocabulary)}
    is_wrapped = len({path[0] for path in paths.values()}) == 1 and all(
        len(path) > 1 for path in paths.values()
    )
    meant = find_called(vocabulary, grammar)
    phrases = {name: _write_phrase(path[is_wrapped:], grammar) for name, path in paths.items()}
    return {
        name: phrase for name, phrase in phrases.items() if meant.get(fold_text(phrase)) == name
    }


@lru_cache(maxsize=8)  # many rules are read by one vocabulary
def find_called(vocabulary: Vocabulary, grammar: Grammar) -> dict[str, str]:
    """Map each phrase, folded, to the field that it means; those that may mean several are left
    out."""
    found: dict[str, set[str]] = {fold_text(name): {name} for name in vocabulary.values}
    for name in _list_counts(vocabulary) if grammar.paths else ():
        path = name.split("_")
        for each in (path, path[1:] or path):
            found.setdefault(fold_text(_write_phrase(each, grammar)), set()).add(name)
    return {phrase: next(iter(names)) for phrase, names in found.items() if len(names) == 1}


class PhraseReader:
    """Reads conditions on counts by their phrases."""

    def __init__(self, vocabulary: Vocabulary, grammar: Grammar) -> None:
        self._vocabulary = vocabulary
        self._called = find_called(vocabulary, grammar) if grammar.paths else {}
        self._amounts = {
            fold_text(grammar.amount.format(name=name)): field
            for name, field in self._called.items()
        }
        forms = grammar.counted.items()
        self._forms = [(compile_form(form, name=".+", value=r"\d+"), said) for form, said in forms]

    def find_field(self, text: str) -> str | None:
        """Find the field with this name, or whose phrase counts it; None where there is none."""
        return self._vocabulary.field(text) or self._amounts.get(fold_text(text))

    def read(self, text: str) -> Iterator[Expression]:
        """Read a condition on a count, in each way in which it may be read."""
        for form, (relation, is_denied, only) in self._forms:
            found = form.fullmatch(text)
            name = self._called.get(fold_text(found["name"]), "") if found else ""
            if found and name in self._vocabulary.units:
                value = only or found["value"]
                said = OneOf(name, (value,)) if relation == "is" else Limit(name, relation, value)
                yield negate(said) if is_denied else said


def _list_counts(vocabulary: Vocabulary) -> list[str]:
    """List the fields all of whose values, as far as known, are whole numbers, except those of one
    image."""
    whole = [
        name for name in vocabulary.units if all(map(str.isdigit, vocabulary.values[name] - {""}))
    ]
    return [name for name in whole if not OF_ONE_IMAGE.match(name)]


def _write_phrase(path: Sequence[str], grammar: Grammar) -> str:
    """Write a path as the language says it: deeper names lie within the first."""
    if len(path) > len(grammar.paths):
        return grammar.within_path.format(path[0], _write_phrase(path[1:], grammar))
    return grammar.paths[len(path) - 1].format(*path)
