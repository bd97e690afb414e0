"""Chooses the train tickets that a guidance shows to the model, by code, from labelled tickets that
reflection may see.

Instruct models that read rules alone judge like a coin. Shown a ticket for each rule, with its
verdict, and as many that no rule speaks of, they apply the rules. A rule's ticket is one whose
label the rule as code gives; those that the model judges wrong come first. Where no rule speaks
yet, tickets of all labels are shown, and stay until rules need their room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.judge import make_counters, read_rules
from stageb.guidance.rules.prompts import Case, Words, demonstration_text
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import find_deciding
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import HEADLINE_KEY, Demonstration, Guidance, Verdict

# demonstrations with nothing but a label, at most; at most half of the tickets, too: the others
# tell how the labels are read
BY_LABEL = 32
BY_RULES = 32  # demonstrations of all rules together: equally many for each, at least one
LEAST = 4  # demonstrations that no rule speaks of, at least, where there are rules
SHARE = 1 / 6  # of the room that one demonstration may take, at most


def demonstrate(
    guidance: Guidance,
    cases: Sequence[Case],
    vocabulary: Vocabulary,
    words: Words,
    count_tokens: Callable[[str], int],
    room: int,
) -> Guidance:
    """Return ``guidance`` with demonstrations for all of its rules, as far as ``cases`` has some
    and ``room`` tokens hold them. Demonstrations that still hold stay, but those that only tell a
    label make room for any of the others."""
    kept = [*guidance.shown]
    shown = {each.source for each in kept}
    ordered = sorted(
        (case for case in cases if case.ticket.key not in shown), key=lambda case: case.right
    )
    found = {each.source: each for each in _find_decided(guidance, ordered, vocabulary, words)}
    rules = [rule.key for rule in find_deciding(guidance.rules)]
    counts = Counter(each.rule for each in kept)
    each_rule = -(-BY_RULES // max(1, len(rules)))
    for key in rules:
        kept += [each for each in found.values() if each.rule == key][
            : max(0, each_rule - counts[key])
        ]
    wanted = max(LEAST, sum(each.rule in rules for each in kept)) if rules else 0
    kept += [each for each in found.values() if each.rule == HEADLINE_KEY][
        : max(0, wanted - counts[HEADLINE_KEY])
    ]
    if not rules and not kept:
        each_label = [
            [each for each in found.values() if each.verdict == label] for label in guidance.labels
        ]
        turns = (
            zip_longest(*each_label)
            if has_labels(guidance.labels)
            else zip(*each_label, strict=False)
        )
        kept = [replace(each, rule="", text="") for turn in turns for each in turn if each]
        kept = kept[: min(BY_LABEL, len(cases) // 2)]
    cost = {each.source: count_tokens(demonstration_text(each, words)) for each in kept}
    kept = [each for each in kept if cost[each.source] <= room * SHARE]
    by_label = [each for each in kept if not each.rule]
    unspoken, parts = [each for each in kept if each.rule == HEADLINE_KEY], max(1, len(rules))
    of_rules = [[each for each in kept if each.rule == key] for key in rules]
    # where room is short, each kind gets some of it
    by_turn = zip_longest(*of_rules, *(unspoken[part::parts] for part in range(parts)))
    kept = [each for turn in by_turn for each in turn if each]
    chosen: list[Demonstration] = []
    for each in [*kept, *by_label[: max(0, BY_LABEL - len(kept))]]:
        if cost[each.source] <= room:
            room -= cost[each.source]
            chosen.append(each)
    return replace(guidance, demonstrations=tuple(_alternate(chosen, guidance.labels)))


def _find_decided(
    guidance: Guidance, cases: Sequence[Case], vocabulary: Vocabulary, words: Words
) -> Iterator[Demonstration]:
    """Yield the cases whose label the rules as code give, each with the rule that does; all cases
    where no rule can be read. For a rule with points, each says what it has points for: the whole
    rule again would leave no room for others."""
    texts = {rule.key: rule.text for rule in guidance.rules}
    rules = read_rules(guidance, vocabulary, words)
    judge, cards = rules.compile(), make_counters(rules)
    for case in cases:
        ticket, read = case.ticket, reading(case.ticket)
        ruling = judge(read)
        if not rules.each or ruling.verdict == ticket.label:
            key = ruling.rule if ruling.verdict else ""
            points = cards[key](read)[1] if key in cards else ""
            yield Demonstration(
                ticket.key, ticket.per_image, ticket.label, key, texts.get(key, ""), points
            )


def _alternate(some: Sequence[Demonstration], labels: Sequence[Verdict]) -> list[Demonstration]:
    """Return demonstrations of each label in turn, fails before passes, as far as there are some:
    the model leans to what it has read last."""
    sides = [[each for each in some if each.verdict == label] for label in reversed(labels)]
    return [each for turn in zip_longest(*sides) for each in turn if each]
