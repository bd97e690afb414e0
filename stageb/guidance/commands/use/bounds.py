"""Bounds on the errors of a mission: which of its verdicts need no person, by tickets that judged
rows tell of.

The pilot are the run's train tickets where rules alone judge. They flatter the rules, which is no
harm, since they only say which verdicts to try first. Elsewhere it is a part of the labelled
tickets, drawn by the name of their group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from stageb.errors import InputError, shown
from stageb.guidance.commands.use.config import AutomateConfig
from stageb.guidance.commands.use.doubts import find_missing_fields, find_told
from stageb.guidance.config import LoopConfig
from stageb.guidance.judging.automation import (
    BoundSearch,
    Judged,
    count_more,
    divide_level,
    find_bounds,
    find_decider,
    name_guidance,
    name_judge,
    weigh_ruling,
)
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.words.automation import MODEL, Automation, write_share
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import Guidance, Ticket, Verdict
from stageb.seeds import stream, uniform

PILOT = 0.2  # of the groups, where the train tickets of a run cannot be the pilot
JudgedRow: TypeAlias = tuple[Mapping[str, Any], Ticket]
"""A row of predictions, and its ticket."""
NO_TEST = (
    "this run held out no test tickets; give labelled ones that neither taught nor chose "
    "its rules: --tickets FILE"
)


@dataclass(frozen=True)
class MissionBounds:
    """The bounds of a mission, and how near it came to those that were not found."""

    automation: Automation | None  # None: nothing can be promised
    # by the verdict that was asked about; empty: all of them
    searches: Mapping[Verdict, BoundSearch]
    limits: Mapping[Verdict, float]  # as ``searches``: the errors that were allowed
    # of what was not found: about how many more tickets would do; None: no number would
    more: Mapping[Verdict, int | None]
    seen: int  # tickets left out, since they taught or chose the rules
    groups: int  # that tested the bounds

    def describe(self) -> Iterator[str]:
        """A line for what is promised, and one for each bound that is not."""
        if self.automation:
            counts = [(each.decided, each.wrong) for each in self.automation.bounds]
            decided, wrong = (sum(each) for each in zip(*counts, strict=True))
            yield (
                f"{self.automation.describe()}; of {self.groups:,} it decided {decided:,}, "
                f"{wrong:,} of them wrongly"
            )
        for verdict, found in self.searches.items():
            if found.bound is None:
                yield self._describe_lack(verdict, found)

    def _describe_lack(self, verdict: Verdict, found: BoundSearch) -> str:
        limit, of = self.limits[verdict], f" of those judged {verdict}" if verdict else ""
        if limit == 1:
            return f"decides none{of} alone: no labelled ticket is judged so"
        count, tickets = self.more[verdict], count_of(self.groups, "ticket")
        more = (
            f"about {count_of(count, 'more labelled ticket')} would do"
            if count
            else "more tickets would not do"
        )
        tried = (
            f"{found.wrong:,} of the {found.decided:,} surest verdicts of {tickets} "
            f"{'is' if found.wrong == 1 else 'are'} wrong"
            if found.decided
            else f"of {tickets} none has one of the surest verdicts"
        )
        return f"cannot promise {write_share(limit)}{of}: {more} ({tried})"


def take_test(
    config: AutomateConfig, learnt: LoopConfig | None, known: Sequence[Ticket], why: str
) -> tuple[AutomateConfig, frozenset[str]]:
    """The config with the ticket files of the run, and where its test tickets stand in them. Raises
    ``InputError``."""
    if learnt is None or not known:
        why = why or "a file of guidance has no test tickets; give labelled ones: --tickets FILE"
        raise InputError(shown(f"{config.guidance}: {why}", 400))
    splits = split_tickets(known, learnt)
    places = frozenset(known[i].place for each in splits.values() for i in each.test)
    if not places:
        raise InputError(shown(f"{config.guidance}: {NO_TEST}", 400))
    return replace(config, tickets=learnt.files, columns=learnt.columns), places


def find_mission_bounds(
    config: AutomateConfig,
    guidance: Guidance,
    rows: Sequence[JudgedRow],
    known: Sequence[Ticket],
    asked: str,
) -> MissionBounds:
    """The bounds of a mission, by ``rows`` of predictions with their tickets; ``known`` are those
    of the run, and ``asked`` names how a model was asked."""
    mission, seen = guidance.mission, guidance.taught_by | guidance.chosen_by
    mine = [(row, ticket) for row, ticket in rows if row["mission"] == mission]
    new = [(row, ticket) for row, ticket in mine if name_content(ticket) not in seen]
    drawn = _draw_one_each(new, config.seed, mission)
    of_run = [ticket for ticket in known if ticket.mission == mission]
    taught = [ticket for ticket in of_run if name_content(ticket) in guidance.taught_by]
    if taught and all(row["by"] != MODEL for row, _ in mine):
        pilot, shown, test = _judge_train(config, guidance, of_run, taught), taught, drawn
    else:
        first, test = _split_pilot(drawn, config.seed, mission)
        pilot, shown = [_weigh_row(row) for row, _ in first], [ticket for _, ticket in first]
    told = find_told(guidance, of_run, shown, words_of(config.prompt, config.model))
    tested = [
        _weigh_row(row)._replace(verdict=None)
        if find_missing_fields(told, reading(ticket), by_code=True)
        else _weigh_row(row)
        for row, ticket in test
    ]
    given = config.max_error
    limits = given if isinstance(given, dict) else {"": given}
    limits = {
        verdict: limit for verdict, limit in limits.items() if verdict in ("", *guidance.labels)
    }
    searches = find_bounds(pilot, tested, limits, config.confidence)
    bounds = tuple(found.bound for found in searches.values() if found.bound)
    automation = None
    if bounds:
        by, is_asked = name_judge(config.by, guidance), any(MODEL in each.least for each in bounds)
        name = name_guidance(guidance)
        automation = Automation(
            config.confidence, name, by, asked if is_asked else "", len(tested), told, bounds
        )
    level = divide_level(config.confidence, limits)
    asked_for = [verdict for verdict, of in searches.items() if of.bound is None]
    more = {
        verdict: count_more(pilot, tested, verdict, limits[verdict], level) for verdict in asked_for
    }
    return MissionBounds(automation, searches, limits, more, len(mine) - len(new), len(tested))


def _draw_one_each(rows: Sequence[JudgedRow], seed: int, mission: str) -> list[JudgedRow]:
    """One of the tickets of each group."""
    groups: dict[str, list[JudgedRow]] = {}
    for row, ticket in rows:
        groups.setdefault(ticket.group, []).append((row, ticket))
    return [
        of[int(len(of) * uniform(stream(seed, "automate", mission, group), 0))]
        for group, of in groups.items()
    ]


def _split_pilot(
    drawn: Sequence[JudgedRow], seed: int, mission: str
) -> tuple[list[JudgedRow], list[JudgedRow]]:
    """A pilot, and the others."""
    parts: tuple[list[JudgedRow], list[JudgedRow]] = [], []
    for row, ticket in drawn:
        is_pilot = uniform(stream(seed, "pilot", mission, ticket.group), 0) < PILOT
        parts[not is_pilot].append((row, ticket))
    return parts


def _judge_train(
    config: AutomateConfig, guidance: Guidance, known: Sequence[Ticket], taught: Sequence[Ticket]
) -> list[Judged]:
    """The tickets that taught the rules, as these judge them as code; ``known`` are all of the
    run."""
    words = words_of(config.prompt, config.model)
    judge = CodeJudge(code_rules({guidance.mission: guidance}, known, words))
    return [weigh_ruling(judge.judge(ticket), ticket.label) for ticket in taught]


def _weigh_row(row: Mapping[str, Any]) -> Judged:
    """The verdict of a row beside the right one; none where it is for a person."""
    verdict = None if row["review"] else row["verdict"]
    return Judged(*find_decider(row), verdict, row["verdict"] == row["label"])
