"""Checks of tickets before a run: what a split, its missions and their labels must be to learn
from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from stageb.errors import BadInputError, BadLine, ConfigError, shown
from stageb.guidance.config import LoopConfig
from stageb.guidance.tickets.groups import advise_apart
from stageb.guidance.tickets.splits import Splits
from stageb.guidance.words.costs import check_prices
from stageb.guidance.words.labels import has_labels
from stageb.guidance.words.types import Ticket, Verdict
from stageb.store.journal import safe_name
from stageb.tiny import NAME


def check_groups(config: LoopConfig, tickets: Sequence[Ticket]) -> None:
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


def check_folders(missions: Sequence[str]) -> None:
    """Raise ``BadInputError`` where two missions would share a folder. That is no accident: names
    with one hash have to be searched for."""
    folders = Counter(map(safe_name, missions))
    if shared := [name for name in missions if folders[safe_name(name)] > 1]:
        whats = [
            f"mission {name!r} would share the folder {safe_name(name)} with another"
            for name in shared
        ]
        raise BadInputError(
            "missions", [BadLine("tickets", 0, what, "rename one of them") for what in whats]
        )


def check_train(config: LoopConfig, splits: Mapping[str, Splits]) -> None:
    """Raise ``BadInputError`` for missions without a train ticket."""
    if empty := [name for name, each in splits.items() if not each.train]:
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


def check_labels(config: LoopConfig, tickets: Sequence[Ticket]) -> None:
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


def check_use(config: LoopConfig, mission: str, labels: Sequence[Verdict]) -> None:
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
    if config.runner.epochs and scope != "all" and model.is_shipped and has_labels(labels):
        has = f"mission {shown(mission, 60)!r} has the labels {shown(', '.join(labels), 200)}"
        remedy = "leave it at auto, with a gate: then code learns and judges; or name another model"
        raise ConfigError(
            "reflection.scope",
            scope,
            f"{NAME} proposes rules of pass and fail alone, and {has}: {remedy}",
        )
