"""The view that one reflection has of a mission, and an edit of its guidance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lab.tiny.pool import Pool, bits
from lab.tiny.rules import Book, Condition, WorldRule
from stageb.guidance.words.types import OpName, Verdict

LOSS_PRICE = 2.0  # of a ticket spoilt, in tickets turned


@dataclass(frozen=True, slots=True)
class Edit:
    """One operation on a book."""

    op: OpName
    keys: tuple[str, ...]  # of the rules that it changes, joins or removes
    rule: WorldRule | None  # None: remove
    grounds: tuple[Condition, ...] = ()  # what to look for, in this order


@dataclass(frozen=True)
class Stage:
    """The view of one reflection."""

    pool: Pool
    book: Book
    shown: tuple[int, ...]  # positions in the pool, in the order in which the prompt names them
    wrong: int  # mask of those shown as wrong; all of one label
    label: Verdict  # what they should get
    # mask of the tickets that an edit of this stage is weighed on: none that the stage could see
    tested: int
    rule: str = ""  # the key of the rule that decided all of them; empty where none is to be mended
    clues: tuple[tuple[Condition, ...], ...] = ()  # what the evidence says, the most telling first

    @cached_property
    def right(self) -> int:
        """Mask of the cases shown as right."""
        return bits(self.shown) & ~self.wrong

    @cached_property
    def ratio(self) -> float:
        """Cases shown as wrong to those shown as right."""
        return self.wrong.bit_count() / max(1, self.right.bit_count())

    def places(self, mask: int) -> tuple[int, ...]:
        """The cases on show that are in a mask, by their places."""
        return tuple(place for place, position in enumerate(self.shown) if mask >> position & 1)

    def decided(self, key: str) -> int:
        """The tickets whose verdict may hang on a rule."""
        return self.pool.fire(self.book.rules[key])

    def worth(self, mask: int) -> float:
        """Of an edit that turns the verdicts of ``mask``, on the cases on show."""
        return (mask & self.wrong).bit_count() - LOSS_PRICE * (mask & self.right).bit_count()

    def lift(self, mask: int) -> float:
        """How promising a condition is as a part of several: wrong cases beyond its share of the
        right ones."""
        return (mask & self.wrong).bit_count() - self.ratio * (mask & self.right).bit_count()


def edited(book: Book, edit: Edit) -> Book:
    """The book after one edit; a new rule gets the next number, joined ones the place of the
    first."""
    rules = dict(book.rules)
    if edit.op == "add":
        key = f"G{1 + max((int(old[1:]) for old in rules), default=0)}"
    else:
        key = edit.keys[0]
        for gone in edit.keys[0 if edit.op == "remove" else 1 :]:
            del rules[gone]
    if edit.rule is not None:
        rules[key] = edit.rule
    return Book(rules, book.default)
