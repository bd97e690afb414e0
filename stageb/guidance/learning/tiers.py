"""The tiers of rule sets that code tries, from the plainest on, and their learners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from typing import NamedTuple

from stageb.guidance.learning.compared_cards import grow_compared
from stageb.guidance.learning.lists import FULL, Demands, learn_lines, refine
from stageb.guidance.learning.material import DecisionList, Material, RuleSet
from stageb.guidance.learning.plain_forms import (
    find_opposites,
    make_points_positive,
    turn_points,
    write_as_count,
    write_as_list,
    write_compared,
)
from stageb.guidance.learning.scorecards import Listing, grow_cards
from stageb.guidance.learning.terms import Masks, add_guards, drop_guards, find_counts, hold_any
from stageb.guidance.rules.conditions import Expression
from stageb.guidance.rules.value_types import ANY
from stageb.guidance.words.labels import Verdict, rank

# standard errors by which a tier must be better than a plainer one: any, and one that compares two
# fields
MIN_Z_SCORE, MIN_Z_COMPARED = 0.5, 2.0


# missed tickets and false ones of a line that stands for a label, as a share of the label's tickets
MAX_ERROR_SHARE = 0.01


# learns from the tickets of a mask: one guidance for each size, the smallest first
Learner = Callable[[Material, int], "list[RuleSet]"]
_FindCounts = Callable[[int, int], dict[Expression, int]]
"""Finds the counts that tell some tickets from others."""

Polarity = tuple[Verdict, Verdict | None]
"""The verdict of lines, and that of tickets for which no line holds; None: the present rules stay,
and judge these."""


class Tier(NamedTuple):
    """Learners of rule sets that are equally hard to follow."""

    min_z_score: float  # standard errors by which it must be better than a plainer tier
    learners: Sequence[Learner]


def list_tiers(
    material: Material,
    polarities: Sequence[Polarity],
    cards: Sequence[Tier] = (),
    listed: Iterable[Tier] = (),
) -> Iterator[Tier]:
    """Yield lists of lines from the plainest on; cards come before those that compare or compute
    with two fields. Of the tiers of ``listed`` words, the first comes before counts, since it
    has fewer conditions than any."""
    of_words = iter(listed)
    # shared by all learners that learn from the same tickets
    counts = cache(partial(find_counts, material.masks, material.gaps))
    plain = material.masks.plain
    # People's reasons name few terms, so few of them seem good by chance.
    named = material.masks.keep(
        term
        for term in material.masks
        if (term.parts[0] if term.is_denied else term) in material.named
    )

    def learners(masks: Masks, sure: float, find: _FindCounts | None = None) -> list[Learner]:
        return [learn_lists(*polarity, Demands(sure=sure), masks, find) for polarity in polarities]

    yield Tier(0.0, [*(learners(named, FULL.sure) if named else []), *learners(plain, FULL.sure)])
    yield Tier(MIN_Z_SCORE, learners(plain, 0.0))
    yield from islice(of_words, 1)
    yield Tier(MIN_Z_SCORE, [*learners(plain, FULL.sure, counts), *learners(plain, 0.0, counts)])
    yield from cards
    yield from of_words
    if len(plain) < len(material.masks):
        masks = material.masks
        yield Tier(
            MIN_Z_COMPARED,
            [
                *learners(masks, FULL.sure),
                *learners(masks, 0.0),
                *learners(masks, FULL.sure, counts),
            ],
        )


def find_polarities(material: Material) -> list[Polarity]:
    """List the verdicts that lines may have, where there are two."""
    one, other = material.labelled
    instead: list[Polarity] = [(one, other), (other, one)]
    if not material.verdicts:  # the headline alone: it says the same of all tickets
        return [
            (verdict, default if material.find_judged(verdict) else None)
            for verdict, default in instead
        ]
    first = min(map(rank, material.verdicts))  # a rule behind it would change no verdict
    added: list[Polarity] = [(verdict, None) for verdict in (one, other) if rank(verdict) <= first]
    return added if material.keeps else [*added, *instead]


def learn_lists(
    verdict: Verdict,
    default: Verdict | None,
    demands: Demands,
    masks: Masks,
    find: _FindCounts | None,
) -> Learner:
    """Make the kind that learns lists of lines with a verdict, beside the present rules or in their
    place; with the counts that ``find`` finds, if it is given."""

    def learn(material: Material, among: int) -> list[RuleSet]:
        # Beside the present rules, nothing changes for tickets that have the verdict already.
        there = among if default is not None else among & ~material.find_judged(verdict)
        sides = {label: mask & there for label, mask in material.labelled.items()}
        counts = find(*sides.values()) if find else {}
        if find and not counts:
            return []
        wanted, ((other, negatives),) = sides.pop(verdict), sides.items()
        least = material.price(other) / (material.price(verdict) + material.price(other))
        known = masks.plus(counts)
        lines = learn_lines(known, wanted, negatives, least, demands=demands)
        found = [
            refine(lines[:size], known, wanted, negatives, least)
            for size in range(1, len(lines) + 1)
        ]
        guarded = [
            drop_guards([add_guards(line, material.masks, material.gaps, among) for line in lines])
            for lines in found
        ]
        return [RuleSet((DecisionList(verdict, lines),), default) for lines in guarded]

    return learn


def learn_cards(
    listing: Listing | None, most_lines: int, material: Material, among: int
) -> list[RuleSet]:
    """Learn cards of two labels, one for each size: as a list, a count or a card of the other
    verdict, where that says the same more plainly."""
    cards = grow_cards(
        _find_scored(material, listing, most_lines),
        material.labelled,
        among,
        material.prices,
        listing,
        most_lines,
    )
    _, other = material.labelled
    opposites = find_opposites(material.masks, among)
    cards = [make_points_positive(card, opposites) for card in cards]
    cards = [card for card in cards if card.points]
    if listing:
        return [RuleSet((card,), other) for card in cards]
    return [
        write_as_list(card, other, material, among)
        or write_as_count(card, other, material)
        or turn_points(card, other, opposites)
        or RuleSet((card,), other)
        for card in cards
    ]


def _find_scored(material: Material, listing: Listing | None, most_lines: int) -> Masks:
    """Choose the terms that may have points: words alone where no line is wanted beside lists; and
    beside lists no stem, which a reader would have to complete."""
    if not most_lines:
        return material.words
    masks = material.masks.unguarded
    return masks.keep(term for term in masks if not term.word.endswith(ANY)) if listing else masks


def learn_compared(
    paired: int, listing: Listing | None, most_lines: int, material: Material, among: int
) -> list[RuleSet]:
    """Learn cards of labels, which are compared. A label that one line tells has that line before
    them, and no card."""
    masks = _find_scored(material, listing, most_lines)
    free = among & ~material.held
    lists = _tell_by_lines(material, free)
    told = {part.verdict for part in lists}
    free &= ~hold_any(material.masks, [line for part in lists for line in part.lines])
    labelled = {label: mask for label, mask in material.labelled.items() if label not in told}
    grown = grow_compared(masks, labelled, free, most_lines, paired, listing)
    opposites = find_opposites(masks, free)
    *_, last = material.labelled
    found = list[RuleSet]()
    for cards in grown:
        if plain := write_compared(cards, last, opposites, material, among):
            found.append(replace(plain, parts=(*lists, *plain.parts)))
    return found


def _tell_by_lines(material: Material, among: int) -> list[DecisionList]:
    """Find for each label but the last a line that holds for its tickets in ``among`` and, with few
    exceptions, for no others; nothing where cards would have fewer than two labels to compare."""
    *others, _ = material.labelled
    found: list[DecisionList] = []
    for label in others:
        wanted = material.labelled[label] & among
        lines = learn_lines(material.masks.plain, wanted, among & ~wanted, 0.5, most=1)
        lines = refine(lines, material.masks.plain, wanted, among & ~wanted, 0.5)
        astray = (hold_any(material.masks, lines) & among) ^ wanted
        if lines and astray.bit_count() <= MAX_ERROR_SHARE * wanted.bit_count():
            guarded = [add_guards(line, material.masks, material.gaps, among) for line in lines]
            found.append(DecisionList(label, tuple(guarded)))
            among &= ~hold_any(material.masks, lines)
    return found if len(found) < len(others) else []
