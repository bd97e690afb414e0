"""The plain form of a scorecard: one that gives all tickets the same verdicts and is easier to
read. Points are given for what a ticket has, limits are positive, a card of few conditions is a
list, and one that any so many of its conditions reach is a count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import reduce
from itertools import product
from operator import itemgetter, or_

from stageb.guidance.learning.compared_cards import drop_lines
from stageb.guidance.learning.material import DecisionList, Material, RuleSet
from stageb.guidance.learning.scorecards import Scorecard, find_distinct
from stageb.guidance.learning.terms import (
    COUNTED,
    MOST_COUNTED,
    Conjunction,
    Masks,
    add_guards,
    drop_guards,
    find_untold,
    hold_any,
    make_guard,
)
from stageb.guidance.rules.conditions import (
    AtLeast,
    Condition,
    Expression,
    Missing,
    conjoin,
    negate,
)
from stageb.guidance.words.types import Verdict

SPELT_OUT = 6  # conditions on a card that may be written as a list, at most


def find_opposites(masks: Masks, among: int) -> dict[Expression, Expression]:
    """Map conditions on a field to one that holds for all other tickets in ``among``, and names no
    more values."""
    found = dict(zip(*reversed(find_distinct(masks, among)), strict=True))
    return _match_opposites(found.values(), found, masks, among, gaps={})


def write_compared(
    cards: Sequence[Scorecard],
    default: Verdict,
    opposites: Mapping[Expression, Expression],
    material: Material,
    among: int,
) -> RuleSet | None:
    """Write compared cards as lists, where these say the same. None where no card has a condition,
    or where tickets that reach none would need another default: no headline names another
    label."""
    kept, last = drop_constant(cards, default)
    if not kept or last != default:
        return None
    rule_set = RuleSet(tuple(make_points_positive(card, opposites) for card in kept), default)
    return write_in_order(rule_set, material, among) or rule_set


def drop_needless(rule_set: RuleSet, material: Material, among: int) -> RuleSet:
    """Leave out the lines of compared cards without which all tickets in ``among`` have the same
    verdict: first those of few points, of equal ones those that came last. Word lists stay whole,
    since tickets to come mention other words of them."""
    cards, masks = rule_set.cards, material.masks
    *others, last = material.labelled
    # Without them a single card judges new tickets worse: by .10 +- .09 points in the mean of 98
    # fits of public tables and texts. Compared cards do not: .02 +- .06 better in 75.
    if not cards or len(others) == 1:
        return rule_set
    free = among & ~material.held & ~hold_any(masks, rule_set.lines)
    left = drop_lines(cards, last, masks, free)
    plain = write_compared(left, last, find_opposites(masks, free), material, among)
    return replace(plain, parts=(*rule_set.lists, *plain.parts)) if plain else rule_set


def make_points_positive(card: Scorecard, opposites: Mapping[Expression, Expression]) -> Scorecard:
    """Return the same card with points given for what a ticket has instead of points taken for the
    opposite; of both, only for that which has more."""
    points: dict[Conjunction, int] = {}
    least = card.least
    for line, score in card.points.items():
        opposite = opposites.get(line[0]) if score < 0 and len(line) == 1 else None
        if opposite:
            line, score = (opposite,), -score
            least += score
        points[line] = points.get(line, 0) + score
    for line in [line for line in points if len(line) == 1 and line[0] in opposites]:
        other = (opposites[line[0]],)
        if other in points:  # one of them holds, so a ticket has the lower ones anyway
            both = min(points[line], points[other])
            points[line], points[other], least = (
                points[line] - both,
                points[other] - both,
                least - both,
            )
    given = {line: score for line, score in points.items() if score}
    return replace(card, points=given, least=least)


def drop_constant(
    cards: Sequence[Scorecard], default: Verdict
) -> tuple[tuple[Scorecard, ...], Verdict]:
    """Return compared cards without those that have no condition, and the default with which the
    others give the same verdicts. No rule can say a card without a condition: all tickets are
    equally far above its limit. If they reach it, its label becomes the default, and the others'
    limits rise by as much. At a tie the earlier card decides, so the limits of those behind it rise
    by a point more, and they come first: where two cards are equally far above their new limits,
    such a one was further above its old one."""
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


def write_in_order(rule_set: RuleSet, material: Material, among: int) -> RuleSet | None:
    """Write compared cards that give points for one line each as lists in the order that decides:
    first the line that takes its card furthest above its limit. None for other cards, and where one
    that is reached without a point gives another default."""
    cards = rule_set.cards
    if not all(len(card.points) == 1 and min(card.points.values()) > 0 for card in cards):
        return None
    # how far each ticket is above its limit without any point, and with those of the line
    bases = [-card.least for card in cards]
    leads = [base + sum(card.points.values()) for base, card in zip(bases, cards, strict=True)]
    highest = max(bases, default=-1)
    first = bases.index(highest) if highest >= 0 else -1  # of no card, where none is reached
    last = cards[first].verdict if highest >= 0 else rule_set.default
    order = sorted(range(len(cards)), key=lambda place: -leads[place])
    telling = [place for place in order if (leads[place], -place) > (max(highest, -1), -first)]
    while telling and cards[telling[-1]].verdict == last:
        telling.pop()
    lists = (
        DecisionList(card.verdict, (add_guards(line, material.masks, material.gaps, among),))
        for card in map(cards.__getitem__, telling)
        for line in card.points
    )
    return RuleSet(tuple(lists), last) if telling and last == rule_set.default else None


def turn_points(
    card: Scorecard, other: Verdict, opposites: Mapping[Expression, Expression]
) -> RuleSet | None:
    """Return the same verdicts, for a card that a ticket without any point reaches, by a card of
    the ``other`` verdict. None where such a ticket does not reach the card."""
    if card.least > 0:
        return None
    points = {line: -points for line, points in card.points.items()}
    return RuleSet(
        (make_points_positive(Scorecard(other, points, 1 - card.least), opposites),), card.verdict
    )


def write_as_list(
    card: Scorecard, other: Verdict, material: Material, among: int
) -> RuleSet | None:
    """Write a card of few conditions as a list that says the same, if that is hardly longer. A
    condition that is unknown for a ticket gives it no points, just as a guarded one does not hold
    for it; a denied one would have to hold."""
    terms = [term for line in card.points for term in line]
    if not len(card.points) == len(terms) <= SPELT_OUT:
        return None

    def make(verdict: Verdict, lines: Sequence[Conjunction], default: Verdict) -> RuleSet:
        guarded = drop_guards(
            [add_guards(line, material.masks, material.gaps, among) for line in lines]
        )
        return RuleSet((DecisionList(verdict, guarded),), default)

    reached, missed = spell_out(
        card, material.masks, among, lambda term: not find_untold(term, material.gaps)
    )
    rule_sets = [make(card.verdict, reached, other), make(other, missed, card.verdict)]
    rule_set = min(
        (each for each in rule_sets if each.lines), key=lambda each: each.size, default=None
    )
    return rule_set if rule_set and rule_set.size <= len(terms) + 1 else None


def turn_list(rule_set: RuleSet, material: Material, among: int) -> RuleSet | None:
    """Return the same verdicts for a list, by lines of its default: "Pass if a is below 5. Pass if
    b is 0. Pass if b is missing." says "Fail if a is above 5 and b (if given) is 1.". None where
    that takes more conditions, or where a condition has no opposite that is as plain."""
    (part,), default, masks, gaps = rule_set.lists, rule_set.default, material.masks, material.gaps
    written = dict.fromkeys(term for line in part.lines for term in line)
    terms = [*dict.fromkeys(term.affirmed for term in written if not term.absent + term.present)]
    lacked = [name for name in gaps if any(name in term.fields for term in written)]
    if default is None or len(terms) + len(lacked) > SPELT_OUT:
        return None
    fields = {term.fields for term in terms}
    others = (term for term in masks.plain if term.fields in fields and not term.is_denied)
    found = {masks[term] & among: term for term in reversed([*others])}
    opposites = _match_opposites(terms, found, masks, among, gaps)
    held = {term: masks[term] for term in (*terms, *opposites.values())}
    held |= {negate(term): ~masks[term] & ~find_untold(term, gaps) for term in terms}
    for name in lacked:
        held |= {Missing(name): gaps[name], make_guard(name): ~gaps[name]}
    sides = [[Missing(name), make_guard(name)] for name in lacked]
    for term in terms:
        other = opposites.get(term, negate(term))
        sides.append([term, other] if term in opposites or other in written else [term])

    def is_listed(holding: Set[Expression]) -> bool:
        return any(holding >= {*line} for line in part.lines)

    _, missed = _cover_both(sides, held, is_listed, among)
    lines = drop_guards([add_guards(line, masks, gaps, among) for line in missed])
    turned = RuleSet((DecisionList(default, lines),), part.verdict)
    return turned if lines and turned.size <= rule_set.size else None


def write_as_count(card: Scorecard, other: Verdict, material: Material) -> RuleSet | None:
    """Write a card that any so many of its conditions reach, and no fewer do, as a count of these:
    of a field that some tickets lack, where it is given, since what is unknown gives no points."""
    terms = [term for line in card.points for term in line]
    points = sorted(card.points.values())
    if not len(points) == len(terms) <= MOST_COUNTED:
        return None
    if not all(each.needed and each.family in COUNTED and not each.parts for each in terms):
        return None
    for count in range(2, len(terms)):
        # not so where points are taken: one condition fewer would have more
        if sum(points[:count]) >= card.least > sum(points[1 - count :]):
            everyone = reduce(or_, material.labelled.values())
            parts = [add_guards((term,), material.masks, material.gaps, everyone) for term in terms]
            lines = ((AtLeast(count, tuple(map(conjoin, parts))),),)
            return RuleSet((DecisionList(card.verdict, lines),), other)
    return None


def spell_out(
    card: Scorecard, masks: Masks, among: int, deniable: Callable[[Expression], bool]
) -> list[list[Conjunction]]:
    """Write a card as two lists of lines: one holds exactly where a ticket reaches the card, the
    other where it does not. The card's lines must be of one term each. See ``_cover_both``."""
    points = {term: score for (term,), score in card.points.items()}
    held = {term: masks[term] for term in points}
    held |= {negate(term): ~masks[term] for term in points if deniable(term)}
    return _cover_both(
        [[term, negate(term)] if deniable(term) else [term] for term in points],
        held,
        lambda holding: sum(points[term] for term in holding if term in points) >= card.least,
        among,
    )


# Inside -------------------------------------------------------------------------------------------


def _match_opposites(
    terms: Iterable[Expression],
    found: Mapping[int, Expression],
    masks: Masks,
    among: int,
    gaps: Mapping[str, int],
) -> dict[Expression, Expression]:
    """Map the terms to their opposites for tickets that have the field: the same limit on its other
    side, the limit there in the same gap, or what is ``found`` of the other tickets. ``gaps`` are
    the tickets that lack a field."""
    opposites: dict[Expression, Expression] = {}
    for term in terms:
        if not isinstance(term, Condition):
            continue
        left, limit = among & ~masks[term] & ~find_untold(term, gaps), term.as_limit
        turned = (limit.turned, masks.scales.turn(limit)) if limit else ()
        for other in (*turned, found.get(left)):
            if (
                isinstance(other, Condition)
                and other.fields == term.fields
                and len(other.named) <= len(term.named)
                and masks[other] & among == left
            ):
                opposites[term] = other
                break
    return opposites


def _cover_both(
    sides: Sequence[Sequence[Expression]],
    held: Mapping[Expression, int],
    is_wanted: Callable[[Set[Expression]], bool],
    among: int,
) -> list[list[Conjunction]]:
    """Write two lists of lines: one holds exactly where the terms that hold are wanted, the other
    where they are not. A line has one term at most of each of the ``sides``, better the first;
    ``held`` are the tickets for which these and other terms hold. Lists are right of all
    combinations of the values that fields have in ``among``; nothing is asked of other values. Each
    is a cover by prime implicants (Quine, "The problem of simplifying truth functions", 1952),
    taken greedily. It is empty where it would need further terms."""
    shown = _combine_values(held, among)  # a bit for each in the masks below
    everything = (1 << len(shown)) - 1
    reached = sum(is_wanted(holding) << place for place, holding in enumerate(shown))
    # line, where it holds, how many terms are not the first of their side
    lines: list[tuple[Conjunction, int, int]] = [((), everything, 0)]
    for side in sides:
        literals = [
            (term, sum((term in holding) << place for place, holding in enumerate(shown)), number)
            for number, term in enumerate(side)
        ]
        lines += [
            ((*line, literal), where & mask, others + number)
            for line, where, others in lines
            for literal, mask, number in literals
        ]
    lines.sort(key=lambda line: (len(line[0]), line[2]))
    held_by = [(line, where) for line, where, _ in lines]
    return [_cover(held_by, side) for side in (reached, everything & ~reached)]


def _combine_values(held: Mapping[Expression, int], among: int) -> list[Set[Expression]]:
    """List the sets of terms that may hold together: those on a field as for one of the tickets in
    ``among``, in every combination with those on other fields."""
    of_fields = dict[object, list[tuple[Set[Expression], int]]]()
    for term, mask in held.items():
        name = term.fields or term.affirmed  # each word is by itself
        of_fields[name] = [
            (holding | side, part)
            for holding, where in of_fields.get(name, [(frozenset[Expression](), among)])
            for side, part in (({term}, where & mask), (frozenset(), where & ~mask))
            if part
        ]
    combined = (map(itemgetter(0), some) for some in product(*of_fields.values()))
    return [frozenset().union(*some) for some in combined]


def _cover(held: Iterable[tuple[Conjunction, int]], wanted: int) -> list[Conjunction]:
    """Choose lines that are ``held`` only where it is wanted and together everywhere there: each
    time the one that covers most of what is left for its size; in the end drop those that the
    others make needless. Empty where there are none."""
    inside = [(line, mask) for line, mask in held if mask and not mask & ~wanted]
    chosen: list[tuple[Conjunction, int]] = []
    left = wanted
    while left:
        inside = [each for each in inside if each[1] & left]
        if not inside:
            return []
        chosen.append(
            max(inside, key=lambda each: (each[1] & left).bit_count() / max(1, len(each[0])))
        )
        left &= ~chosen[-1][1]
    for each in reversed([*chosen]):
        others = [other for other in chosen if other is not each]
        if not wanted & ~reduce(or_, (mask for _, mask in others), 0):
            chosen = others
    return [line for line, _ in chosen]
