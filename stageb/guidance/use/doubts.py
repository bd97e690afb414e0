"""Why a person should see a verdict beyond what the model's answers tell: the ticket lacks a field that rules name, or the
rule that decided it was too often wrong on val."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stageb.guidance.costs import Prices
from stageb.guidance.reflection.conditions import reading
from stageb.guidance.rules.predicates import Ruling
from stageb.guidance.types import Guidance, Ticket
from stageb.guidance.use.fields import NamedFields, check_there, describe_missing, explain_missing, find_missing
from stageb.guidance.use.record import RuleRecord, explain_doubt, name_doubtful, name_unknown


@dataclass(frozen=True, slots=True)
class Doubts:
    """By mission, what there is to doubt; plain data, for a commit."""

    fields: Mapping[str, NamedFields]
    rules: Mapping[str, RuleRecord]

    def explain(self, ticket: Ticket, row: Mapping[str, Any], min_rule_accuracy: float | None) -> str:
        """Why a person should see the verdict of a row of predictions; empty where nothing speaks for it."""
        missing = explain_missing(self.fields.get(ticket.mission, {}), ticket)
        if missing or min_rule_accuracy is None or row["verdict"] is None:
            return missing
        return explain_doubt(self.rules.get(ticket.mission, {}), row["reason"], min_rule_accuracy)

    def explain_ruling(self, mission: str, ruling: Ruling, min_rule_accuracy: float | None) -> str:
        """Why a person should see a verdict that rules gave as code; empty where nothing speaks for it."""
        if min_rule_accuracy is None or ruling.verdict is None:
            return ""
        return explain_doubt(self.rules.get(mission, {}), ruling.rule, min_rule_accuracy)


@dataclass(frozen=True, slots=True)
class Survey:
    """What tickets lack, counted as they are looked over."""

    doubts: Doubts
    tickets: Counter[str]  # by mission
    lacking: Counter[tuple[str, str]]  # (mission, field) -> tickets
    there: dict[str, dict[str, None]]  # mission -> the fields that tickets have, of a mission with rules that name any

    def add(self, ticket: Ticket) -> None:
        """One more ticket."""
        self.tickets[ticket.mission] += 1
        if named := self.doubts.fields.get(ticket.mission):
            self.there.setdefault(ticket.mission, {}).update(dict.fromkeys(reading(ticket).pairs))
            for name in find_missing(named, ticket):
                self.lacking[ticket.mission, name] += 1

    def check(self) -> None:
        """Raise ``InputError`` where rules name what no ticket has."""
        for mission, named in self.doubts.fields.items():
            lacking = {name: self.lacking[mission, name] for name in named}
            check_there(mission, named, lacking, self.tickets[mission], self.there.get(mission, {}))

    def describe(
        self, guidance: Mapping[str, Guidance], min_rule_accuracy: float | None, by_code: bool, prices: Prices
    ) -> Iterator[str]:
        """What a person should know before tickets are judged, by rules as code (alone or first) or by the model, where
        errors cost ``prices``."""
        for mission, named in self.doubts.fields.items():
            lacking = {name: count for name in named if (count := self.lacking[mission, name])}
            yield from describe_missing(mission, named, lacking, self.tickets[mission], by_code)
        for mission, record in self.doubts.rules.items():
            if min_rule_accuracy is None:
                yield from name_doubtful(mission, record, prices)
            else:
                yield from name_unknown(guidance[mission], record)


def send_to_review(row: Mapping[str, Any], doubt: str) -> dict[str, Any]:
    """A row of predictions, with one more reason for a person to look, if there is one."""
    if not doubt:
        return dict(row)
    return {**row, "review": True, "why": f"{row['why']}; {doubt}" if row["why"] else doubt}
