"""Tickets with their labels as bit masks: which of them meet a condition, a rule fires for, a book
judges right."""

from __future__ import annotations

import math
import operator
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from lab.tiny.rules import BETWEEN, COMPARISONS, Book, Condition, Facts, Kind, WorldRule, quantity
from lab.tiny.worlds import World
from stageb.guidance.words.types import Ticket, Verdict


class Pool:
    """Tickets with their labels, and which of them meet a condition."""

    def __init__(self, world: World, facts: Sequence[Facts], labels: Sequence[Verdict]) -> None:
        self.world, self.facts, self.labels = world, facts, labels
        self.everyone = (1 << len(facts)) - 1
        self.should_fail = bits(i for i, label in enumerate(labels) if label == "fail")
        self._known: dict[Condition, int] = {}
        self._tickets: dict[int, Ticket] = {}
        self._values: dict[str, dict[str, int]] = {}  # attribute -> value -> who has it
        self._forms: dict[str, int] = {}
        self._ordered: dict[str, tuple[list[float], list[int]]] = {}
        for position, each in enumerate(facts):
            bit = 1 << position
            for attribute, value in each.values.items():
                column = self._values.setdefault(attribute, {})
                column[value] = column.get(value, 0) | bit
            for form in each.forms:
                self._forms[form] = self._forms.get(form, 0) | bit

    def ticket(self, position: int, rng: random.Random) -> Ticket:
        """A ticket written down, always in the same way."""
        if position not in self._tickets:
            self._tickets[position] = self.world.ticket(
                self.facts[position], rng, self.labels[position]
            )
        return self._tickets[position]

    def values(self, attribute: str) -> tuple[str, ...]:
        """All values that tickets have."""
        return tuple(self._values.get(attribute, ()))

    def meet(self, condition: Condition) -> int:
        """The tickets for which a condition holds."""
        if condition not in self._known:
            self._known[condition] = self._search(condition)
        return self._known[condition]

    def _search(self, condition: Condition) -> int:
        kind, attribute = condition.kind, condition.attribute
        column = self._values.get(attribute, {})
        if kind in ("is", "in"):
            return union(column.get(value, 0) for value in condition.values)
        if kind in ("not", "none"):
            return union(mask for value, mask in column.items() if value not in condition.values)
        if kind in COMPARISONS:
            return self._beyond(kind, attribute, quantity(condition.values[0]))
        if kind in ("equals", "differs"):
            other = self._values.get(condition.values[0], {})
            equal = union(mask & other.get(value, 0) for value, mask in column.items())
            return (
                equal
                if kind == "equals"
                else union(column.values()) & union(other.values()) & ~equal
            )
        if kind in BETWEEN:
            return self._compared(condition)
        if kind == "mentions" and not any(" " in phrase for phrase in condition.values):
            return union(self._forms.get(phrase, 0) for phrase in condition.values)
        return bits(i for i, each in enumerate(self.facts) if condition.holds(each))

    def _beyond(self, kind: Kind, attribute: str, limit: float) -> int:
        """``above``, ``below``, ``least`` and ``most``: who has a number on one side of a limit."""
        if attribute not in self._ordered:
            column = [
                (quantity(value), mask) for value, mask in self._values.get(attribute, {}).items()
            ]
            column = sorted(pair for pair in column if not math.isnan(pair[0]))
            sums = list(accumulate((mask for _, mask in column), operator.or_, initial=0))
            self._ordered[attribute] = [number for number, _ in column], sums
        numbers, sums = self._ordered[attribute]
        cut = (bisect_left if kind in ("below", "least") else bisect_right)(numbers, limit)
        return sums[cut] if kind in ("below", "most") else sums[-1] & ~sums[cut]

    def _compared(self, condition: Condition) -> int:
        """``over`` and ``under``: by values where there are few, by tickets elsewhere."""
        column, other = (self._values.get(attribute, {}) for attribute in condition.attributes)
        compare = BETWEEN[condition.kind]
        if len(column) * len(other) > len(self.facts):
            return bits(i for i, each in enumerate(self.facts) if condition.holds(each))
        return union(
            mask & beside
            for value, mask in column.items()
            for across, beside in other.items()
            if compare(value, across)
        )

    def fire(self, rule: WorldRule) -> int:
        """The tickets of which a rule speaks."""
        holds = self.everyone
        for condition in rule.conditions:
            holds &= self.meet(condition)
        if rule.inverted:
            return self.everyone & ~holds
        return holds & ~self.meet(rule.exception) if rule.exception else holds

    def fail(self, book: Book) -> int:
        """The tickets that a book fails."""
        passed = failed = 0
        for rule in book.rules.values():
            if rule.verdict == "pass":
                passed |= self.fire(rule)
            else:
                failed |= self.fire(rule)
        return (self.everyone if book.default == "fail" else failed) & ~passed

    def right(self, book: Book) -> int:
        """The tickets that a book judges as they are labelled."""
        return self.everyone & ~(self.fail(book) ^ self.should_fail)


def bits(positions: Iterable[int]) -> int:
    """The mask of some positions."""
    return sum(1 << position for position in positions)


def union(masks: Iterable[int]) -> int:
    """The tickets of any of some masks."""
    found = 0
    for mask in masks:
        found |= mask
    return found
