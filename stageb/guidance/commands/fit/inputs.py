"""The inputs of a run, read and checked before anything is started, and which of them a resumed run
must share."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from stageb.engines.config import HOW_ASKED, ModelConfig
from stageb.errors import BadInputError, BadLine, ConfigError, shown, write_option
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.selection import SelectionRule, load_selection_rule, majority
from stageb.guidance.learning.gate.budget import compute_spending, divide_budget
from stageb.guidance.learning.gate.decide import Choose
from stageb.guidance.rules.guidance_file import make_neutral, read_guidance, to_json
from stageb.guidance.rules.judge import UnknownName, find_unknown
from stageb.guidance.rules.prompts import Words, name_labels, words_of
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import advise_apart, name_content
from stageb.guidance.tickets.splits import (
    SPLIT_SEED,
    Splits,
    find_default,
    leave_out,
    list_missions,
    rank_labels,
    split_tickets,
)
from stageb.guidance.tickets.tickets import BadRecord, fingerprint, read_tickets
from stageb.guidance.words.costs import check_prices
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import PASS_FAIL, Budget, Guidance, Split, Ticket, Verdict
from stageb.settings import function_named
from stageb.store import commits
from stageb.store.commits import flatten
from stageb.store.journal import safe_name
from stageb.tiny import NAME
from stageb.untrusted import strict_yaml

BAD_RECORDS = "bad_records.jsonl"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a run starts from."""

    config: LoopConfig  # with nothing left open
    tickets: Sequence[Ticket]  # of all missions, in the files' order
    digest: str  # of what they say
    set_aside: Sequence[BadRecord]  # lines that could not be used
    splits: Mapping[str, Splits]  # by mission
    guidance: Mapping[str, Guidance]  # what each mission starts with
    budget: Mapping[str, Budget]  # what each may spend of ``gate.alpha``
    left_out: str = ""  # how many tickets are of no split, in words
    # of ``guidance``: rules with values or words that no ticket has
    unknown: Sequence[UnknownName] = ()
    selection_rule: SelectionRule = majority  # selects a ticket's verdict
    choose: Choose | None = None  # a gate of the user's own


def read_inputs(config: LoopConfig) -> Inputs:
    """Tickets, splits and first guidance. Raises ``InputError`` with all that is wrong with
    them."""
    use_images = config.sampler.use_images
    tickets, set_aside = read_tickets(
        config.tickets, config.on_bad_record, config.columns, use_images, config.split.files
    )
    tickets, left_out = leave_out(tickets, config.split.leave_out)
    _check_groups(config, tickets)
    if use_images and not any(ticket.images for ticket in tickets):
        raise ConfigError(
            "sampler.use_images",
            use_images,
            'no ticket names images; give lines "images": ["photo.jpg"]',
        )
    words = words_of(config.prompt, config.model)
    seeds = read_guidance(config.guidance.path, words=words) if config.guidance.path else {}
    # promised of other rules
    seeds = {mission: replace(seed, automation=None) for mission, seed in seeds.items()}
    missions = list_missions(tickets)
    folders = Counter(map(safe_name, missions))
    shared = [name for name in missions if folders[safe_name(name)] > 1]
    if shared:  # no accident: names with one hash have to be searched for
        whats = [
            f"mission {name!r} would share the folder {safe_name(name)} with another"
            for name in shared
        ]
        raise BadInputError(
            "missions", [BadLine("tickets", 0, what, "rename one of them") for what in whats]
        )
    config = settle_scope(config, {ticket.label for ticket in tickets})
    digest, tickets = fingerprint(tickets), _keep_splits(tickets, seeds)
    splits = split_tickets(tickets, config)
    for i in (i for each in splits.values() for i in (*each.val, *each.test)):
        tickets[i] = replace(tickets[i], reason="")  # nobody may read those
    empty = [name for name in missions if not splits[name].train]
    if empty:
        told = config.columns.split
        remedy = (
            f"write train at {told} of some"
            if told
            else "give it more groups, or a larger split.train"
        )
        raise BadInputError(
            "missions",
            [
                BadLine("split", 0, f"mission {name!r} has no train ticket", remedy)
                for name in empty
            ],
        )
    _check_labels(config, tickets)
    labels = {name: rank_labels(tickets, splits[name]) for name in missions}
    for name, own in labels.items():
        _check_use(config, name, own)
        if name in seeds:
            seeds[name] = _match_labels(config, seeds[name], own, words)
    check_sealed(config, tickets, splits, seeds)
    unknown = _find_unknown(config, tickets, seeds)
    prices = config.price.by_label
    defaults = {
        name: find_default(tickets, splits[name], labels[name], prices) for name in missions
    }
    first = {
        name: seeds.get(name) or make_neutral(name, words, labels[name], defaults[name])
        for name in missions
    }
    budget = {
        name: _compute_budget(config, guidance, tickets, len(first))
        for name, guidance in first.items()
    }
    selection_rule, choose = load_selection_rule(config.selection), _load_own_gate(config)
    return Inputs(
        config=config,
        tickets=tickets,
        digest=digest,
        set_aside=set_aside,
        splits=splits,
        guidance=first,
        budget=budget,
        left_out=left_out,
        unknown=unknown,
        selection_rule=selection_rule,
        choose=choose,
    )


def settle_scope(config: LoopConfig, labels: Collection[Verdict]) -> LoopConfig:
    """``config`` for tickets of these ``labels``, with what ``reflection.scope: auto`` comes to:
    code learns at once where it or another model than the shipped one judges. The shipped one knows
    pass and fail alone, so of others code judges."""
    if config.reflection.scope != "auto":
        return config
    by_code = config.runner.judge == "both" or (
        has_labels(labels) and _is_shipped(config.reflection.model or config.model)
    )
    at_once = config.has_gate and (by_code or config.needs_preparing)
    judge = "both" if at_once and by_code else config.runner.judge
    reflection = replace(config.reflection, scope="all" if at_once else "bundle")
    return replace(config, reflection=reflection, runner=replace(config.runner, judge=judge))


def _is_shipped(model: ModelConfig) -> bool:
    return model.engine != "scripted" and model.model_name_or_path == NAME


def _check_groups(config: LoopConfig, tickets: Sequence[Ticket]) -> None:
    """Refuse a split of the user's own that parts a group. Raises ``BadInputError`` with a line for
    each."""
    first: dict[tuple[str, str], Ticket] = {}
    bad: dict[tuple[str, str], BadLine] = {}
    for ticket in tickets:
        group = ticket.mission, ticket.group
        other = first.setdefault(group, ticket)
        if other.split == ticket.split or group in bad:
            continue
        of, of_other = (each.split or "the files to deal" for each in (ticket, other))
        if ticket.group_id == other.group_id:
            why, remedy = "both have one group_id", "give both one split"
        elif ticket.together and ticket.together == other.together:
            why, remedy = f"{config.columns.together} keeps them together", "give both one split"
        else:
            why = "they say the same, as others of their group may"
            remedy = f"give both one split; or, {advise_apart()}"
        path, _, line = ticket.place.rpartition(":")
        bad[group] = BadLine(
            path,
            int(line),
            f"{ticket.key} is of {of}, {other.place} of {of_other}, and {why}",
            remedy,
        )
    if bad:
        raise BadInputError("places in the ticket files", list(bad.values()))


def _keep_splits(tickets: Sequence[Ticket], seeds: Mapping[str, Guidance]) -> list[Ticket]:
    """``tickets``, those whose group taught or chose the guidance of ``seeds`` in train or val
    again: further tickets that say the same may have given the group another name, and so another
    split."""
    known: dict[tuple[str, str], Split] = {}
    for ticket in tickets:
        seed = seeds.get(ticket.mission)
        if seed and ticket.equals and not ticket.split:
            group, said = (ticket.mission, ticket.group), name_content(ticket)
            if said in seed.taught_by:
                known[group] = "train"
            elif said in seed.chosen_by:
                known.setdefault(group, "val")
    return [
        replace(ticket, split=known.get((ticket.mission, ticket.group), ticket.split))
        for ticket in tickets
    ]


def _check_labels(config: LoopConfig, tickets: Sequence[Ticket]) -> None:
    """Refuse to learn where no mission has tickets of both labels. Raises ``BadInputError``."""
    labels: dict[str, set[str]] = {}
    for ticket in tickets:
        labels.setdefault(ticket.mission, set()).add(ticket.label)
    if not config.runner.epochs or any(len(own) > 1 for own in labels.values()):
        return
    bad = []
    for mission, (label,) in labels.items():
        what = f"nothing can be learnt of mission {mission!r}: all its tickets are labelled {label}"
        remedy = f"give tickets labelled {'fail' if label == 'pass' else 'pass'} too"
        bad.append(BadLine(", ".join(config.files), 0, what, remedy))
    raise BadInputError("missions", bad)


def _check_use(config: LoopConfig, mission: str, labels: Sequence[Verdict]) -> None:
    """Raise ``ConfigError`` where a mission's labels are its own, and pass and fail alone have what
    the config asks for, or are what the shipped model writes rules about."""
    limits = {
        f"gate.{name}": getattr(config.gating, name)
        for name in ("max_false_passes", "max_changed_verdicts")
    }
    check_prices(config.price, mission, labels, **limits)
    scope, model = config.reflection.scope, config.reflection.model or config.model
    if scope == "all" and config.runner.judge == "model" and not config.needs_preparing:
        raise ConfigError(
            "reflection.scope",
            scope,
            "auto, bundle or round, unless code judges, or another model than this",
        )
    if config.runner.epochs and scope != "all" and _is_shipped(model) and has_labels(labels):
        has = f"mission {shown(mission, 60)!r} has the labels {shown(', '.join(labels), 200)}"
        remedy = "leave it at auto, with a gate: then code learns and judges; or name another model"
        raise ConfigError(
            "reflection.scope",
            scope,
            f"{NAME} proposes rules of pass and fail alone, and {has}: {remedy}",
        )


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


def _compute_budget(
    config: LoopConfig, guidance: Guidance, tickets: Sequence[Ticket], missions: int
) -> Budget:
    """Return a mission's budget: its part, less what its guidance has spent on these tickets
    already."""
    contents = (name_content(ticket) for ticket in tickets if ticket.mission == guidance.mission)
    return divide_budget(config.gating, missions).less(compute_spending(guidance, contents))


def _load_own_gate(config: LoopConfig) -> Choose | None:
    """Import the function that ``gate.choose`` names. Raises ``ConfigError`` where there is none,
    or it cannot ask the model."""
    name = config.gating.choose
    choose: Choose | None = function_named("gate.choose", name) if name else None
    if choose and not inspect.isgeneratorfunction(choose):
        remedy = (
            "make it a generator function, which asks the model by `gains = yield from "
            "gate.judge.gains(...)`"
        )
        raise ConfigError("gate.choose", name, remedy)
    return choose


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


NOT_SHAPING = (  # keys that change no artifact, or do so through what is compared beside them
    "output.", "fabric.", "columns.", *HOW_ASKED, "guidance.path", "log_level", "loggers", "runner.log_every_s",
    "runner.per_rank_rollout_batch_size", "report",
)  # fmt: skip


LIMITS = ("budget.rollouts", "budget.tokens", "budget.seconds", "runner.epochs")
"""Keys that may be higher when a run resumes: a run counts what it spends, and looks no further
ahead."""


def shape(config: LoopConfig, inputs: Inputs) -> dict[str, Any]:
    """All of it that is known before the ranks are, nested."""
    shaping: dict[str, Any] = asdict(config)
    shaping["tickets"] = inputs.digest  # what they say, not where they lie
    shaping["first_guidance"] = [to_json(guidance) for guidance in inputs.guidance.values()]
    return shaping


def check_folder(config: LoopConfig, inputs: Inputs, fresh: bool) -> None:
    """Raise ``InputError`` where the run's folder cannot be made, or is taken; what only the ranks
    can tell comes later."""
    # images count once they were read
    ignored = (*NOT_SHAPING, "tickets") if config.sampler.use_images else NOT_SHAPING
    known = {
        key: value
        for key, value in flatten(shape(config, inputs)).items()
        if not key.startswith(ignored)
    }
    commits.check_folder(config.output.folder, known, fresh, LIMITS, _tell_others(config))


def _tell_others(config: LoopConfig) -> dict[str, str]:
    """Return messages, by key, for a run in the folder that learnt from other tickets, or began
    with other guidance."""
    now, before = ", ".join(config.files), "others"
    with suppress(OSError, ValueError, strict_yaml.YamlError):
        given, _ = strict_yaml.read((config.output.folder / "config.yaml").read_text("utf-8"))
        files = given.get("tickets") if isinstance(given, dict) else None
        before = ", ".join(map(str, files)) if isinstance(files, list) else str(files)
    changed = f"what they say has changed since it learnt from them ({now})"
    return {
        "tickets": changed if before == now else f"learnt from {before}; these are {now}",
        "first_guidance": "a run of these tickets would begin with another guidance",
    }
