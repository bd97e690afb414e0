"""The forms of guidance that code tries, and what learns each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import NamedTuple

from stageb.guidance.learning.lists import FULL, Demands, cover, refine
from stageb.guidance.learning.material import Material, Whole
from stageb.guidance.learning.scorecards import Listing, Scorecard, grow_cards, grow_compared
from stageb.guidance.learning.terms import Masks, drop_guards, find_counts, find_gap, guard
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.words.types import Verdict

GAIN, UNLIKE = 0.5, 2.0  # standard errors by which what is harder to follow must be better; comparisons of two fields
SPELT_OUT = 5  # conditions of a card that may be written as a list


Kind = Callable[[Material, int], "list[Whole]"]  # what tickets of a mask teach: one guidance a size, the smallest first
_FindCounts = Callable[[int, int], dict[Expression, int]]
"""The counts that tell some tickets that fail from some that pass."""


class Form(NamedTuple):
    """Kinds of guidance that are equally hard to follow."""

    enough: float  # standard errors by which it must be better than what is plainer
    kinds: Sequence[Kind]


def list_forms(
    material: Material, ways: Sequence[tuple[Verdict, bool]], cards: Sequence[Form] = (), listed: Iterable[Form] = ()
) -> Iterator[Form]:
    """Lists of lines from the plainest on; cards before those that compare or compute with two fields. Of forms that are
    ``listed`` words the first comes before counts, since it has fewer conditions than any."""
    of_words = iter(listed)
    counts = cache(partial(find_counts, material.masks, material.gaps))  # for all kinds that learn from the same tickets
    plain = material.masks.plain
    # Of so few candidates as reasons of people name, chance brings fewer.
    named = material.masks.keep(
        term for term in material.masks if (term.parts[0] if term.is_denied else term) in material.named
    )

    def kinds(masks: Masks, sure: float, find: _FindCounts | None = None) -> list[Kind]:
        return [learn_lists(*way, Demands(sure=sure), masks, find) for way in ways]

    yield Form(0.0, [*(kinds(named, FULL.sure) if named else []), *kinds(plain, FULL.sure)])
    yield Form(GAIN, kinds(plain, 0.0))
    yield from islice(of_words, 1)
    yield Form(GAIN, [*kinds(plain, FULL.sure, counts), *kinds(plain, 0.0, counts)])
    yield from cards
    yield from of_words
    if len(plain) < len(material.masks):
        masks = material.masks
        yield Form(UNLIKE, [*kinds(masks, FULL.sure), *kinds(masks, 0.0), *kinds(masks, FULL.sure, counts)])


def find_ways(material: Material) -> list[tuple[Verdict, bool]]:
    """Verdicts of lines, and whether they replace the present rules."""
    if not material.verdicts:  # the headline alone: of all tickets it says the same
        return [("fail", bool(material.judged_fail)), ("pass", not material.judged_fail)]
    # A ticket that one rule passes no other can fail.
    added = [(each, False) for each in ("fail", "pass") if each == "pass" or "pass" not in material.verdicts]
    return added if material.keeps else [*added, ("fail", True), ("pass", True)]


def learn_lists(verdict: Verdict, replaces: bool, demands: Demands, masks: Masks, find: _FindCounts | None) -> Kind:
    """What learns lists of lines with a verdict, beside the present rules or in their place; with the counts that ``find``
    finds, or else none."""

    def learn(material: Material, among: int) -> list[Whole]:
        fails, passes = material.fails & among, among & ~material.fails
        missed, alarm = material.prices
        if not replaces:  # of the others nothing changes
            there = among & (~material.judged_fail if verdict == "fail" else material.judged_fail)
            fails, passes = fails & there, passes & there
        wanted, spared = (fails, passes) if verdict == "fail" else (passes, fails)
        least = (alarm if verdict == "fail" else missed) / (missed + alarm)
        counts = find(fails, passes) if find and fails and passes else {}
        if find and not counts:
            return []
        known = masks.plus(counts)
        lines = cover(known, wanted, spared, least, demands=demands)
        found = [refine(lines[:size], known, wanted, spared, least) for size in range(1, len(lines) + 1)]
        guarded = [drop_guards([guard(line, material.masks, material.gaps, among) for line in lines]) for lines in found]
        return [Whole(verdict, replaces, lines) for lines in guarded]

    return learn


def learn_cards(listing: Listing | None, longest: int, material: Material, among: int) -> list[Whole]:
    masks = material.masks.unguarded if longest else material.words
    cards = grow_cards(masks, material.fails & among, among & ~material.fails, material.prices, listing, longest)
    if listing:
        return [Whole("fail", True, card=card) for card in cards]
    return [_spell_out(card, material) or _pass_by_points(card) or Whole("fail", True, card=card) for card in cards]


def _spell_out(card: Scorecard, material: Material) -> Whole | None:
    """A card of few conditions as a list that says the same, where that is hardly longer."""
    terms = [term for line in card.points for term in line]
    if not len(card.points) == len(terms) <= SPELT_OUT or any(find_gap(term, material.gaps) for term in terms):
        return None
    sides = zip(("fail", "pass"), card.spell_out(), strict=True)
    whole = min((Whole(verdict, True, tuple(lines)) for verdict, lines in sides), key=lambda each: each.size)
    return whole if whole.lines and whole.size <= len(terms) + 1 else None


def _pass_by_points(card: Scorecard) -> Whole | None:
    """The same verdicts where a ticket without any point fails: by what it must have to pass. None where it passes."""
    points = {line: -points for line, points in card.points.items()}
    return Whole("pass", True, card=Scorecard(points, 1 - card.least)) if card.least <= 0 else None


def learn_compared(paired: int, listing: Listing | None, longest: int, material: Material, among: int) -> list[Whole]:
    masks = material.masks.unguarded if longest else material.words
    grown = grow_compared(masks, material.labelled, among & ~material.held, longest, paired, listing)
    each = [tuple(Whole(label, False, card=card) for label, card in cards.items()) for cards in grown]
    return [Whole("", bool(material.verdicts), lists=lists) for lists in each if lists]
