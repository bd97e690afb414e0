"""The tickets that teach a whole guidance at once, that guidance, and which tickets it judges
wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import inf, sqrt
from operator import or_
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stageb.guidance.learning.compared_cards import judge_compared
from stageb.guidance.learning.scorecards import Scorecard
from stageb.guidance.learning.terms import Conjunction, Masks, find_possible, hold_any, unpack
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.words.costs import Prices
from stageb.guidance.words.types import Verdict

DRAWS, SEED = 100, 2018  # bootstrap samples of tickets, which show what chance adds to the best

_Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Material:
    """Tickets to learn from, as bits of masks."""

    masks: Masks
    gaps: Mapping[str, int]  # field -> the tickets that lack it, for fields that some lack
    # the tickets of each label; the last label is for tickets that no rule speaks of
    labelled: Mapping[Verdict, int]
    wrong: int  # tickets that the present guidance judges wrong
    # the verdicts that its rules give, all of them for a rule that cannot be read
    verdicts: frozenset[Verdict]
    prices: Prices  # of judging a ticket wrong, by label
    named: frozenset[Expression] = frozenset()  # the terms that people's reasons name
    held: int = 0  # tickets that fixed rules decide before any learnt rule
    keeps: bool = False  # whether the present rules stay, as some are fixed; others join them
    groups: Sequence[int] = ()  # of several tickets that say the same or are kept together
    # the terms on words that tickets mention as they stand
    words: Masks = field(default_factory=lambda: Masks({}))
    pause: Callable[[], None] = lambda: None  # between small steps; what it raises ends learning

    def price(self, label: Verdict) -> float:
        """Return the cost of judging one of the label's tickets wrong."""
        return self.prices.get(label, 1.0)

    @property
    def dearest(self) -> float:
        """The cost of the dearest error."""
        return max(map(self.price, self.labelled))

    def find_judged(self, verdict: Verdict) -> int:
        """Find the tickets that have a verdict by the present guidance, where there are two
        verdicts."""
        return self.labelled[verdict] ^ self.wrong


@dataclass(frozen=True, slots=True)
class DecisionList:
    """Tickets for which one of the ``lines`` holds have ``verdict``."""

    verdict: Verdict
    lines: tuple[Conjunction, ...]

    @property
    def size(self) -> int:
        """Count its conditions; each condition that a count counts is one."""
        return sum(term.size for line in self.lines for term in line)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A guidance to be made: with two labels it has one part, with more, every label but
    ``default`` may have one."""

    # lists in the order that decides; behind them cards, which are compared
    parts: tuple[DecisionList | Scorecard, ...]
    # the verdict of tickets that no part speaks of; None: the present rules stay, and judge these
    default: Verdict | None

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of the present rules."""
        return self.default is not None

    @property
    def cards(self) -> tuple[Scorecard, ...]:
        """Its parts, where these are cards."""
        return tuple(part for part in self.parts if isinstance(part, Scorecard))

    @property
    def lists(self) -> tuple[DecisionList, ...]:
        """Its parts, where these are lists."""
        return tuple(part for part in self.parts if isinstance(part, DecisionList))

    @property
    def lines(self) -> tuple[Conjunction, ...]:
        """The lines of all its lists."""
        return tuple(line for part in self.lists for line in part.lines)

    @property
    def size(self) -> int:
        """The conditions of all its parts."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class MeasuredRuleSet(RuleSet):
    """A whole guidance, measured against the present one on tickets that did not teach it. What
    chance adds to the best of several is taken off, save from ``wrong``."""

    wrong: int  # the tickets that it judges wrong
    cost: float  # per ticket
    present: float  # per ticket, under the present guidance
    won: float  # share of tickets that it judges right and the present one wrong
    lost: float  # share of tickets that it judges wrong and the present one right
    z_score: float  # by how many standard errors it costs less


def find_undecided(rule_set: RuleSet, material: Material, among: int) -> int:
    """The tickets in ``among`` that code leaves open: a line of some list might hold but lacks a
    field, and no earlier list has decided."""
    terms = (term for line in rule_set.lines for term in line)
    # a count ("at least two of ...") is tested by its parts
    named = {each for term in terms for each in (term.conditions() if term.size > 1 else (term,))}
    possible = Masks({term: find_possible(term, material.masks, material.gaps) for term in named})
    undecided = 0
    for part in rule_set.lists:
        held = hold_any(material.masks, part.lines)
        undecided |= among & hold_any(possible, part.lines) & ~held
        among &= ~held
    return undecided


def judge_by_rule_set(rule_set: RuleSet, masks: Masks, among: int) -> dict[Verdict, int]:
    """The tickets in ``among`` that its parts decide, by verdict."""
    judged: dict[Verdict, int] = {}
    for part in rule_set.lists:
        judged[part.verdict] = among & hold_any(masks, part.lines)
        among &= ~judged[part.verdict]
    return {**judged, **judge_compared(rule_set.cards, masks, among)} if rule_set.cards else judged


def find_wrong(rule_set: RuleSet, material: Material, among: int) -> int:
    """Find the tickets in ``among`` that it judges wrong, or not at all: nobody knows what a model
    would say."""
    free = among & ~material.held
    judged = judge_by_rule_set(rule_set, material.masks, free)
    rest = ~sum(judged.values())
    right = rest & (
        ~material.wrong if rule_set.default is None else material.labelled[rule_set.default]
    )
    right = reduce(or_, (mask & material.labelled[label] for label, mask in judged.items()), right)
    return (
        free & ~right
        | among & material.held & material.wrong
        | find_undecided(rule_set, material, free)
    )


def find_cost(wrong: int, material: Material, power: int = 1) -> float:
    """The cost of judging these tickets wrong, with each price raised to ``power`` (2: for a
    variance)."""
    each = (
        (wrong & mask).bit_count() * material.price(label) ** power
        for label, mask in material.labelled.items()
    )
    return sum(each, 0.0)


def find_z_score(one: int, other: int, material: Material, among: int) -> float:
    """By how many standard errors ``one`` costs less than ``other``; both are sets of wrong
    tickets. A group counts as one case."""
    less, more = other & ~one, one & ~other

    def find_change(group: int) -> float:
        return find_cost(less & group, material) - find_cost(more & group, material)

    gained = find_change(among)
    single, joined = (
        (less | more) & ~reduce(or_, material.groups, 0),
        [*map(find_change, material.groups)],
    )
    variance = (
        find_cost(single, material, 2)
        + sum(each**2 for each in joined)
        - gained**2 / among.bit_count()
    )
    return gained / sqrt(variance) if variance > 0 else inf if gained > 0 else 0.0


class Optimism(NamedTuple):
    """By how much a chosen guidance seems better than it is, per ticket."""

    cost: float
    wrong: float  # share that is judged wrong


def find_optimism(
    tried: Sequence[int], taken: int, near: float, material: Material, among: int
) -> Optimism:
    """Return the optimism of the guidance that was ``taken``, the first one that costs at most
    ``near`` standard errors more than the best. Each guidance is given by the tickets in ``among``
    that it judges wrong out of fold: the same tickets choose it and measure it.

    Bootstrap bias-corrected cross-validation (Tsamardinos, Greasidou & Borboudakis, "Bootstrapping
    the out-of-sample predictions for efficient and accurate cross-validation", Machine Learning
    2018). Tickets are drawn anew, with replacement, those of a group together; the guidance that
    the drawn tickets would choose is measured on the tickets that were not drawn. It is compared
    there with the one that was taken, so that few draws will do.
    """
    guidances = [*dict.fromkeys(tried)]
    wrong = unpack(guidances, among).astype(np.float64)
    prices = np.zeros(wrong.shape[1])
    for label, mask in material.labelled.items():
        prices += material.price(label) * unpack([mask], among)[0]
    units = _number_units(material.groups, among)
    shares, costs = _add_up(wrong, units), _add_up(wrong * prices, units)
    sizes = np.bincount(units).astype(np.float64)
    draws = np.random.default_rng(SEED).integers(len(sizes), size=(DRAWS, len(sizes)))
    drawn = np.zeros(draws.shape)
    np.add.at(drawn, (np.arange(DRAWS)[:, None], draws), 1)
    drawn = drawn[(drawn == 0).any(axis=1)]  # where tickets are few, a draw may hold all of them
    if not len(drawn):
        return Optimism(0.0, 0.0)
    squares = costs * costs
    chosen = [_choose_first(costs, squares, times, near) for times in drawn]
    others = (drawn == 0).astype(np.float64)
    tickets = others @ sizes

    def measure(figures: _Numbers) -> float:
        there = others @ figures.T
        gaps = there[np.arange(len(chosen)), chosen] - there[:, guidances.index(taken)]
        return max(0.0, float((gaps / tickets).mean()))

    return Optimism(measure(costs), measure(shares))


def _choose_first(costs: _Numbers, squares: _Numbers, times: _Numbers, near: float) -> int:
    """Return the first row of ``costs`` whose total is within ``near`` standard errors of the
    least, where column i counts ``times[i]`` times. ``squares`` are the squares of the costs. See
    ``find_z_score``."""
    totals = costs @ times
    least = totals.argmin()
    behind, alone = totals - totals[least], squares @ times
    changed = alone + alone[least] - 2 * (costs @ (costs[least] * times))
    variances = np.maximum(changed - behind**2 / times.sum(), 0.0)
    return int((behind <= near * np.sqrt(variances)).argmax())


def _number_units(groups: Sequence[int], among: int) -> NDArray[np.int64]:
    """Return for each ticket in ``among`` the number of the unit it is drawn with, from 0 on."""
    owners = np.arange(among.bit_length())
    for group in groups:
        rest, first = group & among, (group & among).bit_length() - 1
        while rest:
            last = rest.bit_length() - 1
            owners[last] = first
            rest ^= 1 << last
    flags = unpack([among], (1 << among.bit_length()) - 1)[0]
    _, units = np.unique(owners[flags == 1], return_inverse=True)
    return np.asarray(units, np.int64)


def _add_up(figures: _Numbers, units: NDArray[np.int64]) -> _Numbers:
    """Sum each row by unit."""
    order = np.argsort(units, kind="stable")
    starts = np.flatnonzero(np.diff(units[order], prepend=-1))
    return np.asarray(np.add.reduceat(figures[:, order], starts, axis=1))
