"""The exact teacher of reflection: every short edit that the cases on show suggest, weighed on a whole pool of tickets.

A *pool* stands for the tickets of a mission; a *stage* is what one reflection sees of it: a guidance, and some cases that it
judges wrong beside some that it judges right. Edits are found by search on the cases on show and scored by what they would
do to the pool, because that is what the gate asks of them: an edit that fits the cases by chance teaches nothing.
Sets of tickets are bit masks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from lab.tiny.rules import COMPARE, COMPARISONS, Book, Condition, Facts, Kind, WorldRule, quantity, stems
from lab.tiny.worlds import World
from stageb.guidance.types import Ticket, Verdict

LEAST_GAIN = 1.5  # of an edit worth teaching
LOSS_PRICE = 2.0  # of a ticket spoilt, in tickets turned
SINGLES, PAIRS, SHORTLIST = 40, 12, 14  # how many candidates each step of the search keeps
MOST_WORDS = 8  # in one rule


class Pool:
    """Tickets with their labels, and which of them meet a condition."""

    def __init__(self, world: World, facts: Sequence[Facts], labels: Sequence[Verdict]) -> None:
        self.world, self.facts, self.labels = world, facts, labels
        self.everyone = (1 << len(facts)) - 1
        self.should_fail = bits(i for i, label in enumerate(labels) if label == "fail")
        self._known: dict[Condition, int] = {}
        self._values: dict[tuple[str, str], int] = {}
        self._have: dict[str, int] = {}
        self._forms: dict[str, int] = {}
        self._numbers: dict[str, list[tuple[int, float]]] = {attribute: [] for attribute in world.numbers}
        for position, each in enumerate(facts):
            bit = 1 << position
            for pair in each.values.items():
                self._values[pair] = self._values.get(pair, 0) | bit
                self._have[pair[0]] = self._have.get(pair[0], 0) | bit
                if pair[0] in self._numbers:
                    self._numbers[pair[0]].append((position, quantity(pair[1])))
            for form in each.forms:
                self._forms[form] = self._forms.get(form, 0) | bit

    def ticket(self, position: int, rng: random.Random) -> Ticket:
        """A ticket written down."""
        return self.world.ticket(self.facts[position], rng, self.labels[position])

    def meet(self, condition: Condition) -> int:
        """The tickets for which a condition holds."""
        if condition not in self._known:
            self._known[condition] = self._search(condition)
        return self._known[condition]

    def _search(self, condition: Condition) -> int:
        kind, attribute = condition.kind, condition.attribute
        if kind in ("is", "in", "not", "none"):
            equal = 0
            for value in condition.values:
                equal |= self._values.get((attribute, value), 0)
            return equal if kind in ("is", "in") else self._have.get(attribute, 0) & ~equal
        if kind in COMPARISONS:
            limit, compare = quantity(condition.values[0]), COMPARE[kind]
            return bits(position for position, number in self._numbers.get(attribute, ()) if compare(number, limit))
        if kind == "mentions" and not any(" " in phrase for phrase in condition.values):
            found = 0
            for phrase in condition.values:
                found |= self._forms.get(phrase, 0)
            return found
        return bits(i for i, each in enumerate(self.facts) if condition.holds(each))

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


@dataclass(frozen=True, slots=True)
class Option:
    """An edit that the cases speak for."""

    score: float  # tickets of the pool turned, less ``LOSS_PRICE`` times those spoilt
    op: Literal["add", "update", "remove"]
    key: str | None  # of the rule that it changes or removes
    rule: WorldRule | None  # None: remove
    grounds: tuple[Condition, ...]  # what to look for in the cases, in this order
    turned: tuple[int, ...]  # the wrong cases on show that it turns, by their places


@dataclass(frozen=True)
class Stage:
    """What one reflection sees."""

    pool: Pool
    book: Book
    shown: tuple[int, ...]  # positions in the pool, in the order in which the prompt names them
    wrong: int  # mask of those shown as wrong; all of one label
    label: Verdict  # what they should get

    @cached_property
    def right(self) -> int:
        """Mask of the cases shown as right."""
        return bits(self.shown) & ~self.wrong

    def places(self, mask: int) -> tuple[int, ...]:
        """The cases on show that are in a mask, by their places."""
        return tuple(place for place, position in enumerate(self.shown) if mask >> position & 1)

    def decided(self, key: str) -> int:
        """The tickets whose verdict may hang on a rule."""
        return self.pool.fire(self.book.rules[key])

    def worth(self, mask: int) -> float:
        """Of an edit that turns the verdicts of ``mask``, on the cases on show."""
        return (mask & self.wrong).bit_count() - LOSS_PRICE * (mask & self.right).bit_count()


def edited(book: Book, op: str, key: str | None, rule: WorldRule | None) -> Book:
    """The book after one edit; a new rule gets the next number."""
    rules = dict(book.rules)
    if key is None:
        key = f"G{1 + max((int(old[1:]) for old in rules), default=0)}"
    if op == "remove":
        del rules[key]
    elif rule is not None:
        rules[key] = rule
    return Book(rules, book.default)


def options(stage: Stage) -> list[Option]:
    """Every edit that turns more of the cases on show than it spoils, and more of the pool; best first."""
    before = stage.pool.right(stage.book)
    found = []
    for op, key, rule, grounds in _edits(stage):
        after = stage.pool.right(edited(stage.book, op, key, rule))
        won, lost = after & ~before, before & ~after
        turned = won & stage.wrong
        if turned.bit_count() <= LOSS_PRICE * (lost & stage.right).bit_count():
            continue
        score = won.bit_count() - LOSS_PRICE * lost.bit_count() - 0.2 * len(grounds)
        if score >= LEAST_GAIN:
            found.append(Option(score, op, key, rule, grounds, stage.places(turned)))
    return sorted(found, key=lambda option: -option.score)


Edit = tuple[Literal["add", "update", "remove"], str | None, WorldRule | None, tuple[Condition, ...]]


def _edits(stage: Stage) -> list[Edit]:
    """Edits worth weighing."""
    candidates = _candidates(stage)
    edits: list[Edit] = []
    for conditions in candidates:
        edits.append(("add", None, WorldRule(stage.label, conditions), conditions))
        edits += _broadened(stage, conditions)
    if stage.label == "pass":
        for key, rule in stage.book.rules.items():
            if rule.verdict == "fail" and stage.decided(key) & stage.wrong:
                edits.append(("remove", key, None, ()))
                edits += _narrowed(stage, key, rule)
    return edits


def _candidates(stage: Stage) -> list[tuple[Condition, ...]]:
    """Conditions, alone and joined by "and", that hold for wrong cases rather than right ones; the best few."""
    meet, worth = stage.pool.meet, stage.worth
    equal, sets = _singles(stage)
    equal = sorted(equal, key=lambda c: -(meet(c) & stage.wrong).bit_count())[:SINGLES]
    known: dict[tuple[Condition, ...], float] = {(c,): worth(meet(c)) for c in equal}
    known |= {(c,): worth(meet(c)) - 0.3 * len(c.values) for c in sets}
    pairs: dict[tuple[Condition, ...], float] = {}
    best_sets = sorted(sets, key=lambda c: -known[c,])[:PAIRS]
    for spot, one in enumerate(equal):
        mask = meet(one)
        for other in (*equal[spot + 1 :], *best_sets):
            if other.attribute != one.attribute or not other.attribute:
                both = mask & meet(other)
                if both & stage.wrong:
                    pairs[one, other] = worth(both) - 0.5 - 0.3 * (len(other.values) - 1)
    triples: dict[tuple[Condition, ...], float] = {}
    for pair in sorted(pairs, key=lambda p: -pairs[p])[:PAIRS]:
        mask = meet(pair[0]) & meet(pair[1])
        if mask & stage.right:
            for third in equal:
                if third.attribute not in (pair[0].attribute, pair[1].attribute):
                    triples[*pair, third] = worth(mask & meet(third)) - 1.0
    known |= pairs | triples
    best = sorted((c for c in known if known[c] > 0), key=lambda c: -known[c])[:SHORTLIST]
    return list(dict.fromkeys(_ordered(stage, conditions) for conditions in best))


def _ordered(stage: Stage, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """The condition that tells most by itself first."""
    return tuple(sorted(conditions, key=lambda c: (-stage.worth(stage.pool.meet(c)), c.attribute, c.values)))


def _singles(stage: Stage) -> tuple[list[Condition], list[Condition]]:
    """Conditions of one value that hold for a wrong case, and all others: sets, denials, comparisons, several words."""
    world, meet = stage.pool.world, stage.pool.meet
    wrong = [stage.pool.facts[position] for position in stage.shown if stage.wrong >> position & 1]
    have = dict.fromkeys(pair for each in wrong for pair in each.values.items() if pair[0] in world.values)
    equal = [Condition("is", attribute, (value,)) for attribute, value in have]
    sets: list[Condition] = []
    for attribute in dict.fromkeys(attribute for attribute, _ in have):
        shown = [value for a, value in have if a == attribute]
        shown.sort(key=lambda value: -stage.worth(meet(Condition("is", attribute, (value,)))))
        sets += [
            Condition("in", attribute, tuple(shown[:size]))
            for size in (2, 3)
            if size <= len(shown) and size < len(world.values[attribute])
        ]
        if len(world.values[attribute]) > 3:
            sets += [
                Condition("not", attribute, (value,))
                for value in world.values[attribute]
                if meet(Condition("is", attribute, (value,))) & stage.right
            ]
    for attribute in world.numbers:
        limits = {f.values[attribute] for p in stage.shown if attribute in (f := stage.pool.facts[p]).values}
        compared = [Condition(kind, attribute, (limit,)) for limit in sorted(limits, key=quantity) for kind in _SIDES]
        sets += sorted(compared, key=lambda c: -stage.worth(meet(c)))[:4]
    said = _words(stage, wrong)
    equal += said[:SINGLES]
    return equal, [*sets, *_joined(stage, said)]


_SIDES: tuple[Kind, ...] = ("above", "below")


def _words(stage: Stage, wrong: Sequence[Facts]) -> list[Condition]:
    """A condition for every word of the wrong cases, and for their stems where these find more."""
    said: dict[Condition, float] = {}
    for each in wrong:
        for word in each.notes:
            if len(word) > 1 and not any(mark in word for mark in "<>#/"):
                condition = Condition("mentions", "", (word,))
                said[condition] = stage.worth(stage.pool.meet(condition))
                for stem in stems(word):
                    shorter = Condition("mentions", "", (stem,))
                    if (stage.pool.meet(shorter) & ~stage.pool.meet(condition)) & bits(stage.shown):
                        said[shorter] = stage.worth(stage.pool.meet(shorter))
    return sorted(said, key=lambda condition: -said[condition])


def _joined(stage: Stage, said: Sequence[Condition]) -> list[Condition]:
    """The best few words in one condition, taken greedily by the wrong cases that each adds."""
    joined: tuple[str, ...] = ()
    covered, found = 0, []
    for _ in range(4):
        gains = ((stage.worth(stage.pool.meet(word) & ~covered), word) for word in said[: 2 * SINGLES])
        gain, word = max(gains, key=lambda pair: pair[0], default=(0.0, None))
        if word is None or gain < 1:
            break
        joined, covered = (*joined, *word.values), covered | stage.pool.meet(word)
        if len(joined) > 1:
            found.append(Condition("mentions", "", joined))
    return found


def _broadened(stage: Stage, conditions: tuple[Condition, ...]) -> list[Edit]:
    """Rules that differ from the conditions in one attribute's values, or in their words, and could take them in."""
    edits: list[Edit] = []
    for key, rule in stage.book.rules.items():
        if rule.verdict != stage.label or rule.inverted or rule.exception or len(rule.conditions) != len(conditions):
            continue
        others = [new for new in conditions if new not in rule.conditions]
        old = [condition for condition in rule.conditions if condition not in conditions]
        if len(others) != 1 or len(old) != 1 or old[0].attribute != others[0].attribute:
            continue
        kinds = {old[0].kind, others[0].kind}
        values = tuple(dict.fromkeys((*old[0].values, *others[0].values)))
        if len(values) == len(old[0].values):
            continue
        if kinds == {"mentions"} and len(values) <= MOST_WORDS:
            wider = replace(old[0], values=values)
        elif kinds <= {"is", "in"} and len(values) < len(stage.pool.world.values[old[0].attribute]):
            wider = Condition("in", old[0].attribute, values)
        else:
            continue
        changed = tuple(wider if condition == old[0] else condition for condition in rule.conditions)
        edits.append(("update", key, replace(rule, conditions=changed), conditions))
    return edits


def _narrowed(stage: Stage, key: str, rule: WorldRule) -> list[Edit]:
    """The rule with an exception, with one more condition, or with a value less: what lets wrong cases go."""
    edits: list[tuple[float, Edit]] = []
    decided = stage.decided(key)
    if not rule.inverted and not rule.exception and len(rule.conditions) < 3:
        own = {condition.attribute for condition in rule.conditions}
        shown = [stage.pool.facts[position] for position in stage.shown]
        values = dict.fromkeys(pair for each in shown for pair in each.values.items() if pair[0] in stage.pool.world.values)
        single = [Condition("is", *_pair(pair)) for pair in values if pair[0] not in own]
        single += [word for word in _words(stage, shown)[:SINGLES] if word not in rule.conditions]
        for condition in single:
            met = stage.pool.meet(condition)
            spared: Edit = ("update", key, replace(rule, exception=condition), (condition,))
            edits.append((stage.worth(decided & met), spared))
            if condition.attribute:
                tight: Edit = ("update", key, replace(rule, conditions=(*rule.conditions, condition)), (condition,))
                edits.append((stage.worth(decided & ~met), tight))
    for spot, condition in enumerate(rule.conditions):
        if condition.kind in ("in", "mentions") and len(condition.values) > 1:
            for value in condition.values:
                rest = tuple(v for v in condition.values if v != value)
                kind: Kind = "is" if condition.kind == "in" and len(rest) == 1 else condition.kind
                fewer = Condition(kind, condition.attribute, rest)
                gone = Condition("mentions" if condition.kind == "mentions" else "is", condition.attribute, (value,))
                changed = (*rule.conditions[:spot], fewer, *rule.conditions[spot + 1 :])
                less: Edit = ("update", key, replace(rule, conditions=changed), (gone,))
                edits.append((stage.worth(decided & ~stage.pool.meet(fewer)), less))
    return [edit for _, edit in sorted(edits, key=lambda pair: -pair[0])[: SHORTLIST // 2]]


def _pair(pair: tuple[str, str]) -> tuple[str, tuple[str, ...]]:
    return pair[0], (pair[1],)
