"""A mission's rules as code, and what its tickets tell of columns: what every export is written from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stageb.guidance.rules.evidence_forms import reading
from stageb.guidance.rules.fields import BY_NAMES, Columns
from stageb.guidance.rules.judge import CodedRules
from stageb.guidance.rules.parse import OutOfReach
from stageb.guidance.rules.value_types import Reading, fold_text
from stageb.guidance.rules.vocabulary import find_letters
from stageb.guidance.words.automation import Automation
from stageb.guidance.words.types import Guidance, Ticket


@dataclass(frozen=True, slots=True)
class CodedMission:
    """One mission's rules."""

    name: str
    step: int  # of its guidance
    coded: CodedRules
    columns: Columns = BY_NAMES  # what a row's columns say
    is_counted: bool | None = False  # whether a number that a ticket does not name is 0; None: in some tickets
    letters: str = ""  # beyond ASCII, that tickets' values have and that are the same in any case
    notes: Sequence[str] = ()  # which rules are provisional, and what is hoped of them
    tickets: Sequence[Ticket] = ()  # that rules were read by
    booleans: frozenset[str] = frozenset()  # fields that are true or false, which databases may keep as 1 and 0
    numeric: frozenset[str] = frozenset()  # fields that the table has as numbers, NULL where there is none
    columns_all: Sequence[str] = ()  # by which a row is empty, where that is known
    automation: Automation | None = None  # which tickets are decided alone, where that was found of rules as code

    @property
    def unreadable(self) -> dict[str, str]:
        """By key, why a rule is not written as code."""
        return {rule.key: rule.code.why for rule in self.coded.each if isinstance(rule.code, OutOfReach)}


PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")  # a number as databases write it, too


def code_mission(
    guidance: Guidance, rules: CodedRules, roles: Columns, known: Sequence[Ticket], is_typed: bool = False
) -> CodedMission:
    """The rules of a mission as code, with what its ``known`` tickets tell of columns; ``is_typed``: those of which these
    have numbers alone are numbers in the table."""
    readings = [*map(reading, known)] or [Reading({value: value for _, value in guidance.named}, frozenset())]
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
        booleans=frozenset(name for name, own in values.items() if own and {*map(fold_text, own)} <= {"true", "false"}),
        numeric=frozenset(name for name, own in values.items() if is_typed and own and all(map(PLAIN.fullmatch, own))),
        columns_all=roles.texts or (tuple(values) if are_rows else ()),
    )
