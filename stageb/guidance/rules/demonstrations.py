"""Which train tickets a guidance shows to the model: chosen by code, from labelled tickets that reflection may see.

Instruct models that read rules alone judge like a coin. Shown a ticket for each rule, with its verdict, and as many of which
no rule speaks, they apply the rules. A rule's ticket is one of which the rule as code says its label; those that the model
judges wrong come first. Where no rule speaks yet, tickets of both labels are shown, and stay until rules need their room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from stageb.guidance.rules.conditions import reading
from stageb.guidance.rules.judge import compile_rules, read_rules
from stageb.guidance.rules.prompts import Case, Words, demonstration_text
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import HEADLINE_KEY, Demonstration, Guidance, Verdict

BY_LABEL = 16  # that tell nothing but the label, at most
BY_RULES = 8  # of tickets that rules decide, at the least: one for each rule, and as many of each where rules are few
LEAST = 4  # of tickets that no rule speaks of, where there are rules
SHARE = 1 / 6  # of the room, at most, that one may take


def demonstrate(
    guidance: Guidance,
    cases: Sequence[Case],
    vocabulary: Vocabulary,
    words: Words,
    count_tokens: Callable[[str], int],
    room: int,
) -> Guidance:
    """``guidance`` with demonstrations for all of its rules, as far as ``cases`` have some and ``room`` tokens hold them.
    Those that still hold stay, but the ones that only tell a label make room for each of the others."""
    kept = [*guidance.shown]
    shown = {each.source for each in kept}
    ordered = sorted((case for case in cases if case.ticket.key not in shown), key=lambda case: case.right)
    found = {
        case.ticket.key: replace(
            Demonstration(case.ticket.key, case.ticket.per_image, case.ticket.label), rule=key, text=text
        )
        for case, key, text in _find_deciding(guidance, ordered, vocabulary, words)
    }
    rules = [rule.key for rule in guidance.rules if rule.key != HEADLINE_KEY]
    counts = Counter(each.rule for each in kept)
    each_rule = -(-BY_RULES // max(1, len(rules)))
    for key in rules:
        kept += [each for each in found.values() if each.rule == key][: max(0, each_rule - counts[key])]
    wanted = max(LEAST, sum(each.rule in rules for each in kept)) if rules else 0
    kept += [each for each in found.values() if each.rule == HEADLINE_KEY][: max(0, wanted - counts[HEADLINE_KEY])]
    if not rules and not kept:
        each_label = [[each for each in found.values() if each.verdict == label] for label in ("pass", "fail")]
        pairs = [each for pair in zip(*each_label, strict=False) for each in pair][:BY_LABEL]
        kept = [replace(each, rule="", text="") for each in pairs]
    cost = {each.source: count_tokens(demonstration_text(each, words)) for each in kept}
    kept = [each for each in kept if cost[each.source] <= room * SHARE]
    by_label = [each for each in kept if not each.rule]
    kept = [each for each in kept if each.rule]
    chosen: list[Demonstration] = []
    for each in [*kept, *by_label[: max(0, BY_LABEL - len(kept))]]:
        if cost[each.source] <= room:
            room -= cost[each.source]
            chosen.append(each)
    return replace(guidance, demonstrations=tuple(_alternate(chosen)))


def _find_deciding(
    guidance: Guidance, cases: Sequence[Case], vocabulary: Vocabulary, words: Words
) -> Iterator[tuple[Case, str, str]]:
    """The cases of which the rules as code say the label, each with the rule that does; where no rule can be read, all."""
    texts = {rule.key: rule.text for rule in guidance.rules}
    rules = read_rules(guidance, vocabulary, words)
    judge = compile_rules(rules)
    for case in cases:
        ruling = judge(reading(case.ticket))
        if not rules or ruling.verdict == case.ticket.label:
            key = ruling.rule if ruling.verdict else ""
            yield case, key, texts.get(key, "")


def _alternate(some: Sequence[Demonstration]) -> list[Demonstration]:
    """Fails and passes in turn, as far as there are both: the model leans to what it has read last."""
    sides: dict[Verdict, list[Demonstration]] = {"fail": [], "pass": []}
    for each in some:
        sides[each.verdict].append(each)
    return [each for pair in zip_longest(*sides.values()) for each in pair if each]
