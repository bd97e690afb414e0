"""The guidance that each mission of a run begins with: read from ``guidance.path``, or neutral.
What it has learnt and spent before stays in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stageb.errors import BadInputError, BadLine, write_option
from stageb.guidance.config import LoopConfig
from stageb.guidance.learning.gate.budget import compute_spending, divide_budget
from stageb.guidance.rules.judge import UnknownName, find_unknown
from stageb.guidance.rules.prompts import Words, name_labels, words_of
from stageb.guidance.rules.read_guidance import make_neutral, read_guidance
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.splits import SPLIT_SEED, Splits, find_default
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import PASS_FAIL, Budget, Guidance, Split, Ticket, Verdict

Guidances = Mapping[str, Guidance]
"""By mission."""


def read_seeds(config: LoopConfig) -> dict[str, Guidance]:
    """What ``guidance.path`` holds, by mission; nothing where no file is named. Raises
    ``InputError``."""
    if not config.guidance.path:
        return {}
    seeds = read_guidance(config.guidance.path, words=words_of(config.prompt, config.model))
    # its automation was promised of other rules
    return {mission: replace(seed, automation=None) for mission, seed in seeds.items()}


def keep_splits(tickets: Sequence[Ticket], seeds: Mapping[str, Guidance]) -> list[Ticket]:
    """``tickets``, those whose group taught or chose the guidance of ``seeds`` in train or val
    again: further tickets that say the same may have given the group another name, and so another
    split."""
    known: dict[tuple[str, str], Split] = {}
    joined = {(ticket.mission, ticket.group) for ticket in tickets if ticket.equals}
    for ticket in tickets:
        seed, group = seeds.get(ticket.mission), (ticket.mission, ticket.group)
        if seed and group in joined and not ticket.split:
            said = name_content(ticket)
            if said in seed.taught_by:
                known[group] = "train"
            elif said in seed.chosen_by:
                known.setdefault(group, "val")
    return [
        replace(ticket, split=known.get((ticket.mission, ticket.group), ticket.split))
        for ticket in tickets
    ]


def begin_guidance(
    config: LoopConfig,
    tickets: Sequence[Ticket],
    splits: Mapping[str, Splits],
    labels: Mapping[str, tuple[Verdict, ...]],
    seeds: Guidances,
) -> tuple[dict[str, Guidance], Sequence[UnknownName]]:
    """Each mission's first guidance, with its ``labels``: that of ``seeds``, or a neutral one; and
    the rules with values or words that no ticket has. Raises ``BadInputError`` for seeds that do
    not suit the tickets."""
    words = words_of(config.prompt, config.model)
    known = {
        name: _match_labels(config, seed, labels[name], words) if name in labels else seed
        for name, seed in seeds.items()
    }
    check_sealed(config, tickets, splits, known)
    unknown = _find_unknown(config, tickets, known)
    prices = config.price.by_label
    first = {
        name: known.get(name)
        or make_neutral(name, words, own, find_default(tickets, splits[name], own, prices))
        for name, own in labels.items()
    }
    return first, unknown


def compute_budget(
    config: LoopConfig, guidance: Guidance, tickets: Sequence[Ticket], missions: int
) -> Budget:
    """Return a mission's budget: its part, less what its guidance has spent on these tickets
    already."""
    contents = (name_content(ticket) for ticket in tickets if ticket.mission == guidance.mission)
    return divide_budget(config.gating, missions).less(compute_spending(guidance, contents))


def _match_labels(
    config: LoopConfig, seed: Guidance, labels: tuple[Verdict, ...], words: Words
) -> Guidance:
    """The guidance to start from, with the labels of the tickets where it names none. Raises
    ``BadInputError`` where it lacks one that tickets have."""
    lacking = sorted({*labels} - {*seed.labels})
    if lacking and seed.labels != PASS_FAIL:
        what = (
            f"mission {seed.mission!r}: its labels lack {', '.join(map(repr, lacking))}, "
            f"which tickets have"
        )
        line = BadLine(str(config.guidance.path), 0, what, "add them to its labels")
        raise BadInputError("places in the guidance", [line])
    if not lacking or not has_labels(labels):
        return seed
    headline, *others = seed.rules
    if headline.text == words.neutral_headline:
        headline = replace(headline, text=name_labels(words, labels).neutral_headline)
    return replace(seed, rules=(headline, *others), labels=labels)


def _find_unknown(
    config: LoopConfig, tickets: Sequence[Ticket], seeds: Mapping[str, Guidance]
) -> Sequence[UnknownName]:
    """The rules that name values or words which no ticket of their mission has.

    Raises ``BadInputError`` for those that name fields which none has, with the nearest names.
    """
    found: list[UnknownName] = []
    for name in sorted({ticket.mission for ticket in tickets} & seeds.keys()):
        vocabulary = Vocabulary.of(ticket for ticket in tickets if ticket.mission == name)
        found += find_unknown(seeds[name], vocabulary, words_of(config.prompt, config.model))
    remedy = "correct the rule, remove it, or give tickets that have it"
    bad = [
        BadLine(str(config.guidance.path), 0, str(each), remedy) for each in found if each.is_field
    ]
    if bad:
        raise BadInputError("rules in guidance.path", bad)
    return found


def check_sealed(
    config: LoopConfig,
    tickets: Sequence[Ticket],
    splits: Mapping[str, Splits],
    seeds: Mapping[str, Guidance],
) -> None:
    """Refuse guidance that was learnt from what tickets say that this run's split keeps for val or
    test, or that test tickets chose.

    Raises ``BadInputError`` with how many, and the remedy.
    """
    bad = []
    for name in splits.keys() & seeds.keys():
        seed = seeds[name]
        sealed: list[tuple[Split, frozenset[str]]] = [
            ("val", seed.taught_by),
            ("test", seed.taught_by | seed.chosen_by),
        ]
        for split, seen in sealed:
            known = [tickets[i] for i in splits[name].of(split) if name_content(tickets[i]) in seen]
            if known:
                learnt_by = (each for rule in seed.rules if (each := rule.metadata.get(SPLIT_SEED)))
                by = next((write_option("split.seed", each) for each in learnt_by), "")
                many = (
                    f"{len(known):,} of the tickets kept for {split} here, {known[0].key} "
                    f"among them,"
                )
                what = f"{many} taught or chose the guidance of mission {name!r}"
                remedy = (
                    f"give {by or 'the split.seed that it was learnt by'}, or tickets that "
                    f"it has not seen"
                )
                bad.append(BadLine(str(config.guidance.path), 0, what, remedy))
    if bad:
        raise BadInputError("rules in guidance.path", sorted(bad, key=str))
