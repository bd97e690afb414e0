"""Rules as functions of a ticket's reading: true, false or None, where the ticket does not tell.

None spreads as in Kleene's three-valued logic ("Introduction to metamathematics", 1952, section
64): a whole is unknown only if the part could turn it. ``exports/python.py`` writes this file
into the modules that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from stageb.guidance.rules.value_types import (
    ANY,
    Computed,
    Reading,
    are_comparable,
    find_quantity,
    parse_number,
    parse_quantity,
    read_value,
)
from stageb.untrusted.clean_text import fold_value

Predicate = Callable[[Reading], "bool | None"]
Verdict = str
Ordered = Callable[[float, float], bool]


def is_one_of(name: str, *values: str) -> Predicate:
    """The field has one of these values, as ``fold_value`` compares them."""
    known = frozenset(map(fold_value, values))
    are_numbers = all(parse_number(value) is not None for value in values)

    def holds(ticket: Reading) -> bool | None:
        mine = ticket.pairs.get(name, "0" if ticket.is_counted and are_numbers else None)
        return None if mine is None else fold_value(mine) in known

    return holds


def is_missing(name: str) -> Predicate:
    """The ticket does not have the field; what was not counted is 0, and is there."""
    return lambda ticket: name not in ticket.pairs and not ticket.is_counted


def is_above(name: str | Computed, limit: str) -> Predicate:
    """The number of the field, or of two, is above that of ``limit``."""
    return _limited(name, limit, float.__gt__)


def is_below(name: str | Computed, limit: str) -> Predicate:
    """The number of the field, or of two, is below that of ``limit``."""
    return _limited(name, limit, float.__lt__)


def is_over(name: str | Computed, other: str | Computed) -> Predicate:
    """The number is above another one."""
    return _compared(name, other, float.__gt__)


def is_under(name: str | Computed, other: str | Computed) -> Predicate:
    """The number is below another one."""
    return _compared(name, other, float.__lt__)


def equals(name: str, other: str) -> Predicate:
    """Two fields have the same value, as ``fold_value`` compares them."""

    def holds(ticket: Reading) -> bool | None:
        mine, its = (
            ticket.pairs.get(each, "0" if ticket.is_counted else None) for each in (name, other)
        )
        return None if mine is None or its is None else fold_value(mine) == fold_value(its)

    return holds


def mentions(name: str, *words: str) -> Predicate:
    """The field has one of these words or phrases, which are in small letters, or a word that
    begins with one of these stems (``leak*``). Without a name, the whole ticket counts: free text,
    and fields' names and values."""
    stems = [word.removesuffix(ANY) for word in words if word.endswith(ANY)]
    wanted = frozenset(word for word in words if " " not in word and not word.endswith(ANY))
    phrases = [word for word in words if " " in word]

    def holds(ticket: Reading) -> bool | None:
        ticket = read_value(ticket.pairs.get(name, "")) if name else ticket
        return (
            not wanted.isdisjoint(ticket.mentioned)
            or any(map(ticket.mentions_stem, stems))
            or any(map(ticket.mentions_phrase, phrases))
        )

    return holds


def every(*parts: Predicate) -> Predicate:
    """All of the parts hold."""

    def holds(ticket: Reading) -> bool | None:
        known: bool | None = True
        for part in parts:
            found = part(ticket)
            if found is False:
                return False
            known = known if found else None
        return known

    return holds


def some(*parts: Predicate) -> Predicate:
    """At least one of the parts holds."""

    def holds(ticket: Reading) -> bool | None:
        known: bool | None = False
        for part in parts:
            found = part(ticket)
            if found:
                return True
            known = known if found is False else None
        return known

    return holds


def at_least(count: int, *parts: Predicate) -> Predicate:
    """At least ``count`` of the parts hold."""

    def holds(ticket: Reading) -> bool | None:
        found = [part(ticket) for part in parts]
        true = found.count(True)
        if true >= count:
            return True
        return None if true + found.count(None) >= count else False

    return holds


class PointsReached:
    """The parts that hold have at least so many points together. A part that is unknown for the
    ticket has none."""

    def __init__(self, least: int, *parts: tuple[int, Predicate]) -> None:
        self._least, self._parts = least, parts

    def __call__(self, ticket: Reading) -> bool | None:
        return self.count_above(ticket) >= 0

    def count_above(self, ticket: Reading) -> int:
        """Return the points above the least."""
        return sum(points for points, part in self._parts if part(ticket)) - self._least


def deny(part: Predicate) -> Predicate:
    """The part does not hold."""

    def holds(ticket: Reading) -> bool | None:
        found = part(ticket)
        return None if found is None else not found

    return holds


def unreadable(ticket: Reading) -> bool | None:
    """Stands for a rule that code cannot read: always unknown."""
    return None


class CompiledRule(NamedTuple):
    """A rule as code."""

    key: str
    text: str
    verdicts: tuple[Verdict, ...]  # that it may give: one; all where the rule is unreadable
    holds: Predicate


class Ruling(NamedTuple):
    """The verdict of rules on a ticket."""

    verdict: Verdict | None  # None: they cannot tell
    # the key of the first rule that decides; the headline's where none speaks of the ticket
    rule: str = ""
    unknown: tuple[str, ...] = ()  # without a verdict: the keys of the rules on which it hangs
    # unless a rule without points decides: how far above each label's least
    leads: tuple[tuple[Verdict, int], ...] = ()


def measure_margin(ruling: Ruling, headline: str) -> int:
    """Return the points between a verdict and the next best one; 0 where a rule without points gave
    it, or there is none. Where only the ``headline`` decides, the points, below 0, that are missing
    from the nearest rule."""
    leads = dict(ruling.leads)
    if ruling.verdict is None or not leads:
        return 0
    if ruling.rule == headline:
        return -max(leads.values())
    own = leads.pop(ruling.verdict)
    return own - max(0, *leads.values()) if leads else own


def make_judge(
    rules: Iterable[CompiledRule], headline: str, labels: tuple[Verdict, ...]
) -> Callable[[Reading], Ruling]:
    """Return a function that gives the verdict on a ticket: that of the first rule that holds, or,
    if none does, the first of ``labels``. If these are pass and fail, in either order, rules that
    pass stand before those that fail, whatever their numbers. With other labels, rules with points
    that stand side by side are compared: of those that hold, the rule decides whose least points
    the ticket exceeds most, the first of equals.

    No verdict where it hangs on a rule that is unreadable, or on something that the ticket does not
    say.
    """
    rules = tuple(rules)
    tests = [(rule.holds, Ruling(verdict, rule.key)) for rule in rules for verdict in rule.verdicts]
    if {*labels} == {"pass", "fail"}:
        runs = [(False, sorted(tests, key=lambda test: test[1].verdict == "fail"))]
    else:
        runs = [
            (are_compared, [*run]) for are_compared, run in groupby(tests, key=_may_have_points)
        ]
    by_headline = Ruling(labels[0], headline)

    def judge(ticket: Reading) -> Ruling:
        unknown: list[Ruling] = []
        above: list[tuple[int, Ruling]] = []
        for are_compared, run in runs:
            for holds, ruling in run:
                if isinstance(holds, PointsReached):
                    above.append((holds.count_above(ticket), ruling))
                    if not are_compared and above[-1][0] >= 0:
                        return _decide(ruling, unknown, above)
                elif found := holds(ticket):
                    return _decide(ruling, unknown)
                elif found is None:
                    unknown.append(ruling)
            if are_compared and above:
                most, ruling = max(above, key=lambda each: each[0])
                if most >= 0:
                    return _decide(ruling, unknown, above)
        return _decide(by_headline, unknown, above)

    return judge


def _may_have_points(test: tuple[Predicate, Ruling]) -> bool:
    return isinstance(test[0], PointsReached) or test[0] is unreadable


def _decide(
    ruling: Ruling, unknown: Sequence[Ruling], above: Sequence[tuple[int, Ruling]] = ()
) -> Ruling:
    """Return the ruling, with how far the ticket is ``above`` the least points of some rules; no
    verdict if earlier rules that may hold give another one."""
    if keys := dict.fromkeys(each.rule for each in unknown if each.verdict != ruling.verdict):
        return Ruling(None, "", tuple(keys))
    leads: dict[Verdict, int] = {}
    for count, each in above:
        assert each.verdict is not None  # of one rule
        leads[each.verdict] = max(count, leads.get(each.verdict, count))
    return ruling._replace(leads=tuple(leads.items())) if leads else ruling


def _limited(name: str | Computed, limit: str, is_so: Ordered) -> Predicate:
    edge = parse_quantity(limit)

    def holds(ticket: Reading) -> bool | None:
        mine = find_quantity(ticket, name)
        return (
            None
            if mine is None or edge is None or not are_comparable(mine, edge)
            else is_so(mine.number, edge.number)
        )

    return holds


def _compared(name: str | Computed, other: str | Computed, is_so: Ordered) -> Predicate:
    def holds(ticket: Reading) -> bool | None:
        left, right = find_quantity(ticket, name), find_quantity(ticket, other)
        if left is None or right is None or not are_comparable(left, right):
            return None
        return is_so(left.number, right.number)

    return holds
