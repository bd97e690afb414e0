"""Expressions: what a rule says about a ticket, as a small tree whose leaves are conditions.

Each kind of condition is a class, which says when it holds, which fields it needs, how it is
written and read, how tickets suggest it, and how it looks in forms that see columns. Nothing
outside this package asks of which kind a condition is: it asks the condition. Learning uses the
same expressions, so what is counted, judged, written and exported is one thing. To add a kind, see
this package's ``__init__``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from stageb.guidance.rules.predicates import Predicate
from stageb.guidance.rules.value_types import Computed

if TYPE_CHECKING:
    from stageb.guidance.rules.conditions.logic import Points
    from stageb.guidance.rules.conditions.numbers import Limit
    from stageb.guidance.rules.parse import RuleReader
    from stageb.guidance.rules.wordings import Grammar

Family = Literal["plain", "joined", "limit", "compared", "computed"]
"""The kind of a condition, by which evidence weighs how rare such rules are."""

Side = Literal["above", "below"]
Call: TypeAlias = tuple[Callable[..., Predicate], tuple[Any, ...]]
Marks: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By language, the words of a condition and what they mean; of words that mean the same, the first
are written."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class OutOfReach:
    """Why a rule cannot be read as code."""

    why: str
    unknown: Literal["field", "value", "word", ""] = ""  # the kind of name that no ticket has
    field: str = ""  # the field named, where ``unknown`` is a field or a value
    value: str = ""  # the unknown value or word, where there is no other way to read it
    nearest: Callable[[], str] = str  # finds what may have been meant; by default nothing

    def with_hint(self) -> OutOfReach:
        """Return the same with a hint for a reader. Parsing meets many faults that nobody sees, and
        looking for what is near is slow."""
        near = self.nearest()
        return replace(
            self, why=f"{self.why}; the nearest is {near!r}" if near else self.why, nearest=str
        )


TWO_WAYS = OutOfReach("it can be read in two ways")


class Expression(ABC):
    """A statement that is true of a ticket, or false, or unknown where the ticket does not say."""

    __slots__ = ()
    is_denied: ClassVar[bool] = False
    may_have_points: ClassVar[bool] = True

    if TYPE_CHECKING:  # in some classes it is a field, for which a property would be a default

        @property
        def parts(self) -> tuple[Expression, ...]:
            """Its parts; none of a condition."""

    @property
    @abstractmethod
    def call(self) -> Call:
        """The function of ``predicates.py`` that makes a predicate of it, and the arguments;
        expressions among these stand for their predicates."""

    @abstractmethod
    def write(self, grammar: Grammar, is_denied: bool = False) -> str:
        """Write it, or its denial, in the words of rules."""

    @abstractmethod
    def accept(self, visitor: Visitor[T], truth: bool = True) -> T:
        """Have ``visitor`` make something of it, or of its denial, from its conditions up."""

    @abstractmethod
    def to_plain(self) -> Mapping[str, Any]:
        """Return the same as JSON."""

    def hold(self, find: Callable[[Expression], int]) -> int:
        """Return the tickets for which it holds, as bits, by those for which its parts do. Raises
        ``KeyError`` where only the tickets themselves can say."""
        raise KeyError(self)

    def conditions(self) -> Iterator[Condition]:
        """Yield all conditions in it, from left to right."""
        for part in self.parts:
            yield from part.conditions()

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields that it names."""
        return tuple(dict.fromkeys(field for each in self.conditions() for field in each.fields))

    @property
    def needed(self) -> tuple[str, ...]:
        """The fields, of these, without which it is unknown whether it holds."""
        needed = dict.fromkeys(field for part in self.parts for field in part.needed)
        return tuple(field for field in needed if field not in self.told)

    @property
    def told(self) -> Set[str]:
        """The fields about which one of its parts says what holds where a ticket lacks them."""
        return frozenset()

    @property
    def absent(self) -> str:
        """The field that it says a ticket lacks; empty where it says something else."""
        return ""

    @property
    def present(self) -> str:
        """The field that it says a ticket has; empty where it says something else."""
        return ""

    @property
    def family(self) -> Family:
        """The family of its first condition."""
        return next(each.family for each in self.conditions())

    @property
    def is_compared(self) -> bool:
        """Whether it compares two fields, or computes with them."""
        return any(each.family in ("compared", "computed") for each in self.conditions())

    @property
    def may_be_denied(self) -> bool:
        """Whether learners try its denial."""
        return False

    @property
    def size(self) -> int:
        """The number of conditions that it counts for."""
        return sum(each.size for each in self.parts)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Settles ties between conditions: the kind, the field, its first value, and the second
        one."""
        return "", "", "", ""

    @property
    def affirmed(self) -> Expression:
        """The part that it denies; itself, if it is no denial."""
        return self

    @property
    def conjuncts(self) -> tuple[Expression, ...]:
        """The parts that must all hold for it to hold."""
        return (self,)

    @property
    def disjuncts(self) -> tuple[Expression, ...]:
        """The parts of which one must hold for it to hold."""
        return (self,)

    @property
    def is_between(self) -> bool:
        """Whether it says that a number lies between two limits."""
        return False

    @property
    def is_given(self) -> bool:
        """Whether it says that a field is present, and something else about it."""
        return False

    @property
    def as_limit(self) -> Limit | None:
        """Itself, if it is one limit on a number."""
        return None

    @property
    def as_points(self) -> Points | None:
        """Itself, if it gives points."""
        return None

    @property
    def word(self) -> str:
        """The one word that it asks for; empty where it asks for anything else."""
        return ""

    def name_subject(self, grammar: Grammar) -> str:
        """Name the subject that mentions its word: a field, or any summary."""
        return ""

    @property
    def word_list(self) -> str:
        """The name of the word list to which its words belong; empty where they belong to none."""
        return ""

    def join(self, other: Expression) -> Expression | None:
        """Join both alternatives into one condition; None where two are needed."""
        return None

    def simplify(self) -> Expression:
        """Return the same without what it implies itself."""
        return self

    @property
    def listable(self) -> tuple[str, ...]:
        """The words that it names, where a list may hold them."""
        return ()

    def enlist(self, name: str) -> Expression:
        """Return the same by the word list of this ``name``, which holds its words."""
        return self

    def unlist(self) -> Expression:
        """Return the same by its words, where it names a word list."""
        return self

    def split(self) -> Sequence[Expression]:
        """Return a condition for each of its words; itself alone, if it asks for none."""
        return [self]


Read: TypeAlias = Expression | OutOfReach
Found: TypeAlias = dict[Expression, int]
"""Conditions that tickets suggest, each with the tickets for which it holds, as bits."""


class Condition(Expression):
    """One test of one or two fields, or of words."""

    __slots__ = ()
    marks: ClassVar[Marks] = {}  # the words between a field and what it is compared with

    @classmethod
    def read(cls, name: str, meaning: Any, value: str, reader: RuleReader) -> Read:
        """Read both sides of one of its ``marks``, which means ``meaning``."""
        raise NotImplementedError

    @classmethod
    def read_whole(cls, text: str, reader: RuleReader) -> Iterable[Read]:
        """Read a text with words of its own before or behind."""
        return ()

    @property
    def parts(self) -> tuple[Expression, ...]:
        return ()

    def conditions(self) -> Iterator[Condition]:
        yield self

    @property
    @abstractmethod
    def fields(self) -> tuple[str, ...]:
        """The fields that it names."""

    @property
    def family(self) -> Family:
        return "plain"

    @property
    def named(self) -> tuple[tuple[str, str], ...]:
        """The values that it names, each behind its field; words behind an empty one."""
        return ()

    @property
    def numbers(self) -> tuple[str | Computed, ...]:
        """The numbers that it compares, of single fields or computed from two."""
        return ()

    @property
    def divisors(self) -> tuple[str, ...]:
        """The fields that it divides by: where one is 0, it is unknown whether it holds."""
        return tuple(
            each.second
            for each in self.numbers
            if isinstance(each, Computed) and each.operator == "/"
        )

    @property
    def size(self) -> int:
        return 1

    @property
    def needed(self) -> tuple[str, ...]:
        return self.fields

    @abstractmethod
    def put(self, columns: ColumnForm[T]) -> T:
        """Put it into a form that sees ``columns``."""

    def accept(self, visitor: Visitor[T], truth: bool = True) -> T:
        return visitor.compare(self, truth)


class ColumnForm(Protocol[T_co]):
    """A form that sees columns: what it makes of each thing that a condition can say."""

    def one_of(self, field: str, values: tuple[str, ...]) -> T_co:
        """A field has one of these values."""

    def missing(self, field: str) -> T_co:
        """A field is empty."""

    def limit(self, of: str | Computed, side: Side, limit: str) -> T_co:
        """A number is on this side of a limit."""

    def order(self, of: str | Computed, side: Side, other: str | Computed) -> T_co:
        """A number is above another one, or below it."""

    def same(self, one: str, other: str, is_same: bool) -> T_co:
        """Two fields have the same value, or do not."""

    def mentions(self, field: str, words: tuple[str, ...]) -> T_co:
        """A field mentions one of these words, stems and phrases."""
        return self.beyond("words of free text")

    def beyond(self, what: str) -> T_co:
        """Handle a condition on ``what`` no column shows. A form that does not override this was
        asked before whether it can say a rule."""
        raise AssertionError(what)


class Visitor(ABC, Generic[T]):
    """Makes something of expressions, conditions first."""

    @abstractmethod
    def compare(self, condition: Condition, truth: bool) -> T:
        """Make something of a condition, or of its denial."""

    @abstractmethod
    def count(self, parts: list[T], least: int) -> T:
        """Make something of so many parts or more: of all of them, of any, or of a number in
        between."""

    @abstractmethod
    def score(self, card: Points, truth: bool) -> T:
        """Make something of points, or of their not being reached."""

    def deny(self, part: Expression, truth: bool) -> T:
        """Make something of a denial: by default the same as of its part, told with the opposite
        truth."""
        return part.accept(self, not truth)


def find_mark(marks: Marks, grammar: Grammar, meaning: Any) -> str:
    """Find the words that mean this in a language."""
    return next(mark for mark, found in marks[grammar.language].items() if found == meaning)
