"""Gathers the material that code learns from: masks of what train tickets say, and how they are
judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stageb.guidance.learning.material import Material
from stageb.guidance.learning.terms import find_gaps, find_terms, list_guards
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules.candidates import SearchSpace, reading
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.conditions.words import find_whole_words
from stageb.guidance.rules.evidence import find_named
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.limits import to_mask
from stageb.guidance.rules.prompts import Case
from stageb.guidance.tickets.groups import Group
from stageb.guidance.words.costs import Prices
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Verdict


def gather_material(
    present: Guidance,
    cases: Sequence[Case],
    places: dict[int, int],
    groups: Sequence[Group],
    tools: Tools,
) -> Material:
    """Return the tickets of ``cases``, judged under the ``present`` guidance, as bits in their
    order. ``places`` maps positions to these bits; ``groups`` of positions are kept together."""
    config, labels = tools.config, present.labels
    space = SearchSpace(
        config.reflection.arithmetic, wide=True, comparable=frozenset(config.columns.comparable)
    )
    labelled = {
        label: to_mask(place for place, case in enumerate(cases) if case.ticket.label == label)
        for label in (*labels[1:], labels[0])
    }
    wrong = to_mask(place for place, case in enumerate(cases) if not case.right)
    readings = [reading(case.ticket) for case in cases]
    masks = find_terms(readings, space)
    gaps = find_gaps(masks, readings)
    masks = masks.plus(list_guards(gaps, (1 << len(readings)) - 1))
    plain = {term: mask for term, mask in masks.items() if not term.is_denied}
    whole_words = find_whole_words(readings)
    return Material(
        masks,
        gaps,
        labelled,
        wrong,
        frozenset(_list_verdicts(present, tools)),
        _find_prices(tools),
        named=find_named(plain, [case.ticket.reason for case in cases]),
        held=to_mask(_find_held(present, places, tools)) if has_labels(labels) else 0,
        keeps=any(rule.is_fixed for rule in present.rules),
        groups=[
            to_mask(places[position] for position in group) for group in groups if len(group) > 1
        ],
        words=masks.keep(term for term in masks if term.word in whole_words),
    )


def _list_verdicts(present: Guidance, tools: Tools) -> Iterator[Verdict]:
    """Yield the verdicts that rules give: all labels for a rule that cannot be read."""
    for rule in read_rules(present, tools.vocabulary, tools.words).each:
        yield from present.labels if isinstance(rule.code, OutOfReach) else (rule.code.verdict,)


def _find_prices(tools: Tools) -> Prices:
    """Return the cost of errors by label; a ticket that was drawn by price speaks for others."""
    # at which a ticket of the cheaper label was drawn
    chance = min(tools.splits.inclusion_prob.values(), default=1.0)
    dearest = max(tools.prices.values())
    return {
        label: price if price == dearest else price / chance
        for label, price in tools.prices.items()
    }


def _find_held(present: Guidance, places: dict[int, int], tools: Tools) -> Iterator[int]:
    """Yield the places of tickets that fixed rules decide, or may decide."""
    fixed = (rule for rule in present.rules if rule.is_fixed and rule.key != HEADLINE_KEY)
    rulings = tools.rule_on(replace(present, rules=(*present.rules[:1], *fixed)), [*places])
    return (
        place
        for place, ruling in zip(places.values(), rulings, strict=True)
        if ruling.rule != HEADLINE_KEY
    )
