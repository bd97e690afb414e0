"""What can be read off tickets by their words alone (``value_types.py``): conditions, and their forms. Of each ``Kind``,
``wordings.py`` has the words, ``evidence.py`` how rare it is, and ``parse.py`` reads it back."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, product
from operator import or_
from typing import Literal

from stageb.guidance.rules.fields import OF_ONE_IMAGE
from stageb.guidance.rules.limits import (
    FINE_LIMITS,
    TICKETS_EACH,
    find_beyond,
    spread_limits,
    to_mask,
    write_computed,
    write_limit,
)
from stageb.guidance.rules.value_types import (
    MOST_CHARS,
    OPERATORS,
    Computed,
    Quantity,
    Reading,
    begins_cjk,
    find_mentioned,
    find_phrases,
    find_stems,
    find_words,
    fold_text,
    fold_unit,
    fold_value,
    is_text,
    parse_quantity,
    read_content,
    read_value,
    split_words,
)
from stageb.guidance.words.types import Content, Ticket

Kind = Literal[
    "is", "among", "above", "below", "within", "missing", "mentions",
    "equals", "differs", "over", "under", "count",
]  # fmt: skip

MOST_COMPARED = 20  # names that are compared with each other: those that most tickets have
MOST_VALUES = 7  # of a name whose values are joined two by two
SHARED = 5  # tickets that have a whole number, on average, where it is a name
WITHIN = 12  # of these on each side between which a number may lie, where they are fine
TICKETS_PER_LIMIT = 250  # of these, at least: from few tickets, pairs of limits are learnt that chance brings
MOST_COMPUTED = 6  # names of numbers with which is computed: those that most tickets have
LEAST_PHRASE = 3  # tickets
JOINING = frozenset({"and", "or", "nor", "unless"})  # words that a rule would be cut at


@dataclass(frozen=True, slots=True)
class Condition:
    """One statement that is true of a ticket or not."""

    kind: Kind
    name: str  # of the pair; of the column whose words count for ``mentions``, empty where any text's do
    value: str  # the value, the limit of ``above`` and ``below``, the word, the other pair's name, or how many count
    other: str = ""  # the second value of ``among``, the upper limit of ``within``
    is_computed: bool = False  # whether ``name``, and what it may be compared with, is a number that two names' give
    parts: tuple[Condition, ...] = ()  # of which so many hold

    @property
    def is_compared(self) -> bool:
        """Whether it compares two fields, or computes with them."""
        return self.is_computed or self.kind in ("equals", "differs", "over", "under")


@dataclass(frozen=True, slots=True)
class Forms:
    """What conditions may say beside plain ones: more to choose from costs each of them some weight."""

    arithmetic: bool = False  # limits of what two names' numbers give
    wide: bool = False  # two or three words stand one after the other; a word begins so; the one column of texts mentions
    #   it; a field is not there that most tickets have; and more limits of one name's numbers, denser at both ends, with
    #   the fewest digits, or two at once
    comparable: frozenset[str] = frozenset()  # names of which any two may be compared, or computed with, whatever they are


PLAIN = Forms()
STOP_WORDS = frozenset(  # which no rule names: they hold a sentence together, and say nothing of a case
    (
        "a about all also am an and any are aren as at be been being between both but by can could did do does doing don "
        "each for from get got had has have having he her here hers him his how i if in into is isn it its itself just ll "
        "me my myself of on or our ours re s she should so some such t than that the their theirs them then there these "
        "they this those to too until us ve was wasn we were what when where which while who whom why will with would you "
        "your yours "
    ).split()
)
_UNIT = re.compile(r"[\[(]([^\[\]()\d]+)[\])]$| ([^\W\d_]{1,3}|%|°C|°F)$")  # behind a column's name: Torque [Nm], Air K


def reading(ticket: Ticket) -> Reading:
    """``read`` of a ticket."""
    return read_content(ticket.content or Content((), tuple(summary for _, summary in ticket.per_image)))


def find_conditions(readings: Sequence[Reading], forms: Forms = PLAIN, wrong: int = 0) -> dict[Condition, int]:
    """Every condition that tickets suggest, with the bit mask of those that meet it; but no counts of them. The first
    ``wrong`` tickets are the ones to set apart from the others: limits lie where they do, too."""
    masks: dict[Condition, int] = {}
    columns, quantities = _find_columns(readings)
    common = sorted(columns, key=lambda name: (-len(columns[name]), name))
    are_counted = any(each.is_counted for each in readings)
    # Each value of a text column, of which some are as short as a name's, is read as free text.
    texts = {name for name in columns if name not in quantities and any(map(is_text, set(columns[name].values())))}
    only_text = _find_only_text(readings, texts) if forms.wide else ""
    masks |= _words(readings, texts, only_text)
    if forms.wide:
        masks |= _stems(masks)
    for name, column in columns.items():
        several = len(set(column.values())) > MOST_VALUES
        if not several or not (name in texts or (forms.wide and _is_measured(quantities.get(name, {})))):
            masks |= _values(name, column)
    numeric = _find_numeric(quantities, are_counted)
    for name, numbers in numeric.items():
        masks |= (limits := _limits(name, columns[name], numbers, wrong, forms.wide))
        if forms.wide and len(set(numbers.values())) > MOST_VALUES:
            masks |= _within(limits, len(numbers))
    for name, column in columns.items():
        if name not in numeric and name not in texts and not any(map(_is_long, column.values())):
            masks |= _either(name, {value: masks[Condition("is", name, value)] for value in sorted(set(column.values()))})
    alike = {
        (one, other)
        for one, other in combinations(common[:MOST_COMPARED], 2)
        if {one, other} <= forms.comparable or _are_alike((one, columns[one]), (other, columns[other]), quantities)
    }
    for one, other in (pair for pair in combinations(common[:MOST_COMPARED], 2) if pair in alike):
        are_numbers = one in numeric and other in numeric and len(_units(quantities[one]) | _units(quantities[other])) <= 1
        both = (numeric[one], numeric[other]) if are_numbers else None
        masks |= _compared(one, columns[one], other, columns[other], both, are_numbers and are_counted)
    if forms.wide and not are_counted:  # of what is counted, nothing is missing
        for name in (name for name in common if len(readings) < 2 * len(columns[name]) < 2 * len(readings)):
            masks[Condition("missing", name, "")] = ((1 << len(readings)) - 1) ^ to_mask(columns[name])
    if forms.wide:
        masks |= _phrases(readings, texts, masks, only_text)
    if forms.arithmetic:
        most_common = [name for name in common if name in numeric and any(name in pair for pair in alike)][:MOST_COMPUTED]
        masks |= _computed({name: numeric[name] for name in most_common}, alike, wrong, forms.wide)
    return masks


def find_numbers(readings: Sequence[Reading]) -> dict[str, dict[int, tuple[float, str]]]:
    """Field -> the tickets that have a number of it -> that, and how they write it; of fields that ``find_conditions`` gives
    limits."""
    columns, quantities = _find_columns(readings)
    numeric = _find_numeric(quantities, any(each.is_counted for each in readings))
    return {
        name: {position: (number, columns[name][position]) for position, number in numbers.items()}
        for name, numbers in numeric.items()
    }


def find_whole_words(readings: Sequence[Reading]) -> frozenset[str]:
    """The words that free text and fields mention, as they stand there, and runs of a script without spaces."""
    texts = {text for each in readings for text in (*each.texts, *(text for pair in each.pairs.items() for text in pair))}
    words = {forms[0] for text in texts for forms in split_words(text) if forms}
    return frozenset(words | {word for each in readings for word in each.words if begins_cjk(word)}) - STOP_WORDS


# Inside ------------------------------------------------------------------------------------------------------------------


def _find_columns(readings: Sequence[Reading]) -> tuple[dict[str, dict[int, str]], dict[str, dict[int, Quantity]]]:
    """The values of each field by ticket, and those of fields that have numbers; what was not counted is 0."""
    columns: dict[str, dict[int, str]] = {}
    for position, each in enumerate(readings):
        for name, value in each.pairs.items():
            if not (each.is_counted and OF_ONE_IMAGE.match(name)):  # images come in any order: their sums tell more
                columns.setdefault(name, {})[position] = value
    quantities = {name: found for name, column in columns.items() if (found := _quantities(column))}
    counted = [position for position, each in enumerate(readings) if each.is_counted]
    for name, found in quantities.items():
        for position in counted:
            found.setdefault(position, Quantity(0.0, ""))
            columns[name].setdefault(position, "0")
    return columns, quantities


def _find_numeric(quantities: Mapping[str, Mapping[int, Quantity]], are_counts: bool) -> dict[str, dict[int, float]]:
    return {name: numbers for name, found in quantities.items() if (numbers := _numbers(found, are_counts))}


def _is_long(value: str) -> bool:
    """Whether a value is too long a text to be named by a counted line."""
    return len(value) > MOST_CHARS or is_text(value)


def _values(name: str, column: Mapping[int, str]) -> dict[Condition, int]:
    """Each value of a column; but texts, of which the words are counted."""
    found: dict[str, int] = {}
    for position, value in column.items():
        found[value] = found.get(value, 0) | 1 << position
    return {Condition("is", name, value): mask for value, mask in found.items() if not _is_long(value)}


def _quantities(column: Mapping[int, str]) -> dict[int, Quantity]:
    """The numbers of a column with their units; none where one of its values is none."""
    found: dict[int, Quantity] = {}
    for position, value in column.items():
        quantity = parse_quantity(value)
        if quantity is None:
            return {}
        found[position] = quantity
    return found


def _is_measured(quantities: Mapping[int, Quantity]) -> bool:
    """Whether a column measures, and its values are no names: some are no whole numbers, or many differ."""
    numbers = [found.number for found in quantities.values()]
    is_shared = len(numbers) <= FINE_LIMITS * TICKETS_EACH or len(numbers) >= SHARED * len(set(numbers))
    return not (is_shared and all(map(float.is_integer, numbers)))


def _units(quantities: Mapping[int, Quantity]) -> set[str]:
    """The units that numbers have; one without any may be of each."""
    return {found.unit for found in quantities.values()} - {""}


def _numbers(quantities: Mapping[int, Quantity], are_counts: bool) -> dict[int, float]:
    """Numbers to compare; none of several units, or of so few values that these say as much."""
    numbers = {position: found.number for position, found in quantities.items()}
    return numbers if len(_units(quantities)) <= 1 and len(set(numbers.values())) > 2 - are_counts else {}


def _either(name: str, values: Mapping[str, int]) -> dict[Condition, int]:
    """One value or another, of a column with few."""
    if not 2 < len(values) <= MOST_VALUES:
        return {}
    return {Condition("among", name, one, other): values[one] | values[other] for one, other in combinations(values, 2)}


def _limits(
    name: str, column: Mapping[int, str], numbers: Mapping[int, float], wrong: int, fine: bool
) -> dict[Condition, int]:
    """Above and below numbers of a column; written as a ticket has them, or where they are fine, as short as they may be."""
    written = {numbers[position]: column[position] for position in sorted(numbers, key=column.__getitem__)}
    ordered = sorted(written)
    limits = spread_limits(ordered, numbers, wrong, fine, len(numbers))
    masks = find_beyond(limits, numbers)
    found: dict[Condition, int] = {}
    for (kind, limit), mask in zip(limits, masks, strict=True):
        text = written[limit]
        low = bisect_left(ordered, limit) - (kind == "below")
        if fine and 0 <= low < len(ordered) - 1:
            text = write_limit(kind, ordered[low], ordered[low + 1], text) or text
        found.setdefault(Condition(kind, name, text), mask)
    return found


def _within(limits: Mapping[Condition, int], tickets: int) -> dict[Condition, int]:
    """Above one limit and below another, as most of so many tickets are: what is outside both may be rare and alike."""
    count, sides = min(WITHIN, tickets // TICKETS_PER_LIMIT), list[list[Condition]]()
    for kind in ("above", "below"):
        ordered = sorted((each for each in limits if each.kind == kind), key=lambda each: limits[each].bit_count())
        sides.append([ordered[len(ordered) * place // count] for place in range(count)])
    pairs = {(low, high): limits[low] & limits[high] for low, high in product(*sides)}
    return {
        Condition("within", low.name, low.value, high.value): mask
        for (low, high), mask in pairs.items()
        if 2 * mask.bit_count() > tickets and mask not in (limits[low], limits[high])
    }


def _are_alike(
    one: tuple[str, Mapping[int, str]],
    other: tuple[str, Mapping[int, str]],
    quantities: Mapping[str, Mapping[int, Quantity]],
) -> bool:
    """Whether two columns may be compared: they have one unit, or none and mostly the same values."""
    units = [_find_units(name, quantities.get(name, {})) for name, _ in (one, other)]
    if any(units):
        return units[0] == units[1]
    values, others = (set(column.values()) for _, column in (one, other))
    return 2 * len(values & others) >= len(values | others)


def _find_units(name: str, quantities: Mapping[int, Quantity]) -> set[str]:
    """The units that a column's numbers have, or its name tells behind it, as in ``Torque [Nm]`` and ``TSH (µU/ml)``."""
    told = _UNIT.search(name) if quantities else None
    return _units(quantities) or ({fold_unit(told[1] or told[2])} if told else set())


def _compared(
    one: str,
    column: Mapping[int, str],
    other: str,
    beside: Mapping[int, str],
    numeric: tuple[Mapping[int, float], Mapping[int, float]] | None,
    are_counts: bool,
) -> dict[Condition, int]:
    """How two columns with values in common compare."""
    if len({*column.values()} & {*beside.values()}) < 2:
        return {}
    both = [position for position in column if position in beside]
    found: dict[Condition, int] = {}
    if not are_counts:  # two counts are equal by chance, above all where both are 0
        found[Condition("equals", one, other)] = to_mask(p for p in both if fold_value(column[p]) == fold_value(beside[p]))
        found[Condition("differs", one, other)] = to_mask(p for p in both if fold_value(column[p]) != fold_value(beside[p]))
    if numeric:
        left, right = numeric
        found[Condition("over", one, other)] = to_mask(p for p in both if left[p] > right[p])
        found[Condition("under", one, other)] = to_mask(p for p in both if left[p] < right[p])
    return found


def _stems(masks: Mapping[Condition, int]) -> dict[Condition, int]:
    """Stems of several words, the longest first."""
    words: dict[str, list[int]] = {}
    for condition, mask in masks.items():
        for stem in find_stems(condition.value):
            words.setdefault(stem, []).append(mask)
    several = sorted((stem for stem, found in words.items() if len(found) > 1), key=_rank_length)
    return {Condition("mentions", next(iter(masks)).name, stem): reduce(or_, words[stem]) for stem in several}


def _find_only_text(readings: Sequence[Reading], texts: Set[str]) -> str:
    """The one column of ``texts`` that has all free text; empty where there are several, or prose."""
    name = next(iter(texts)) if len(texts) == 1 else ""
    return name if name and all(each.words <= find_mentioned(each.pairs.get(name, "")) for each in readings) else ""


def _words(readings: Sequence[Reading], texts: Set[str], column: str) -> dict[Condition, int]:
    """Words of prose and of the columns ``texts``, wherever a ticket mentions them, or in the one ``column`` alone."""
    words = {word for each in readings for word in each.words}
    words |= {word for each in readings for name in texts & each.pairs.keys() for word in find_words(each.pairs[name])}
    words -= STOP_WORDS
    if column:
        readings = [read_value(each.pairs.get(column, "")) for each in readings]
    masks: dict[str, int] = {}
    for position, each in enumerate(readings if words else ()):
        others = (find_mentioned(text) for pair in each.pairs.items() for text in pair)
        for word in words & each.words.union(*others):
            masks[word] = masks.get(word, 0) | 1 << position
    return {Condition("mentions", column, word): masks[word] for word in sorted(masks, key=_rank_length)}


def _rank_length(text: str) -> tuple[int, str]:
    """The longer first: of texts that the same tickets have, that is the whole word, ``after``, and not what is left of it
    without an ending, ``aft``."""
    return -len(text), text


def _phrases(readings: Sequence[Reading], texts: Set[str], masks: Mapping[Condition, int], of: str) -> dict[Condition, int]:
    """Phrases of free text that ``LEAST_PHRASE`` tickets have or more, where each of their words stands elsewhere, too."""
    having: dict[str, int] = {}
    for position, each in enumerate(readings):
        pieces = [*each.texts, *(fold_text(each.pairs[name]) for name in texts & each.pairs.keys())]
        for phrase in sorted({phrase for text in pieces for phrase in find_phrases(text)}, key=_rank_length):
            having[phrase] = having.get(phrase, 0) | 1 << position
    found: dict[Condition, int] = {}
    for phrase, mask in having.items():
        words = phrase.split(" ")
        alone = (masks.get(Condition("mentions", of, word)) for word in words)
        if mask.bit_count() >= LEAST_PHRASE and mask not in alone and not JOINING.intersection(words):
            found[Condition("mentions", of, phrase)] = mask
    return found


def _computed(
    numeric: Mapping[str, Mapping[int, float]], alike: Set[tuple[str, str]], wrong: int, fine: bool
) -> dict[Condition, int]:
    """Limits of sums, differences, products and quotients of names that are ``alike``, and how products of different names
    compare."""
    found: dict[Condition, int] = {}
    products: dict[tuple[str, str], dict[int, float]] = {}
    for one, other in (pair for pair in combinations(numeric, 2) if pair in alike):
        sides = [(p, value, numeric[other][p]) for p, value in numeric[one].items() if p in numeric[other]]
        for sign, compute in OPERATORS.items():
            numbers = {p: compute(left, right) for p, left, right in sides if right or sign != "/"}
            if sign == "×":
                products[one, other] = numbers
            if len(set(numbers.values())) > 2:
                found |= _computed_limits(str(Computed(one, sign, other)), numbers, wrong, fine)
    for (names, left), (others, right) in combinations(products.items(), 2):
        if not {*names} & {*others}:
            one, other = (str(Computed(first, "×", second)) for first, second in (names, others))
            both = [p for p in left if p in right]
            found[Condition("over", one, other, is_computed=True)] = to_mask(p for p in both if left[p] > right[p])
            found[Condition("under", one, other, is_computed=True)] = to_mask(p for p in both if left[p] < right[p])
    return found


def _computed_limits(name: str, numbers: Mapping[int, float], wrong: int, fine: bool) -> dict[Condition, int]:
    """Above and below round numbers."""
    ordered = sorted(numbers.values())
    limits = [(kind, write_computed(limit)) for kind, limit in spread_limits(ordered, numbers, wrong, fine)]
    masks = find_beyond([(kind, float(text)) for kind, text in limits], numbers)
    return {Condition(kind, name, text, is_computed=True): mask for (kind, text), mask in zip(limits, masks, strict=True)}
