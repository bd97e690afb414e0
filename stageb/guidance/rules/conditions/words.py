"""Words, stems and phrases that tickets mention, alone or by a word list."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, takewhile
from math import log
from typing import TYPE_CHECKING, Any, ClassVar

from stageb.guidance.rules import predicates
from stageb.guidance.rules.conditions.base import (
    Call,
    ColumnForm,
    Condition,
    Expression,
    Found,
    Marks,
    OutOfReach,
    Read,
    T,
    find_mark,
)
from stageb.guidance.rules.conditions.logic import negate
from stageb.guidance.rules.value_types import (
    ANY,
    LEAST_STEM,
    MOST_PHRASE,
    Reading,
    begins_cjk,
    find_phrases,
    find_words,
    has_phrase,
    list_runs,
    read_summaries,
    read_value,
    split_words,
)
from stageb.untrusted.clean_text import fold_text

if TYPE_CHECKING:
    from stageb.guidance.rules.candidates import Table
    from stageb.guidance.rules.parse import RuleReader
    from stageb.guidance.rules.wordings import Grammar

LEAST_PHRASE = 3  # tickets that must have a phrase
PREFIX_LENGTHS = range(LEAST_STEM, 6)  # letters in which the words of one family begin alike
SHORTEST_SURE_STEM = 4  # a stem is kept if it has this many letters, ...
LEAST_SHARE_OF_WORD = 0.6  # ... and this share of its longest word's
JOINING = frozenset({"and", "or", "nor", "unless"})  # words at which a rule would be cut
# words that no rule names: they hold a sentence together, and say nothing about a case
STOP_WORDS = frozenset(
    (
        "a about all also am an and any are aren as at be been being between both but by can "
        "could did do does doing don each for from get got had has have having he her here hers "
        "him his how i if in into is isn it its itself just ll me my myself of on or our ours re s "
        "she should so some such t than that the their theirs them then there these "
        "they this those to too until us ve was wasn we were what when where which while who "
        "whom why will with would you your yours "
    ).split()
)
STOP_CHARACTERS = frozenset(
    "的了是也就这那吗呢吧我你他她它们"
)  # Chinese characters that say nothing about a case either
# neighbours, equally frequent, that a word of a script without spaces has on either side, at least
FREE = 3


@dataclass(frozen=True, slots=True)
class Mentions(Condition):
    """A field mentions one of these words, stems and phrases, which are folded, or any text of the
    ticket does."""

    words: tuple[str, ...]
    field: str = ""  # empty: any text counts
    # the name of the list that has these words; empty where they are named themselves
    word_list: str = ""

    marks: ClassVar[Marks] = {  # the words -> whether it is denied
        "en": {" mentions ": False, " does not mention ": True},
        "zh": {"提到": False, "未提到": True, "没有提到": True},
    }

    @property
    def call(self) -> Call:
        return predicates.mentions, (self.field, *self.words)

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,) if self.field else ()

    @property
    def needed(self) -> tuple[str, ...]:
        return ()

    @property
    def named(self) -> tuple[tuple[str, str], ...]:
        return () if self.word_list else tuple(("", word.removesuffix(ANY)) for word in self.words)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return "mentions", self.field, self.words[0], ""

    @property
    def word(self) -> str:
        return self.words[0] if len(self.words) == 1 else ""

    @property
    def may_be_denied(self) -> bool:
        return " " not in self.words[0]

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        listed = (
            self.word_list.join(grammar.of_list) if self.word_list else grammar.list(self.words)
        )
        return f"{self.name_subject(grammar)}{find_mark(self.marks, grammar, is_denied)}{listed}"

    def name_subject(self, grammar: Grammar) -> str:
        """Name the field, or any summary."""
        return grammar.call(self.field) if self.field else next(iter(grammar.summaries))

    @classmethod
    def read(cls, name: str, meaning: Any, value: str, reader: RuleReader) -> Read:
        found = read_words(name, value, reader)
        # no summary mentions it
        is_denied = meaning != reader.grammar.summaries.get(name.casefold(), False)
        return negate(found) if is_denied and not isinstance(found, OutOfReach) else found

    def to_plain(self) -> Mapping[str, Any]:
        return {**({"field": self.field} if self.field else {}), "mentions": list(self.words)}

    def put(self, columns: ColumnForm[T]) -> T:
        if not self.field:
            return columns.beyond("words of free text")
        return columns.mentions(self.field, self.words)

    def join(self, other: Expression) -> Expression | None:
        if not isinstance(other, Mentions) or (other.field, other.word_list) != (
            self.field,
            self.word_list,
        ):
            return None
        return replace(self, words=tuple(dict.fromkeys((*self.words, *other.words))))

    def simplify(self) -> Expression:
        """Sort the words in alphabetical order, without those that others imply."""
        stems = {word.removesuffix(ANY) for word in self.words if word.endswith(ANY)}
        single = {word for word in self.words if " " not in word}

        def is_implied(word: str) -> bool:
            if word.endswith(ANY):
                return word[:-1].startswith(tuple(stems - {word[:-1]}))
            return any(
                each.startswith(tuple(stems)) or (each in single and each != word)
                for each in word.split()
            )

        return replace(
            self, words=tuple(sorted(word for word in self.words if not is_implied(word)))
        )

    @property
    def listable(self) -> tuple[str, ...]:
        return self.words if not self.word_list and all(map(is_mentionable, self.words)) else ()

    def enlist(self, name: str) -> Expression:
        return replace(self, word_list=name)

    def unlist(self) -> Expression:
        return replace(self, word_list="")

    def split(self) -> Sequence[Expression]:
        return [replace(self, words=(word,)) for word in self.words]


def read_words(name: str, listed: str, reader: RuleReader) -> Mentions | OutOfReach:
    """Read that a field mentions one of the words ``listed``, or a word of a word list; or that any
    summary does, or none."""
    known, named = reader.vocabulary, reader.of_list.fullmatch(listed)
    field = known.field(name) or ("" if name.casefold() in reader.grammar.summaries else None)
    if field is None:
        return OutOfReach(
            f"no ticket has {name!r}", "field", name, nearest=partial(known.nearest_name, name)
        )
    if named:
        of_list = known.lists.get(named[1])
        missing = OutOfReach(f"no word list is called {named[1]!r}", "word")
        return Mentions(of_list, field, named[1]) if of_list else missing
    words = [fold_text(word) for word in reader.separator.split(listed)]
    for word in words:
        if word not in known.words and not known.holds_stem(word) and not known.holds_phrase(word):
            lacks = f"no ticket mentions {word!r}"
            why = (
                f"{word!r} is no single word, and no phrase of two or three"
                if known.holds(word)
                else lacks
            )
            value, nearest = word if is_mentionable(word) else "", partial(known.nearest_word, word)
            return OutOfReach(why, "word", value=value, nearest=nearest if why == lacks else str)
    return Mentions(reader.drop_repeats(words), field)


def is_mentionable(text: str) -> bool:
    """Whether tickets may mention it: a word, a stem, or a phrase."""
    stem = text.removesuffix(ANY)
    if " " in text:
        return len(text.split(" ")) <= MOST_PHRASE and has_phrase(text, text)
    return stem in read_summaries((stem,)).words and (stem == text or len(stem) >= LEAST_STEM)


# What tickets suggest -----------------------------------------------------------------------------


def find_mentions(table: Table, found: Found) -> Found:
    """Find the words of prose and of columns of texts, wherever a ticket mentions them, or, if
    there is only one text, in that alone. In a wide search: whole words, and the stems that tell their
    words."""
    readings, column = table.readings, table.only_text
    words = {word for each in readings for word in each.words}
    words |= {
        word
        for each in readings
        for name in table.texts & each.pairs.keys()
        for word in find_words(each.pairs[name])
    }
    words -= STOP_WORDS
    forms = words  # with and without their endings
    if table.space.wide:
        words = words & table.whole_words
    elif fragments := set(filter(begins_cjk, words)):
        words -= fragments - _find_free_runs(_count_texts(readings))
    if column:
        readings = [read_value(each.pairs.get(column, "")) for each in readings]
    stems = _find_stems(words, forms) if table.space.wide else set()
    ends = range(LEAST_STEM, max(map(len, stems), default=0) + 1)
    masks: dict[str, int] = {}
    for position, each in enumerate(readings if words else ()):
        begun = stems.intersection(word[:end] for word in each.mentioned for end in ends)
        for word in chain(words & each.mentioned, (stem + ANY for stem in begun)):
            masks[word] = masks.get(word, 0) | 1 << position
    return {
        Mentions((word,), column): masks[word]
        for word in sorted(masks, key=lambda word: (word.endswith(ANY), *_rank_length(word)))
    }


def _find_stems(words: Iterable[str], forms: Set[str]) -> set[str]:
    """Find the common beginnings of words, such as ``check*``. Keep one only if a reader could
    complete it: it is a word in ``forms``, or it has most of the letters of its longest word
    (``rep*`` of repair and replace is dropped)."""
    families: dict[str, list[str]] = {}
    for word in words:
        for size in PREFIX_LENGTHS if word[0].isalpha() and not begins_cjk(word) else ():
            if size <= len(word):
                families.setdefault(word[:size], []).append(word)
    longest_lengths = {
        _find_beginning(family): max(map(len, family))
        for family in families.values()
        if len(family) > 1
    }
    return {
        stem
        for stem, longest_length in longest_lengths.items()
        if stem in forms
        or len(stem) >= max(SHORTEST_SURE_STEM, LEAST_SHARE_OF_WORD * longest_length)
    }


def _find_beginning(words: Sequence[str]) -> str:
    """Return the longest common prefix; comparing the first and last word in order is enough."""
    pairs = zip(min(words), max(words), strict=False)
    return "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def find_phrased(table: Table, found: Found) -> Found:
    """Find the phrases of whole words in free text that ``LEAST_PHRASE`` tickets or more have, if
    each of their words stands elsewhere, too, and the first and the last do not both only hold a
    sentence together."""
    if not table.space.wide:
        return {}
    known = table.whole_words | STOP_WORDS
    masks: dict[str, int] = {}
    for position, each in enumerate(table.readings):
        pieces = [
            *each.texts,
            *(fold_text(each.pairs[name]) for name in table.texts & each.pairs.keys()),
        ]
        for phrase in sorted(
            {phrase for text in pieces for phrase in find_phrases(text)}, key=_rank_length
        ):
            masks[phrase] = masks.get(phrase, 0) | 1 << position
    phrases: Found = {}
    for phrase, mask in masks.items():
        words = phrase.split(" ")
        alone = (found.get(Mentions((word,), table.only_text)) for word in words)
        if (
            mask.bit_count() >= LEAST_PHRASE
            and mask not in alone
            and not JOINING.intersection(words)
            and not STOP_WORDS.issuperset((words[0], words[-1]))
            and known.issuperset(words)
        ):
            phrases[Mentions((phrase,), table.only_text)] = mask
    return phrases


def find_whole_words(readings: Sequence[Reading]) -> frozenset[str]:
    """Find the words that free text and fields mention, as they stand there; in scripts without
    spaces, as ``_find_free_runs`` says."""
    texts = _count_texts(readings)
    words = {forms[0] for text in texts for forms in split_words(text) if forms}
    return frozenset(words | _find_free_runs(texts)) - STOP_WORDS


def _count_texts(readings: Iterable[Reading]) -> Counter[str]:
    """Count how often each text stands in tickets: pieces of free text, and fields' names and
    values."""
    return Counter(
        text
        for each in readings
        for text in (*each.texts, *(text for pair in each.pairs.items() for text in pair))
    )


def _find_free_runs(texts: Mapping[str, int]) -> set[str]:
    """Find the words in scripts without spaces: runs of characters that stand free of those around
    them (Feng et al., "Accessor variety criteria for Chinese word extraction", 2004). Their
    neighbours on either side are as varied as ``FREE`` equally frequent ones, by entropy (Jin and
    Tanaka-Ishii, "Unsupervised segmentation of Chinese text by use of branching entropy", 2006),
    where each end of a text is a neighbour of its own. A run that begins or ends with one of
    ``STOP_CHARACTERS`` is none."""
    before, after = (defaultdict[str, Counter[str]](Counter) for _ in range(2))
    for text, count in texts.items():
        for run, left, right in list_runs(text):
            before[run][left] += count
            after[run][right] += count
    free = (run for run, found in before.items() if _are_varied(found) and _are_varied(after[run]))
    return {run for run in free if STOP_CHARACTERS.isdisjoint((run[0], run[-1]))}


def _are_varied(neighbours: Counter[str]) -> bool:
    """Whether the entropy of neighbours is that of ``FREE`` equally frequent ones, or more; an
    empty neighbour is the end of a text."""
    total = neighbours.total()
    surprise = sum(count * log(count) for neighbour, count in neighbours.items() if neighbour)
    # without the 1e-9, rounding would find none with just three neighbours
    return total >= FREE and surprise <= total * log(total / FREE) + 1e-9


def _rank_length(text: str) -> tuple[int, str]:
    """Sorts longer texts first: of texts that the same tickets have, the first is the whole word,
    ``after``, and not what is left of it without an ending, ``aft``."""
    return -len(text), text
