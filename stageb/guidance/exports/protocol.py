"""What an exporter is, which writes rules for a place where people judge, and the coded missions
that it writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stageb.guidance.exports.sql_dialects import Dialect
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.fields import BY_NAMES, Columns
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.value_types import Reading
from stageb.guidance.rules.vocabulary import find_letters
from stageb.guidance.words.automation import Automation
from stageb.guidance.words.types import Guidance, Ticket
from stageb.untrusted.clean_text import fold_text


@dataclass(frozen=True, slots=True)
class CodedMission:
    """One mission's rules."""

    name: str
    step: int  # of its guidance
    coded: CodedRules
    columns: Columns = BY_NAMES  # what a row's columns say
    # whether a number that a ticket does not name is 0; None: in some tickets
    is_counted: bool | None = False
    letters: str = ""  # beyond ASCII, that tickets' values have and that are the same in any case
    notes: Sequence[str] = ()  # which rules are provisional, and what is hoped of them
    tickets: Sequence[Ticket] = ()  # that rules were read by
    # fields that are true or false, which databases may keep as 1 and 0
    booleans: frozenset[str] = frozenset()
    # fields that the table has as numbers, NULL where there is none
    numeric: frozenset[str] = frozenset()
    columns_all: Sequence[str] = ()  # by which a row is empty, where that is known
    # which tickets are decided alone, where that was found of rules as code
    automation: Automation | None = None

    @property
    def unreadable(self) -> dict[str, str]:
        """By key, why a rule is not written as code."""
        return {
            rule.key: rule.code.why for rule in self.coded.each if isinstance(rule.code, OutOfReach)
        }

    @property
    def decides_empty(self) -> bool:
        """Whether rules as code would give a row that says nothing a verdict, which is a
        person's."""
        return self.coded.compile()(Reading({}, frozenset())).verdict is not None

    def list_values(self, name: str) -> list[str]:
        """The values of a column in known tickets."""
        return list(
            dict.fromkeys(
                value for ticket in self.tickets if (value := reading(ticket).pairs.get(name))
            )
        )


PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")  # a number as databases write it, too


def code_mission(
    guidance: Guidance,
    rules: CodedRules,
    roles: Columns,
    known: Sequence[Ticket],
    is_typed: bool = False,
) -> CodedMission:
    """The rules of a mission as code, with what its ``known`` tickets tell of columns;
    ``is_typed``: those of which these have numbers alone are numbers in the table."""
    readings = [*map(reading, known)] or [
        Reading({value: value for _, value in guidance.named}, frozenset())
    ]
    pairs = [pair for read in readings for pair in read.pairs.items()] if known else guidance.named
    values: dict[str, set[str]] = {}
    for name, value in pairs:
        values.setdefault(name, set()).update([value] if value else [])
    counted = {reading(ticket).is_counted for ticket in known if not ticket.is_blank}
    are_rows = bool(known) and True not in counted
    are_rows = are_rows and all(ticket.content and not ticket.content.prose for ticket in known)
    return CodedMission(
        guidance.mission,
        guidance.step,
        rules,
        roles,
        None if len(counted) > 1 else counted == {True},
        find_letters(readings),
        tickets=known,
        booleans=frozenset(
            name
            for name, own in values.items()
            if own and {*map(fold_text, own)} <= {"true", "false"}
        ),
        numeric=frozenset(
            name
            for name, own in values.items()
            if is_typed and own and all(map(PLAIN.fullmatch, own))
        ),
        columns_all=roles.texts or (tuple(values) if are_rows else ()),
    )


class UnsaidError(Exception):
    """Why a form cannot say a rule."""


class Exported(NamedTuple):
    """The files of an export, and what to know of them."""

    files: str | bytes | Mapping[str, str]  # one, or several by their names
    # which rules it lacks, and which known tickets it judges otherwise; a line each
    notes: Sequence[str] = ()


class Exporter(Protocol):
    """A form that rules leave in."""

    # whether columns of which the known tickets have numbers alone must be numbers where it judges
    is_typed: bool

    def write(self, missions: Sequence[CodedMission], dialect: Dialect) -> Exported:
        """The rules in this form. Raises ``InputError``, which names a rule that it cannot say."""


def list_unwritten(missions: Sequence[CodedMission]) -> list[str]:
    """A line for each rule that cannot be read as code."""
    return [
        f"{mission.name}: {key} is not written as code: {why}"
        for mission in missions
        for key, why in mission.unreadable.items()
    ]


def list_undecided(mission: CodedMission) -> list[str]:
    """A line on what a form lacks that does not say who decides, where some tickets are decided
    alone."""
    if not mission.automation:
        return []
    return [f"{mission.name}: who decides is not written; --format python and sql have it"]
