"""A ticket as rules see it: named values of each kind, numbers with their units among them, and
words.

Fields that a file names, the columns of a table and the keys of JSON, come with name and value
apart (``fields.py``) and are taken as they are. Of prose nothing is assumed but punctuation: a
piece between semicolons, line ends or commas (not those within a number) that reads ``name:
value``, ``name = value`` or ``name is value`` is a field too; everything else is free text, in
words or, where a script writes no spaces, in short runs of characters. The value of a field is also
read as free text where it is a text rather than a value.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

from stageb.guidance.words.texts import one_line
from stageb.guidance.words.types import Content
from stageb.untrusted.clean_text import CJK, FULL_STOPS, WIDTHS, fold_text

# of ten, as programs write it; without a sign it may be part of a code
POWER = r"(?:[eE][-+]\d{1,2})?"
# no code has a point before its e: 4.2e4
NUMBER = rf"[-+]?(?:\d+(?:\.\d+)?{POWER}|\d*\.\d+(?:[eE]\d{{1,2}})?)"
CURRENCIES = "$€£¥"
# what goes on with a number behind its digits: 10³, 5½, 5万; not ⁰, which is often °
GOES_ON = "¹²³⁴⁵⁶⁷⁸⁹⁺⁻¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅟万萬亿億"
# Nor 百, 千 and 兆, which begin units: 5千克, 0.5兆帕.
_NUMBER = re.compile(  # with its unit, without digits but in m2, cm3 ...
    rf"(?!.*\d[-.]*-\Z)(-?)([{CURRENCIES}] ?)?({NUMBER})(?! ?[{GOES_ON}])((?:\D|(?<=m)[23])*)"
)
_MINUS = {0x2212: 0x2D}
UNFOLDED = ("m", "M", "p", "P")  # begin units whose case tells milli from mega, and pico from peta
LONGEST_SYMBOL = 4  # characters of such a unit: Mbar


class Quantity(NamedTuple):
    """A number with its unit."""

    number: float
    unit: str  # as ``fold_unit`` leaves it; empty where there is none


@lru_cache(maxsize=1 << 16)
def parse_quantity(value: str) -> Quantity | None:
    """Parse the number that a value is, with its unit, as ``-2.5``, ``1e-05``, ``.5 mm`` and
    ``$7``; None where it is none, or may be another, as ``1,5``, ``2-3``, ``1e5``, ``5½``, ``10³``
    and ``2.5-``, where some programs put the sign. A letter for thousands, as in ``5k``, is a unit
    like any other: it cannot be told from kelvin."""
    found = _NUMBER.fullmatch(
        value if value.isascii() else value.translate(WIDTHS).translate(_MINUS)
    )
    if not found or (found[1] and found[3][0] in "+-"):
        return None
    unit = found[2] or found[4]
    return Quantity(float(found[1] + found[3]), fold_unit(unit) if unit else "")


def parse_number(value: str) -> float | None:
    """Return the number of ``parse_quantity`` alone."""
    found = parse_quantity(value)
    return found.number if found else None


def fold_unit(unit: str) -> str:
    """Fold a unit to compare it: in any case where that does not mix up milli and mega, and with or
    without an s for many."""
    plain = unit.strip(FULL_STOPS)
    folded = plain if plain[:1] in UNFOLDED and len(plain) <= LONGEST_SYMBOL else fold_text(plain)
    return folded.removesuffix("s") if len(folded) >= LONGEST_SYMBOL else folded


def are_comparable(one: Quantity, other: Quantity) -> bool:
    """Whether both are of one unit, or one of them names none."""
    return one.unit == other.unit or not one.unit or not other.unit


def clean_value(text: str) -> str:
    """Return a name or a value on one line, with nothing hidden in it."""
    return (
        " ".join(text.split())
        if text.isascii() and text.isprintable()
        else one_line(text, len(text))
    )


ENDINGS = ("s", "es", "ed", "ing", "er", "age")  # that a word may carry and still be mentioned
LEAST_STEM = 3  # characters of a word without its ending, and of a stem
ANY = "*"  # stands for any further letters behind a stem
MOST_CHARS = 48  # in a word that is counted, and in a value that a counted line names
# characters in a word up to which any ending still leaves it counted
SURELY_MENTIONED = MOST_CHARS - max(map(len, ENDINGS))
MOST_PHRASE = 3  # words in a phrase that is counted, or read in a rule
MOST_WORDS = 4  # in a value: a longer one is free text, in prose under a heading
CHARS_PER_WORD = 4  # in a script without spaces

_PIECE = re.compile(r"[;；，。|\n]|(?<!\d),|,(?!\d)|\.(?:\s|$)")
_PAIR = re.compile(
    r"([^:=：＝]*?[^\s:=：＝]) ?(?:[:=：＝]| is ) ?([^\s:=：＝].*)"
)  # single spaces: else hostile ones take long
JOINTS = "-'’"  # between parts of one word
_WORD = re.compile(f"[{CJK}]+|[^\\W{CJK}]+(?:[{JOINTS}][^\\W{CJK}]+)*")
begins_cjk = re.compile(f"[{CJK}]").match
_RUNS = (2, 3, 4)  # characters of a script without spaces that are counted as a word


OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "×": operator.mul,
    "/": operator.truediv,
}


class Computed(NamedTuple):
    """A number computed from those of two fields."""

    first: str
    operator: str  # of ``OPERATORS``
    second: str

    def __str__(self) -> str:
        return f"{self.first} {self.operator} {self.second}"


# no dataclass, which only an imported module can make: an exported one may be run in other ways
class Reading:
    """A ticket as rules see it. All that conditions look words up in is found once."""

    def __init__(
        self,
        pairs: Mapping[str, str],
        words: frozenset[str],
        texts: tuple[str, ...] = (),
        is_counted: bool = False,
    ) -> None:
        self.pairs = pairs  # field -> value; the last one where prose names it twice
        self.words = words  # of the free text, with those that an ending hides, folded
        self.texts = texts  # the pieces of the free text, folded
        self.is_counted = is_counted  # whether a number that it does not name is 0

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """All words that the ticket mentions: in free text, and in fields' names and values."""
        return self.words.union(
            *(find_mentioned(text) for pair in self.pairs.items() for text in pair)
        )

    @cached_property
    def in_order(self) -> list[str]:
        """The same words in alphabetical order, so that words that begin alike stand together."""
        return sorted(self.mentioned)

    def mentions_stem(self, stem: str) -> bool:
        """Whether the ticket mentions a word that begins with the stem."""
        place = bisect_left(self.in_order, stem)
        return place < len(self.in_order) and self.in_order[place].startswith(stem)

    def mentions_phrase(self, phrase: str) -> bool:
        """Whether the words of a phrase stand one after the other in a text, a name or a value,
        each as it is or with an ending."""
        wanted = phrase.split(" ")
        if not all(word in self.mentioned for word in wanted if 1 < len(word) <= SURELY_MENTIONED):
            return False
        return any(
            _follow(words, place, wanted) for words, place in _find_places(self).get(wanted[0], ())
        )


@lru_cache(maxsize=1 << 16)
def read_content(content: Content) -> Reading:
    """Read what a ticket says."""
    pairs: dict[str, str] = {}
    words: set[str] = set()
    texts: list[str] = []
    for summary in content.prose:
        for piece in _PIECE.split(summary):
            pair, free = _read_piece(piece)
            if pair:
                pairs[pair[0]] = pair[1]
            elif free:
                words.update(free)
                texts.append(fold_text(piece))
    for name, value in content.fields:
        pairs[name] = value
        if is_text(value):
            words.update(_words(value))
            texts += map(fold_text, _PIECE.split(value))
    return Reading(pairs, frozenset(words), tuple(texts), content.is_counted)


@lru_cache(maxsize=1 << 16)
def read_value(value: str) -> Reading:
    """Read a field's value alone, as a ticket that mentions the same words."""
    return Reading({}, find_mentioned(value), (fold_text(value),))


def read_summaries(summaries: tuple[str, ...]) -> Reading:
    """Read prose."""
    return read_content(Content((), summaries))


def is_text(value: str) -> bool:
    """Whether a value is free text: several pieces, or more words than values have."""
    chars = sum(map(len, re.findall(f"[{CJK}]+", value)))
    return len(value.split()) + chars // CHARS_PER_WORD > MOST_WORDS or bool(
        _PIECE.search(value.rstrip(FULL_STOPS))
    )


def find_quantity(ticket: Reading, of: str | Computed) -> Quantity | None:
    """Return the number of a field, or one computed from two; None where the ticket has none, the
    value is no number, or a sum would be of two units."""
    if isinstance(of, str):
        value = ticket.pairs.get(of)
        return (
            (Quantity(0.0, "") if ticket.is_counted else None)
            if value is None
            else parse_quantity(value)
        )
    first, second = find_quantity(ticket, of.first), find_quantity(ticket, of.second)
    if first is None or second is None or (of.operator == "/" and not second.number):
        return None
    if of.operator in ("+", "-") and not are_comparable(first, second):
        return None
    return Quantity(OPERATORS[of.operator](first.number, second.number), "")


@lru_cache(maxsize=1 << 16)
def find_mentioned(text: str) -> frozenset[str]:
    """Find the words that a field's name or value mentions: as free text does, and as they
    stand."""
    return find_words(text) | frozenset(fold_text(text).split())


@lru_cache(maxsize=1 << 16)
def find_words(text: str) -> frozenset[str]:
    """Find the words that free text mentions."""
    return frozenset(_words(text))


def has_phrase(text: str, phrase: str) -> bool:
    """Whether words stand in a text one after the other, each as it is or with an ending."""
    wanted, words = phrase.split(" "), split_words(text)
    return any(_follow(words, start, wanted) for start in range(len(words)))


@lru_cache(maxsize=16)  # few: they are large, and what a ticket is asked stands close together
def _find_places(ticket: Reading) -> Mapping[str, Sequence[tuple[Sequence[tuple[str, ...]], int]]]:
    """Map each word of a ticket's texts, as it is and without its endings, to the places where it
    stands, and the words around it."""
    places: dict[str, list[tuple[Sequence[tuple[str, ...]], int]]] = defaultdict(list)
    for text in (*ticket.texts, *(text for pair in ticket.pairs.items() for text in pair)):
        words = split_words(text)
        for place, forms in enumerate(words):
            for form in forms:
                places[form].append((words, place))
    return places


def _follow(words: Sequence[tuple[str, ...]], start: int, wanted: Sequence[str]) -> bool:
    """Whether the wanted words stand there from the start on."""
    there = words[start : start + len(wanted)]
    return len(there) == len(wanted) and all(
        word in forms for word, forms in zip(wanted, there, strict=True)
    )


@lru_cache(maxsize=1 << 16)
def find_phrases(text: str) -> frozenset[str]:
    """Find all phrases in a text, of words as they are and without their endings."""
    words = split_words(text)
    runs = (
        words[start : start + size]
        for size in range(2, MOST_PHRASE + 1)
        for start in range(len(words) - size + 1)
    )
    found = (" ".join(each) for run in runs for each in product(*run))
    return frozenset(phrase for phrase in found if len(phrase) <= MOST_CHARS)


@lru_cache(maxsize=1 << 16)
def split_words(text: str) -> tuple[tuple[str, ...], ...]:
    """Split a text into words, folded, each as it is and without its endings; none in a script
    without spaces."""
    return tuple(map(_find_forms, _WORD.findall(fold_text(text))))


def list_runs(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the short runs of characters that a text has in scripts without spaces, folded,
    wherever they stand, each with the character before it and the one behind it; an empty text
    where a longer run of such scripts begins or ends."""
    for word in _WORD.findall(fold_text(text)):
        if begins_cjk(word):
            yield from _find_runs(word)


@lru_cache(maxsize=1 << 16)  # of many tickets most pieces are the same
def _read_piece(piece: str) -> tuple[tuple[str, str] | None, frozenset[str]]:
    """Read a piece of prose: a pair, or else None and the words."""
    found = _PAIR.fullmatch(" ".join(piece.split()))
    if found and all(len(part.split()) <= MOST_WORDS for part in found.groups()):
        name, value = map(clean_value, found.groups())
        return (name, value) if name and value else None, frozenset()
    return None, frozenset(_words(piece))


def _words(text: str) -> Iterator[str]:
    """Yield the words of free text that count as mentioned."""
    for word in _WORD.findall(fold_text(text)):
        forms = _find_forms(word)
        if not forms:
            yield from (run for run, _, _ in _find_runs(word))
        elif 1 < len(word) <= MOST_CHARS:
            yield from forms


def _find_runs(word: str) -> Iterator[tuple[str, str, str]]:
    """Yield the runs of one word, as ``list_runs`` says."""
    for size in _RUNS:
        for start in range(len(word) - size + 1):
            end = start + size
            yield word[start:end], word[start - 1 : start], word[end : end + 1]


@lru_cache(maxsize=1 << 16)  # a language has fewer words than texts have
def _find_forms(word: str) -> tuple[str, ...]:
    """Return a folded word as it is and without each ending that it has; nothing in a script
    without spaces."""
    if begins_cjk(word):
        return ()
    ends = (end for end in ENDINGS if word.endswith(end) and len(word) - len(end) >= LEAST_STEM)
    return word, *(word.removesuffix(end) for end in ends)
