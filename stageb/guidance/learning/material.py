"""What is learnt at once: the tickets that teach it, a whole guidance, and which tickets that judges wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import inf, sqrt
from operator import or_

from stageb.guidance.learning.scorecards import Cards, Scorecard, judge_compared
from stageb.guidance.learning.terms import Conjunction, Masks, find_gap, hold_any
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.words.types import Verdict


@dataclass(frozen=True, slots=True)
class Material:
    """What is learnt from: tickets as bits of masks."""

    masks: Masks
    gaps: Mapping[str, int]  # field -> the tickets that lack it, where some do
    fails: int  # labelled fail
    judged_fail: int  # by the present guidance
    verdicts: frozenset[Verdict]  # that its rules give, as far as they can be read; none where it has no rule
    prices: tuple[float, float]  # of a ticket labelled fail that passes, and of one labelled pass that fails
    named: frozenset[Expression] = frozenset()  # by reasons of people
    # Of a mission with labels of its own, the tickets of each, that of tickets which no rule speaks of last; ``fails`` are
    # those of the others then.
    labelled: Mapping[Verdict, int] = field(default_factory=dict)
    held: int = 0  # tickets of such a mission that fixed rules speak of, before all that is learnt
    keeps: bool = False  # the present rules, as some are fixed: others stand beside them
    groups: Sequence[int] = ()  # of several tickets that say the same, or are kept together
    words: Masks = field(default_factory=lambda: Masks({}))  # of those that tickets mention as they stand
    pause: Callable[[], None] = lambda: None  # between small steps; what it raises ends learning


@dataclass(frozen=True, slots=True)
class Whole:
    """What to make of the guidance: lines or a card, with the present rules or in their place."""

    verdict: Verdict  # of the tickets for which a line holds, or that reach the card; of ``lists``: of none
    replaces: bool  # the present rules: then a ticket without a line has the other verdict
    lines: tuple[Conjunction, ...] = ()
    card: Scorecard | None = None
    lists: tuple[Whole, ...] = ()  # of labels of its own: the lines of each, where those before it do not hold; or the cards
    cost: float = 0.0  # of a ticket, estimated on tickets that did not teach it
    present: float = 0.0  # the same of the present guidance
    won: float = 0.0  # share of tickets that it judges better than the present guidance, estimated likewise
    lost: float = 0.0  # that it judges worse
    gain: float = 0.0  # what it costs less than the present guidance, in standard errors, estimated likewise
    wrong: int = 0  # the tickets that it judges wrong, estimated likewise

    @property
    def cards(self) -> Cards:
        """By label, where there are cards."""
        return {each.verdict: each.card for each in (self, *self.lists) if each.card}

    @property
    def size(self) -> int:
        """Its conditions, in all its lines and cards; each that a count counts is one, and each word list."""
        lines = (line for each in (self, *self.lists) for line in each.lines)
        counted = sum(term.size for line in lines for term in line)
        return counted + sum(card.size for card in self.cards.values())


def find_undecided(whole: Whole, material: Material, among: int) -> int:
    """The tickets ``among`` these of which lines cannot tell whether one holds, so that code does not judge them."""
    terms = (term for line in whole.lines for term in line)
    named = {each for term in terms for each in (term.conditions() if term.size > 1 else (term,))}  # of counts, what counts
    possible = {term: material.masks[term] | find_gap(term, material.gaps) for term in named}
    return among & hold_any(Masks(possible), whole.lines) & ~hold_any(material.masks, whole.lines)


def judge_whole(whole: Whole, material: Material, among: int) -> int:
    """The tickets ``among`` these that fail under it."""
    held = hold_any(material.masks, whole.lines)
    if whole.card:
        held = judge_compared(whole.cards, material.masks, among)[whole.verdict]
    before = 0 if whole.verdict == "fail" else among
    if not whole.replaces:
        before = material.judged_fail
    return among & (before | held if whole.verdict == "fail" else before & ~held)


def find_wrong(whole: Whole, material: Material, among: int) -> int:
    """The tickets ``among`` these that it judges wrong, or not at all: nobody knows what a model would say."""
    if whole.cards and material.labelled:
        present, free = material.fails ^ material.judged_fail, among & ~material.held
        judged = judge_compared(whole.cards, material.masks, free)
        *_, default = material.labelled
        judged[default] = judged.get(default, 0) | free & ~sum(judged.values())
        right = sum(mask & material.labelled[label] for label, mask in judged.items())
        return free & ~right | among & material.held & present
    return among & (judge_whole(whole, material, among) ^ material.fails) | find_undecided(whole, material, among)


def find_cost(wrong: int, material: Material) -> float:
    missed = (wrong & material.fails).bit_count()
    return material.prices[0] * missed + material.prices[1] * (wrong.bit_count() - missed)


def find_gain(one: int, other: int, material: Material, among: int) -> float:
    """How much less one set of wrong tickets costs than the other, in standard errors of that difference; tickets of a group
    are as one."""
    less, more = other & ~one, one & ~other

    def find_change(group: int) -> float:
        return find_cost(less & group, material) - find_cost(more & group, material)

    gained = find_change(among)
    squares = replace(material, prices=(material.prices[0] ** 2, material.prices[1] ** 2))
    single, joined = (less | more) & ~reduce(or_, material.groups, 0), [*map(find_change, material.groups)]
    variance = find_cost(single, squares) + sum(each**2 for each in joined) - gained**2 / among.bit_count()
    return gained / sqrt(variance) if variance > 0 else inf if gained > 0 else 0.0
