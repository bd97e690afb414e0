"""The inputs of a run, read and checked before anything is started."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from stageb.errors import ConfigError
from stageb.guidance.commands.fit.checks import (
    check_folders,
    check_groups,
    check_labels,
    check_train,
    check_use,
)
from stageb.guidance.commands.fit.first_guidance import (
    begin_guidance,
    compute_budget,
    keep_splits,
    read_seeds,
)
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.selection import SelectionRule, load_selection_rule, majority
from stageb.guidance.learning.gate.decide import Choose
from stageb.guidance.rules.judge import UnknownName
from stageb.guidance.tickets.splits import (
    Splits,
    leave_out,
    list_missions,
    rank_labels,
    split_tickets,
)
from stageb.guidance.tickets.tickets import BadRecord, fingerprint, read_tickets
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import Budget, Guidance, Ticket, Verdict
from stageb.settings import function_named


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
    check_groups(config, tickets)
    if use_images and not any(ticket.images for ticket in tickets):
        raise ConfigError(
            "sampler.use_images",
            use_images,
            'no ticket names images; give lines "images": ["photo.jpg"]',
        )
    seeds = read_seeds(config)
    missions = list_missions(tickets)
    check_folders(missions)
    config = settle_scope(config, {ticket.label for ticket in tickets})
    digest, tickets = fingerprint(tickets), keep_splits(tickets, seeds)
    splits = split_tickets(tickets, config)
    for i in (i for each in splits.values() for i in (*each.val, *each.test)):
        tickets[i] = replace(tickets[i], reason="")  # nobody may read those
    check_train(config, splits)
    check_labels(config, tickets)
    labels = {name: rank_labels(tickets, splits[name]) for name in missions}
    for name, own in labels.items():
        check_use(config, name, own)
    guidance, unknown = begin_guidance(config, tickets, splits, labels, seeds)
    budget = {
        name: compute_budget(config, first, tickets, len(guidance))
        for name, first in guidance.items()
    }
    selection_rule, choose = load_selection_rule(config.selection), _load_own_gate(config)
    return Inputs(
        config=config,
        tickets=tickets,
        digest=digest,
        set_aside=set_aside,
        splits=splits,
        guidance=guidance,
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
        has_labels(labels) and (config.reflection.model or config.model).is_shipped
    )
    at_once = config.has_gate and (by_code or config.needs_preparing)
    judge = "both" if at_once and by_code else config.runner.judge
    reflection = replace(config.reflection, scope="all" if at_once else "bundle")
    return replace(config, reflection=reflection, runner=replace(config.runner, judge=judge))


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
