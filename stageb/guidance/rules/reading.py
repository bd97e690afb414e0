"""A ticket as its words show it: ``name: value`` pairs, and words.

Nothing is known of what tickets hold, so nothing is assumed but punctuation: a piece between semicolons, line ends or commas
(not those within a number) that reads ``name: value``, ``name = value`` or ``name is value`` is a pair; everything else is
free text, in words or, where a script writes no spaces, in short runs of characters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from stageb.guidance.texts import one_line

ENDINGS = ("s", "es", "ed", "ing", "er", "age")  # that a word may carry and still be mentioned
LEAST_STEM = 3  # characters of a word without its ending
MOST_CHARS = 48  # of a name, a value or a word that is counted
MOST_PHRASE = 3  # words of a phrase that is counted, or read in a rule
MOST_WORDS = 4  # of a value: a longer one is free text under a heading

_PIECE = re.compile(r"[;；，。|\n]|(?<!\d),|,(?!\d)|\.(?:\s|$)")
_PAIR = re.compile(
    r"([^:=：＝]*?[^\s:=：＝]) ?(?:[:=：＝]| is ) ?([^\s:=：＝].*)"
)  # single spaces: else hostile ones take long
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(f"[{_CJK}]+|[^\\W{_CJK}]+(?:[-'’][^\\W{_CJK}]+)*")
POWER = r"(?:[eE][-+]\d{1,2})?"  # of ten, as programs write it; without a sign it may be part of a code
NUMBER = rf"-?\d+(?:\.\d+)?{POWER}"
GOES_ON = "¹²³⁴⁵⁶⁷⁸⁹⁺⁻¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅟万萬亿億"  # the number itself, behind digits: 10³, 5½, 5万; no ⁰, often °
# Nor 百, 千 and 兆, which begin units: 5千克, 0.5兆帕.
_NUMBER = re.compile(  # with its unit, without digits but in m2, cm3 ...
    rf"(?!.*\d[-.]*-\Z)({NUMBER})(?! ?[{GOES_ON}])(?:\D|(?<=m)[23])*"
)
_DECIMAL = re.compile(r"-?[0-9]+\.[0-9]+")
_RUNS = (2, 3, 4)  # characters of a script without spaces that are counted as a word


OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "×": operator.mul,
    "/": operator.truediv,
}


class Computed(NamedTuple):
    """A number that those of two fields give."""

    first: str
    operator: str  # of ``OPERATORS``
    second: str

    def __str__(self) -> str:
        return f"{self.first} {self.operator} {self.second}"


class Reading(NamedTuple):  # no dataclass, which only an imported module can make: what is exported may be run in other ways
    """A ticket as its words show it."""

    pairs: Mapping[str, str]  # name -> value; the last one where a name comes twice
    words: frozenset[str]  # of the free text, with those that an ending hides, in small letters
    texts: tuple[str, ...] = ()  # the pieces of the free text, in small letters


def read_summaries(summaries: tuple[str, ...]) -> Reading:
    """A ticket's summaries, read."""
    pairs: dict[str, str] = {}
    words: set[str] = set()
    texts: list[str] = []
    for summary in summaries:
        for piece in _PIECE.split(summary):
            pair, free = _read_piece(piece)
            if pair:
                pairs[pair[0]] = pair[1]
            elif free:
                words.update(free)
                texts.append(piece.casefold())
    return Reading(pairs, frozenset(words), tuple(texts))


parse_summaries = lru_cache(maxsize=1 << 16)(read_summaries)
"""``read_summaries``, for tickets that are read again and again."""


def join_cells(cells: Mapping[str, str]) -> str:
    """The cells of a row, by the names of their columns, as one summary: ``name: text; ...``, empty ones left out. What a
    cell says of a column, as a remark may (``was fixed; Seal: new``), stands in quotes: it is not that column's value."""
    columns = frozenset(map(_fold_name, cells))
    texts = {name: " ".join(text.split()) for name, text in cells.items()}
    return "; ".join(f"{name}: {_quote_fields(text, columns)}" for name, text in texts.items() if text)


def find_fields(name: str) -> tuple[str, ...]:
    """The fields as which a column's name is read: none where it is too long, another where marks part it, as ``Torque``
    of ``Max. Torque``."""
    return tuple(read_summaries((f"{name}: 1",)).pairs)


def _quote_fields(text: str, columns: frozenset[str]) -> str:
    """``text`` with quotes around its pieces behind the first that are pairs of one of ``columns``."""
    first, *rest = re.split(f"({_PIECE.pattern})", text)
    for place, piece in enumerate(rest):
        pair, _ = _read_piece(piece)
        if pair and _fold_name(pair[0]) in columns:
            said = piece.strip()
            rest[place] = piece.replace(said, f'"{said}"')
    return "".join([first, *rest])


def _fold_name(name: str) -> str:
    """A column's name as rules may spell it, too."""
    return one_line(name, MOST_CHARS).casefold().removeprefix("the ")


def parse_number(value: str) -> float | None:
    """The number that a value is, as ``-2.5`` and ``1e-05``, maybe with a unit; None where it is none, or may be another, as
    ``1,5``, ``2-3``, ``1e5``, ``5½``, ``10³`` and ``2.5-``, where some programs put the sign. A letter for thousands, as in
    ``5k``, is a unit like any other: it cannot be told from kelvin."""
    found = _NUMBER.fullmatch(value)
    return float(found[1]) if found else None


def fold_value(value: str) -> str:
    """A value as it is compared: in any case, and a decimal number without zeros at its end, which programs add on their own
    (``1`` and ``1.0``)."""
    return value.rstrip("0").rstrip(".") if _DECIMAL.fullmatch(value) else value.casefold()


def find_number(ticket: Reading, of: str | Computed) -> float | None:
    """The number of a field, or of two; None where the ticket does not tell, or it is none."""
    if isinstance(of, str):
        value = ticket.pairs.get(of)
        return None if value is None else parse_number(value)
    first, second = find_number(ticket, of.first), find_number(ticket, of.second)
    if first is None or second is None or (of.operator == "/" and not second):
        return None
    return OPERATORS[of.operator](first, second)


@lru_cache(maxsize=1 << 16)
def find_mentioned(text: str) -> frozenset[str]:
    """The words that a pair's name or value mentions: as free text does, and as they stand."""
    return frozenset(_words(text)) | frozenset(text.casefold().split())


def has_phrase(text: str, phrase: str) -> bool:
    """Whether words stand in a text one after the other, each as it is or with an ending."""
    wanted, words = phrase.split(" "), split_words(text)
    starts = range(len(words) - len(wanted) + 1)
    return any(all(word in forms for word, forms in zip(wanted, words[start:], strict=False)) for start in starts)


@lru_cache(maxsize=1 << 16)
def find_phrases(text: str) -> frozenset[str]:
    """All phrases of a text, of words as they are and without their endings."""
    words = split_words(text)
    runs = (words[start : start + size] for size in range(2, MOST_PHRASE + 1) for start in range(len(words) - size + 1))
    found = (" ".join(each) for run in runs for each in product(*run))
    return frozenset(phrase for phrase in found if len(phrase) <= MOST_CHARS)


@lru_cache(maxsize=1 << 16)
def split_words(text: str) -> tuple[tuple[str, ...], ...]:
    """The words of a text in small letters, each as it is and without its endings; none of a script without spaces."""
    words = _WORD.findall(text.casefold())
    return tuple(() if re.match(f"[{_CJK}]", word) else (word, *_bare(word)) for word in words)


@lru_cache(maxsize=1 << 16)  # of many tickets most pieces are the same
def _read_piece(piece: str) -> tuple[tuple[str, str] | None, frozenset[str]]:
    """A pair, or None, and the words of what is none."""
    found = _PAIR.fullmatch(" ".join(piece.split()))
    if found and all(len(part.split()) <= MOST_WORDS for part in found.groups()):
        name, value = (one_line(part, MOST_CHARS) for part in found.groups())
        return (name, value) if name and value else None, frozenset()
    return None, frozenset(_words(piece))


def _words(text: str) -> Iterator[str]:
    """The words of free text that count as mentioned."""
    for word in _WORD.findall(text.casefold()):
        if re.match(f"[{_CJK}]", word):
            for size in _RUNS:
                yield from (word[start : start + size] for start in range(len(word) - size + 1))
        elif 1 < len(word) <= MOST_CHARS:
            yield word
            yield from _bare(word)


def _bare(word: str) -> Iterator[str]:
    """A word without each ending that it has."""
    for end in ENDINGS:
        if word.endswith(end) and len(word) - len(end) >= LEAST_STEM:
            yield word.removesuffix(end)
