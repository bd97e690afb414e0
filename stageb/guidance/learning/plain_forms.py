"""The plain form of a scorecard: what says the same of all tickets in words that are easier to
read. Points are given for what a ticket has, limits are positive, and a card of few conditions is a
list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from operator import or_

from stageb.guidance.learning.material import DecisionList, Material, Whole
from stageb.guidance.learning.scorecards import Scorecard, find_distinct
from stageb.guidance.learning.terms import Conjunction, Masks, drop_guards, find_gap, guard
from stageb.guidance.rules.conditions import Expression, negate
from stageb.guidance.words.types import Verdict

SPELT_OUT = 6  # conditions of a card that may be written as a list


def find_opposites(masks: Masks, among: int) -> dict[Expression, Expression]:
    """Of conditions on a field those that hold for all the other tickets ``among`` these, and name
    no more values."""
    found = dict(zip(*reversed(find_distinct(masks, among)), strict=True))
    opposites: dict[Expression, Expression] = {}
    for held, term in found.items():
        limit = term.as_limit
        for other in (limit.turned if limit else None, found.get(among & ~held)):
            if not other or other.fields != term.fields or len(other.named) > len(term.named):
                continue
            if masks[other] & among == among & ~held:
                opposites[term] = other
                break
    return opposites


def affirm(card: Scorecard, opposites: Mapping[Expression, Expression]) -> Scorecard:
    """The same card with points for what a ticket has in the place of points taken for the
    opposite."""
    points: dict[Conjunction, int] = {}
    least = card.least
    for line, price in card.points.items():
        opposite = opposites.get(line[0]) if price < 0 and len(line) == 1 else None
        if opposite:
            line, price = (opposite,), -price
            least += price
        points[line] = points.get(line, 0) + price
    return replace(card, points=points, least=least)


def drop_constant(
    cards: Sequence[Scorecard], default: Verdict
) -> tuple[tuple[Scorecard, ...], Verdict]:
    """The same verdicts of compared cards without those that have no condition, which no rule says:
    what is equally far above its limit for every ticket is the default of the others. Those after
    it had to be further above than it: they come first, now that a point more is asked of them."""
    constant = ((card.least, place) for place, card in enumerate(cards) if not card.points)
    least, first = min(constant, default=(1, 0))
    if least > 0:  # never reached
        return tuple(card for card in cards if card.points), default
    others = (
        replace(card, least=card.least - least + more)
        for some, more in ((cards[first:], 1), (cards[:first], 0))
        for card in some
        if card.points
    )
    return tuple(others), cards[first].verdict


def turn_points(
    card: Scorecard, other: Verdict, opposites: Mapping[Expression, Expression]
) -> Whole | None:
    """The same verdicts where a ticket without any point reaches the card: by what it must have for
    the ``other`` one. None where it does not."""
    if card.least > 0:
        return None
    points = {line: -points for line, points in card.points.items()}
    return Whole((affirm(Scorecard(other, points, 1 - card.least), opposites),), card.verdict)


def write_as_list(card: Scorecard, other: Verdict, material: Material, among: int) -> Whole | None:
    """A card of few conditions as a list that says the same, where that is hardly longer. What a
    ticket does not tell gives it no points, as what is guarded does not hold for it; what is denied
    would have to hold."""
    terms = [term for line in card.points for term in line]
    if not len(card.points) == len(terms) <= SPELT_OUT:
        return None

    def make(verdict: Verdict, lines: Sequence[Conjunction], default: Verdict) -> Whole:
        guarded = drop_guards([guard(line, material.masks, material.gaps, among) for line in lines])
        return Whole((DecisionList(verdict, guarded),), default)

    reached, missed = spell_out(
        card, material.masks, among, lambda term: not find_gap(term, material.gaps)
    )
    wholes = [make(card.verdict, reached, other), make(other, missed, card.verdict)]
    whole = min((each for each in wholes if each.lines), key=lambda each: each.size, default=None)
    return whole if whole and whole.size <= len(terms) + 1 else None


def spell_out(
    card: Scorecard, masks: Masks, among: int, deniable: Callable[[Expression], bool]
) -> list[list[Conjunction]]:
    """The lines of which one holds exactly where a ticket reaches the card, and those where it does
    not, as far as fields have values like those of tickets ``among`` these, in whatever
    combination: some of the prime implicants, the shortest first (Quine, "The problem of
    simplifying truth functions", 1952; nothing is asked of other values). Empty where terms would
    have to be denied that are not ``deniable``. The card's lines must be of one term each."""
    terms = [term for (term,) in card.points]
    shown = _combine_values(terms, masks, among)  # each is a bit of what follows
    everything = (1 << len(shown)) - 1
    sums = (sum(card.points[term,] for term in terms if values[term]) for values in shown)
    reached = sum((total >= card.least) << place for place, total in enumerate(sums))
    holds = {
        term: sum(values[term] << place for place, values in enumerate(shown)) for term in terms
    }
    literals = {term: {term: holds[term]} for term in terms}
    for term in filter(deniable, terms):
        literals[term][negate(term)] = everything & ~holds[term]
    held: dict[Conjunction, int] = {(): everything}
    for term in terms:
        held |= {
            (*line, literal): mask & side
            for line, mask in held.items()
            for literal, side in literals[term].items()
        }
    # What is shorter comes first, and denies less.
    lines = sorted(held, key=lambda line: (len(line), sum(term not in holds for term in line)))
    return [
        _cover({line: held[line] for line in lines}, side)
        for side in (reached, everything & ~reached)
    ]


# Inside -------------------------------------------------------------------------------------------


def _combine_values(
    terms: Sequence[Expression], masks: Masks, among: int
) -> list[dict[Expression, bool]]:
    """Which of the terms may hold together: those of a field as for one of the tickets ``among``
    these, in every combination with those of other fields."""
    of_fields = dict[object, list[tuple[dict[Expression, bool], int]]]()
    for term in terms:
        name = term.fields or term  # each word is by itself
        of_fields[name] = [
            ({**values, term: is_held}, part)
            for values, mask in of_fields.get(name, [({}, among)])
            for is_held, part in ((True, mask & masks[term]), (False, mask & ~masks[term]))
            if part
        ]
    return [
        {term: value for values, _ in some for term, value in values.items()}
        for some in product(*of_fields.values())
    ]


def _cover(held: Mapping[Conjunction, int], wanted: int) -> list[Conjunction]:
    """Some of the lines that are ``held`` where it is wanted and nowhere else, and together
    everywhere there: each time the one that covers most of what is left for its size, and in the
    end none that the others make needless. Empty where there are none."""
    inside = {line: mask for line, mask in held.items() if mask and not mask & ~wanted}
    chosen: list[Conjunction] = []
    left = wanted
    while left:
        shares = {
            line: (mask & left).bit_count() / max(1, len(line)) for line, mask in inside.items()
        }
        best = max(shares, key=shares.__getitem__, default=None)
        if best is None or not shares[best]:
            return []
        chosen.append(best)
        left &= ~held[best]
    for line in reversed([*chosen]):
        others = [other for other in chosen if other != line]
        if not wanted & ~reduce(or_, (held[other] for other in others), 0):
            chosen = others
    return chosen
