"""Conditions on the values of a field: that it has one of some, or none at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar

from stageb.guidance.rules import predicates
from stageb.guidance.rules.conditions.base import (
    TWO_WAYS,
    Call,
    ColumnForm,
    Condition,
    Expression,
    Family,
    Found,
    Marks,
    OutOfReach,
    Read,
    T,
    find_mark,
)
from stageb.guidance.rules.conditions.logic import negate
from stageb.guidance.rules.limits import FINE_LIMITS, TICKETS_EACH, to_mask
from stageb.guidance.rules.value_types import MOST_CHARS, Quantity, is_text, parse_number
from stageb.untrusted.clean_text import fold_value

if TYPE_CHECKING:
    from stageb.guidance.rules.candidates import Table
    from stageb.guidance.rules.parse import RuleReader
    from stageb.guidance.rules.wordings import Grammar

MOST_VALUES = 7  # of a column whose values are joined two by two
# different whole numbers in a column: up to MOST_NAMES they are names, as of months; up to
# MOST_MEASURED they measure, as ages and per cent do; still more are names again, as of parts
MOST_NAMES, MOST_MEASURED = 12, 100
SHARED = 5  # tickets that share a whole number, on average, where numbers are names


@dataclass(frozen=True, slots=True)
class OneOf(Condition):
    """A field has one of these values, as ``fold_value`` compares them."""

    field: str
    values: tuple[str, ...]

    marks: ClassVar[Marks] = {  # the words -> whether it is denied
        "en": {" is ": False, " is not ": True, " is neither ": True, " = ": False, " != ": True},
        "zh": {"为": False, "不为": True},
    }

    @property
    def call(self) -> Call:
        return predicates.is_one_of, (self.field, *self.values)

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def family(self) -> Family:
        return "plain" if len(self.values) == 1 else "joined"

    @property
    def named(self) -> tuple[tuple[str, str], ...]:
        return tuple((self.field, value) for value in self.values)

    @property
    def key(self) -> tuple[str, str, str, str]:
        first, second, *_ = *self.values, ""
        return "among" if second else "is", self.field, first, second

    @property
    def may_be_denied(self) -> bool:
        return len(self.values) == 1

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        counted = (
            grammar.write_count("is", self.field, self.values[0], is_denied)
            if len(self.values) == 1
            else ""
        )
        if counted:
            return counted
        mark = find_mark(self.marks, grammar, is_denied)
        return f"{grammar.call(self.field)}{mark}{grammar.list(self.values)}"

    @classmethod
    def read(cls, name: str, meaning: Any, value: str, reader: RuleReader) -> Read:
        if isinstance(subject := reader.find_field(name), OutOfReach):
            return subject
        known, lists = reader.vocabulary, reader.lists(subject, value)
        if len(lists) > 1:
            return TWO_WAYS
        if lists:
            found = cls(subject, reader.drop_repeats(lists[0]))
            return negate(found) if meaning else found
        wrong = next(
            (
                e
                for e in reader.separator.split(value)
                if fold_value(e) not in known.values[subject]
            ),
            value,
        )
        if subject in known.units and parse_number(wrong) is None:  # a wording of its own
            return OutOfReach(f"{subject!r} is compared with no number")
        left = "" if reader.parting.search(value) else value
        nearest = partial(known.nearest_value, subject, wrong)
        return OutOfReach(
            f"no ticket has {subject!r} as {wrong!r}", "value", subject, left, nearest
        )

    @classmethod
    def read_rank(
        cls, field: str, is_above: bool, is_denied: bool, value: str, reader: RuleReader
    ) -> Read:
        """Read a comparison by rank as a list of values: "is at least med" as "is med or high"."""
        held = reader.vocabulary.list_beyond(field, value, is_above, is_denied)
        if held is None:
            nearest = partial(reader.vocabulary.nearest_value, field, value)
            return OutOfReach(
                f"no ticket has {field!r} as {value!r}", "value", field, nearest=nearest
            )
        if not held:
            return OutOfReach(
                f"no ticket can have {field!r} {'above' if is_above else 'below'} {value!r}"
            )
        reader.is_loose = True
        return cls(field, held)

    def to_plain(self) -> Mapping[str, Any]:
        return {"field": self.field, "is": list(self.values)}

    def put(self, columns: ColumnForm[T]) -> T:
        return columns.one_of(self.field, self.values)

    def join(self, other: Expression) -> Expression | None:
        if not isinstance(other, OneOf):
            return other.join(self) if other.as_limit else None
        if other.field != self.field:
            return None
        return OneOf(self.field, tuple(dict.fromkeys((*self.values, *other.values))))


@dataclass(frozen=True, slots=True)
class Missing(Condition):
    """A ticket lacks a field, unless that is a count, which is 0 then."""

    field: str

    endings: ClassVar[Marks] = {  # the words -> whether it is denied
        "en": {" is missing": False, " is not missing": True},
        "zh": {"缺失": False, "未缺失": True},
    }

    @property
    def call(self) -> Call:
        return predicates.is_missing, (self.field,)

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    @property
    def needed(self) -> tuple[str, ...]:
        return ()

    @property
    def absent(self) -> str:
        return self.field

    @property
    def key(self) -> tuple[str, str, str, str]:
        return "missing", self.field, "", ""

    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        return f"{self.field}{find_mark(self.endings, grammar, is_denied)}"

    @classmethod
    def read_whole(cls, text: str, reader: RuleReader) -> Iterator[Read]:
        for ending, is_denied in cls.endings[reader.grammar.language].items():
            field = (
                reader.vocabulary.field(text.removesuffix(ending))
                if text.endswith(ending)
                else None
            )
            *_, value = ending.rpartition(" ")  # unless the field has a value that is called so
            if field and not (value != ending and reader.lists(field, value)):
                yield negate(cls(field)) if is_denied else cls(field)

    def to_plain(self) -> Mapping[str, Any]:
        return {"field": self.field, "missing": True}

    def put(self, columns: ColumnForm[T]) -> T:
        return columns.missing(self.field)


# What tickets suggest -----------------------------------------------------------------------------


def find_values(table: Table, found: Found) -> Found:
    """Find each value of a column; but no texts, whose words are counted instead, and no numbers
    that measure."""
    masks: Found = {}
    for name, column in table.columns.items():
        several = len(set(column.values())) > MOST_VALUES
        if several and (
            name in table.texts
            or (table.space.wide and _is_measured(table.quantities.get(name, {})))
        ):
            continue
        having: dict[str, int] = {}
        for position, value in column.items():
            having[value] = having.get(value, 0) | 1 << position
        masks |= {
            OneOf(name, (value,)): mask for value, mask in having.items() if not _is_long(value)
        }
    return masks


def find_either(table: Table, found: Found) -> Found:
    """Find pairs of values, one or the other, in columns with few values."""
    masks: Found = {}
    for name, column in table.columns.items():
        values = sorted(set(column.values()))
        is_chosen = (
            name not in table.numeric and name not in table.texts and not any(map(_is_long, values))
        )
        if is_chosen and 2 < len(values) <= MOST_VALUES:
            each = {value: found[OneOf(name, (value,))] for value in values}
            masks |= {
                OneOf(name, (one, two)): each[one] | each[two]
                for one, two in combinations(values, 2)
            }
    return masks


def find_missing(table: Table, found: Found) -> Found:
    """Find that a field is missing which most tickets have; nothing that is counted is missing."""
    if not table.space.wide or table.are_counted:
        return {}
    count = len(table.readings)
    lacked = (name for name in table.common if count < 2 * len(table.columns[name]) < 2 * count)
    return {Missing(name): ((1 << count) - 1) ^ to_mask(table.columns[name]) for name in lacked}


def _is_long(value: str) -> bool:
    """Whether a value is too long for a counted line to name it."""
    return len(value) > MOST_CHARS or is_text(value)


def _is_measured(quantities: Mapping[int, Quantity]) -> bool:
    """Whether a column measures, so that its values are no names: some are no whole numbers, or
    many differ, or they are most of the whole numbers from the least to the largest, as ages
    are."""
    numbers = [found.number for found in quantities.values()]
    different = len(set(numbers))
    if MOST_NAMES < different <= MOST_MEASURED and 2 * different > max(numbers) - min(numbers):
        return True
    is_shared = len(numbers) <= FINE_LIMITS * TICKETS_EACH or len(numbers) >= SHARED * len(
        set(numbers)
    )
    return not (is_shared and all(map(float.is_integer, numbers)))
