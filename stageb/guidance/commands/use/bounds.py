"""Bounds on the errors of a mission: which of its verdicts need no person, by tickets that judged
rows tell of.

The pilot are the run's train tickets where rules alone judge. They flatter the rules, which is no
harm, since they only say which verdicts to try first. Elsewhere it is a part of the labelled
tickets, drawn by the name of their group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stageb.errors import InputError, shown
from stageb.guidance.commands.use.config import AutomateConfig
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
)
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.predicates import Ruling, measure_margin
from stageb.guidance.rules.prompts import words_of
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.words.automation import MODEL, Automation, write_share
from stageb.guidance.words.texts import count_of
from stageb.guidance.words.types import HEADLINE_KEY, Guidance, Ticket, Verdict
from stageb.seeds import stream, uniform

PILOT = 0.2  # of the groups, where the train tickets of a run cannot be the pilot
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
    rows: Sequence[tuple[Mapping[str, Any], Ticket]],
    known: Sequence[Ticket],
    asked: str,
) -> MissionBounds:
    """The bounds of a mission, by ``rows`` of predictions with their tickets; ``known`` are those
    of the run, and ``asked`` names how a model was asked."""
    mission, seen = guidance.mission, guidance.taught_by | guidance.chosen_by
    mine = [(row, ticket) for row, ticket in rows if row["mission"] == mission]
    new = [(row, ticket) for row, ticket in mine if name_content(ticket) not in seen]
    tested = _draw_one_each(new, config.seed, mission)
    pilot = (
        _judge_train(config, guidance, known) if all(row["by"] != MODEL for row, _ in mine) else []
    )
    if not pilot:
        pilot = [each for group, each in tested.items() if _is_pilot(config.seed, mission, group)]
        tested = {
            group: each
            for group, each in tested.items()
            if not _is_pilot(config.seed, mission, group)
        }
    given = config.max_error
    limits = given if isinstance(given, dict) else {"": given}
    limits = {
        verdict: limit for verdict, limit in limits.items() if verdict in ("", *guidance.labels)
    }
    searches = find_bounds(pilot, list(tested.values()), limits, config.confidence)
    bounds = tuple(found.bound for found in searches.values() if found.bound)
    automation = None
    if bounds:
        by, is_asked = name_judge(config.by, guidance), any(MODEL in each.least for each in bounds)
        name = name_guidance(guidance)
        automation = Automation(
            config.confidence, name, by, asked if is_asked else "", len(tested), bounds
        )
    level = divide_level(config.confidence, limits)
    asked_for = [verdict for verdict, of in searches.items() if of.bound is None]
    more = {
        verdict: count_more(pilot, list(tested.values()), verdict, limits[verdict], level)
        for verdict in asked_for
    }
    return MissionBounds(automation, searches, limits, more, len(mine) - len(new), len(tested))


def _draw_one_each(
    rows: Sequence[tuple[Mapping[str, Any], Ticket]], seed: int, mission: str
) -> dict[str, Judged]:
    """By group, one of its tickets."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row, ticket in rows:
        groups.setdefault(ticket.group, []).append(row)
    drawn = {
        group: of[int(len(of) * uniform(stream(seed, "automate", mission, group), 0))]
        for group, of in groups.items()
    }
    return {
        group: Judged(
            *find_decider(row),
            None if row["review"] else row["verdict"],
            row["verdict"] == row["label"],
        )
        for group, row in drawn.items()
    }


def _is_pilot(seed: int, mission: str, group: str) -> bool:
    return uniform(stream(seed, "pilot", mission, group), 0) < PILOT


def _judge_train(
    config: AutomateConfig, guidance: Guidance, known: Sequence[Ticket]
) -> list[Judged]:
    """The tickets that taught the rules, as these judge them as code; none where those of the run
    are not known."""
    mine = [ticket for ticket in known if ticket.mission == guidance.mission]
    judge = CodeJudge(
        code_rules({guidance.mission: guidance}, mine, words_of(config.prompt, config.model))
    )
    taught = [ticket for ticket in mine if name_content(ticket) in guidance.taught_by]
    return [weigh_ruling(judge.judge(ticket), ticket.label) for ticket in taught]


def weigh_ruling(ruling: Ruling, label: Verdict) -> Judged:
    """A verdict of rules as code beside the right one."""
    return Judged(
        ruling.rule, measure_margin(ruling, HEADLINE_KEY), ruling.verdict, ruling.verdict == label
    )
