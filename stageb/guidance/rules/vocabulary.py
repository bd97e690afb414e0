"""The names, values and words that a mission's tickets have: what a rule may speak of."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.value_types import (
    ANY,
    LEAST_STEM,
    MOST_PHRASE,
    Reading,
    find_mentioned,
    has_phrase,
    is_text,
    parse_quantity,
)
from stageb.guidance.words.types import Content, Ticket
from stageb.untrusted.clean_text import fold_text, fold_value

MOST_KINDS = 32  # values of a field up to which it is expected to have no others


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The names, values and words of one mission's tickets."""

    names: Mapping[str, str]  # field, folded -> as tickets write it
    values: Mapping[str, frozenset[str]]  # field -> its values, as ``fold_value`` compares them
    # field that has numbers -> the units of these, as ``Quantity`` has them
    units: Mapping[str, frozenset[str]]
    # all words that count as mentioned, folded; also those to which a ticket adds an ending
    words: frozenset[str]
    text: str  # all summaries, folded
    # the texts in which phrases are looked for: free text, fields' names and values, all folded
    pieces: frozenset[str]
    is_tabular: bool  # whether half of the tickets or more have fields
    # field whose values have an order -> these, lowest first, as tickets write them
    scales: Mapping[str, tuple[str, ...]]
    # the word lists of a guidance, by name
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_counted: bool = False  # whether a number that some ticket does not name is 0

    @classmethod
    def of(cls, tickets: Iterable[Ticket]) -> Vocabulary:
        """Collect the vocabulary of ``tickets``."""
        names: dict[str, str] = {}
        values: dict[str, set[str]] = {}
        # field -> its values, as they are compared and as they were first written
        written: dict[str, dict[str, str]] = {}
        units: dict[str, set[str]] = {}
        words: set[str] = set()
        texts: list[str] = []
        pieces: set[str] = set()
        counted = having = 0
        is_counted = False
        for ticket in tickets:
            read = reading(ticket)
            words |= read.words
            is_counted |= read.is_counted
            counted, having = counted + 1, having + bool(read.pairs)
            pieces.update(read.texts)
            texts += [fold_text(summary) for _, summary in ticket.per_image]
            for name, value in read.pairs.items():
                names.setdefault(fold_text(name), name)
                values.setdefault(name, set()).add(fold_value(value))
                written.setdefault(name, {}).setdefault(fold_value(value), value)
                if quantity := parse_quantity(value):
                    units.setdefault(name, set()).add(quantity.unit)
                    if read.is_counted:  # in other tickets, by saying nothing
                        values[name].add("0")
        pieces |= {fold_text(text) for name, own in values.items() for text in (name, *own)}
        words |= {
            part
            for name, own in values.items()
            for text in (name, *own)
            for part in find_mentioned(text)
        }
        frozen = {name: frozenset(own) for name, own in values.items()}
        ranked = {
            name: found for name, own in written.items() if (found := order_values(own.values()))
        }
        text = "\n".join(dict.fromkeys(texts))
        return cls(
            names,
            frozen,
            {name: frozenset(own) for name, own in units.items()},
            frozenset(words),
            text,
            frozenset(pieces),
            2 * having >= max(1, counted),
            ranked,
            is_counted=is_counted,
        )

    @classmethod
    def of_named(cls, named: Collection[tuple[str, str]]) -> Vocabulary:
        """Collect the vocabulary that ``Guidance.named`` lists."""
        words = frozenset(fold_text(value) for name, value in named if not name)
        pairs = [Content(((name, value),), ()) for name, value in named if name]
        known = cls.of(Ticket("", "", "", (), content=pair) for pair in pairs)
        return replace(known, words=known.words | words, pieces=known.pieces | words)

    def with_value(self, field: str, value: str) -> Vocabulary:
        """Add one more value of a field, or one more word if no field is named."""
        if not field:
            return replace(self, words=self.words | {fold_text(value)})
        return replace(
            self, values={**self.values, field: self.values[field] | {fold_value(value)}}
        )

    def holds(self, text: str) -> bool:
        """Whether some ticket's words hold ``text``, which is folded."""
        return text in self.words or text in self.text

    def holds_stem(self, text: str) -> bool:
        """Whether ``text`` is a stem, ``leak*``, with which some ticket's word begins."""
        stem = text.removesuffix(ANY)
        return (
            stem != text
            and len(stem) >= LEAST_STEM
            and any(word.startswith(stem) for word in self.words)
        )

    def holds_phrase(self, phrase: str) -> bool:
        """Whether some ticket has these two or three words, which are folded, one after the
        other."""
        words = phrase.split(" ")
        if not 2 <= len(words) <= MOST_PHRASE:
            return False
        return any(
            has_phrase(piece, phrase)
            for piece in self.pieces
            if all(word in piece for word in words)
        )

    def field(self, name: str) -> str | None:
        """Return a field as tickets write it, given its name with or without an article; None where
        no ticket has it."""
        folded = fold_text(name)
        return (
            name
            if name in self.values
            else self.names.get(folded) or self.names.get(folded.removeprefix("the "))
        )

    def list_kinds(self, field: str) -> frozenset[str]:
        """Return all values of a field that has few of them, as they are compared; nothing for
        numbers, for free text, and where not all values are known."""
        values = self.values.get(field, frozenset())
        is_open = (
            field in self.units
            or len(values) > MOST_KINDS
            or "" in values
            or any(map(is_text, values))
        )
        return frozenset() if is_open else values

    def list_beyond(
        self, field: str, value: str, is_above: bool, is_denied: bool
    ) -> tuple[str, ...] | None:
        """Return the values of an ordered field that are above ``value``, or below, or not; None
        where it has no such value."""
        scale = self.scales[field]
        place = next(
            (rank for rank, each in enumerate(scale) if fold_value(each) == fold_value(value)), None
        )
        if place is None:
            return None
        higher = scale[place + is_above :]  # above, or not below, which has the value itself
        lower = scale[: place + is_denied]
        return higher if is_above != is_denied else lower

    def nearest_name(self, name: str) -> str:
        """Return the most similar field; empty where none is similar."""
        return _nearest(fold_text(name), self.names, self.names)

    def nearest_value(self, name: str, value: str) -> str:
        """Return the most similar value of a field; empty where none is similar."""
        return _nearest(fold_value(value), self.values[name], {})

    def nearest_word(self, word: str) -> str:
        """Return the most similar word; empty where none is similar."""
        return _nearest(fold_text(word), self.words, {})


def find_letters(readings: Iterable[Reading]) -> str:
    """Find the letters beyond ASCII in tickets' values that are the same in any case, alone and
    beside others."""
    found = {
        letter
        for each in readings
        for value in each.pairs.values()
        if not value.isascii()
        for letter in value
    }
    return "".join(
        sorted(letter for letter in found if not letter.isascii() and _is_stable(letter))
    )


def _is_stable(letter: str) -> bool:
    is_mark = unicodedata.category(letter)[0] in "MZC"
    return (
        letter.isprintable() and not is_mark and fold_text(letter) == letter and letter not in "。−"
    )


def _nearest(text: str, known: Iterable[str], written: Mapping[str, str]) -> str:
    found = difflib.get_close_matches(text, sorted(known), n=1, cutoff=0.6)
    return written.get(found[0], found[0]) if found else ""


# Values that have an order, by well-known scales.
#
# A field is ordered where all of its values, three or more, stand on one scale. "Is at least med"
# then says which of them a ticket may have, and no more: a rule that ranks is the same as one that
# lists.

FEWEST_VALUES = 3  # values of an ordered field, at least
WELL_KNOWN = (
    "very low, vlow, v-low < low < medium, med, mid, moderate, normal < high < very high, "
    "vhigh, v-high < critical",
    "very small, vsmall, tiny < small < medium, med, mid < large, big < very large, vlarge, "
    "very big, vbig, huge",
    "very bad, vbad < bad, poor < fair, acceptable, average, ok < good < very good, vgood < "
    "excellent",
    "none, no < slight, minor, low, small < moderate, medium, some < severe, major, high, large "
    "< critical, extreme",
    "never < rarely, seldom < sometimes, occasionally < often, frequently < always",
    "very slow < slow < medium, moderate, normal < fast < very fast",
    "xs < s < m < l < xl < xxl",
    "first < second < third < fourth < fifth",
    "low < medium, mid < upper, high",
)


def _fold_name(name: str) -> str:
    """Return a value as scales name it: in any case, with ``_`` or a space in it."""
    return " ".join(name.casefold().replace("_", " ").split())


_SCALES = [
    [{_fold_name(name) for name in rank.split(",")} for rank in scale.split("<")]
    for scale in WELL_KNOWN
]


def order_values(values: Iterable[str]) -> tuple[str, ...]:
    """Order the values of a field, lowest first, by the first scale on which all of them stand,
    each on a rank of its own; nothing where there is no such scale."""
    names = {_fold_name(value): value for value in sorted({*values})}
    if len(names) < FEWEST_VALUES:
        return ()
    for scale in _SCALES:
        ranks = {name: rank for rank, called in enumerate(scale) for name in called}
        if len({ranks.get(name, -1) for name in names} - {-1}) == len(names):
            return tuple(names[name] for name in sorted(names, key=ranks.__getitem__))
    return ()
