"""Why a person should see a verdict: rules name fields that the ticket lacks."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

from stageb.errors import InputError, write_option
from stageb.guidance.commands.use.config import UseConfig
from stageb.guidance.commands.use.record import RuleRecord, name_doubtful, read_record
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import OutOfReach
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.parse import RuleCode
from stageb.guidance.rules.prompts import Words, words_of
from stageb.guidance.rules.value_types import Reading
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.column_names import is_table
from stageb.guidance.words.costs import Prices
from stageb.guidance.words.texts import find_renamed
from stageb.guidance.words.types import Guidance, Ticket
from stageb.untrusted.clean_text import fold_value

# tickets, from which on a field that none of them has is not one that happens to be empty
SEVERAL = 10
# share of tickets that may lack a field which none of those lacked that taught a rule
SELDOM = 0.01
# how probable it is, at the most, that tickets like those that taught lack a field as often as
# these do
BY_CHANCE = 0.001
# share of the tickets that taught a rule, from which on a field that they lack is an empty cell
# like others
OFTEN = 0.05

FEW = 3  # values, or names, that are told

# letters of a name that is looked for in a text which is no code: shorter ones stand there by
# chance
SHORTEST = 3

NamedFields = Mapping[str, Sequence[str]]
"""Fields as rules name them, each with the keys of these rules."""


def find_named_fields(
    guidance: Guidance,
    vocabulary: Vocabulary,
    words: Words,
    is_whole: bool = True,
    only_needed: bool = False,
) -> dict[str, list[str]]:
    """The fields that rules name, with the keys of these; or those alone without which a rule
    cannot tell whether it holds. ``vocabulary`` is of tickets of the mission: the ``is_whole`` one
    of those that taught the rules, or else of some that are to be judged."""
    found: dict[str, list[str]] = {}
    for rule in read_rules(guidance, vocabulary, words, is_whole).each:
        for name in dict.fromkeys(_list_fields(rule.code, rule.text, vocabulary, only_needed)):
            found.setdefault(name, []).append(rule.key)
    return found


def keep_common(named: NamedFields, taught: Sequence[Ticket]) -> NamedFields:
    """Those of the fields that the tickets that taught the rules do not lack often."""
    lacking = _count_missing(named, taught)
    return {
        name: keys
        for name, keys in named.items()
        if not taught or lacking[name] < OFTEN * len(taught)
    }


def find_shares(named: NamedFields, taught: Sequence[Ticket]) -> dict[str, float]:
    """The share of the tickets that taught which lack each field."""
    lacking = _count_missing(named, taught)
    return {name: lacking[name] / len(taught) for name in named}


def find_told(
    guidance: Guidance, known: Sequence[Ticket], shown: Sequence[Ticket], words: Words
) -> tuple[str, ...]:
    """The fields that rules name and that each of the tickets ``shown`` tells; ``known`` are those
    of the run, if there is one."""
    named = find_named_fields(guidance, Vocabulary.of(known or shown), words, is_whole=bool(known))
    missing = (find_missing_fields(named, reading(ticket), by_code=True) for ticket in shown)
    lacked = {name for names in missing for name in names}
    return tuple(name for name in named if name not in lacked)


def is_unusual(lacking: int, tickets: int, share: float) -> bool:
    """Whether so many of ``tickets`` lack what a ``share`` of others do not by chance: by the bound
    of Chernoff and Hoeffding (1963), which is exact where all lack it."""
    found, share = lacking / tickets, max(share, SELDOM)
    if found <= share:
        return False
    divergence = found * math.log(found / share) + (
        (1 - found) * math.log((1 - found) / (1 - share)) if found < 1 else 0
    )
    return -tickets * divergence < math.log(BY_CHANCE)


def find_missing_fields(named: Iterable[str], ticket: Reading, by_code: bool = False) -> list[str]:
    """Those of the fields that a ticket lacks, of which code wants the very name. Of counts, one
    that is not there is 0."""
    return [] if ticket.is_counted else _list_missing(named, ticket.pairs, by_code)


def _count_missing(named: Iterable[str], tickets: Sequence[Ticket]) -> Counter[str]:
    """How many of the tickets lack each of the fields."""
    return Counter(
        name for ticket in tickets for name in find_missing_fields(named, reading(ticket))
    )


def _list_missing(named: Iterable[str], there: Iterable[str], by_code: bool) -> list[str]:
    """Those of the fields that are not ``there``."""
    fold = str if by_code else str.casefold
    known = set(map(fold, there))
    return [name for name in named if fold(name) not in known]


def explain_missing(named: NamedFields, ticket: Ticket, by_code: bool = False) -> str:
    """Why a person should see a ticket that lacks such fields; empty where it has all."""
    missing = find_missing_fields(named, reading(ticket), by_code) if named else ()
    return "; ".join(f"no {name}, which {_join(named[name])}" for name in missing)


def _join(keys: Sequence[str]) -> str:
    return f"{' and '.join(keys)} name{'s' * (len(keys) == 1)}"


def _list_few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:FEW])) + ", ..." * (len(names) > FEW)


def _list_fields(
    code: RuleCode | OutOfReach, text: str, vocabulary: Vocabulary, only_needed: bool
) -> Iterable[str]:
    """The fields that a rule names, or needs; of one that cannot be read as code, those whose names
    stand in its text."""
    if isinstance(code, RuleCode):
        return code.expression.needed if only_needed else code.expression.fields
    unknown = [code.field] if code.field and vocabulary.is_tabular else []
    long_ones = (name for name in vocabulary.values if len(name) >= SHORTEST)
    names = (
        name
        for name in long_ones
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE)
    )
    return [*unknown, *names]


@dataclass(frozen=True, slots=True)
class Doubts:
    """By mission, what there is to doubt; plain data, for a commit."""

    fields: Mapping[str, NamedFields]
    # that more tickets lack than of those that taught
    unusual: Mapping[str, NamedFields] = field(default_factory=dict)

    def explain(self, ticket: Ticket, by_code: bool) -> str:
        """Why a person should see the verdict on a ticket; empty where nothing speaks for it. Code
        leaves a ticket undecided itself that lacks what its verdict hangs on."""
        named = {} if by_code else self.fields.get(ticket.mission, {})
        return explain_missing({**named, **self.unusual.get(ticket.mission, {})}, ticket, by_code)


@dataclass(frozen=True, slots=True)
class StrangeValues:
    """Values that no ticket of training had, counted as tickets are looked over."""

    kinds: Mapping[str, Set[str]]  # field that rules name -> all values that training knew
    counts: Counter[str] = field(default_factory=Counter)  # field -> tickets with other values
    examples: dict[str, dict[str, None]] = field(default_factory=dict)  # some of these

    @classmethod
    def beside(cls, vocabulary: Vocabulary, named: Iterable[str]) -> StrangeValues:
        """None yet, of the fields ``named`` of which the ``vocabulary`` of training holds all
        values."""
        return cls({name: values for name in named if (values := vocabulary.list_kinds(name))})

    def add(self, rows: Mapping[str, Iterable[str]]) -> None:
        """The values of fields in further tickets; empty where one has none."""
        for name in self.kinds.keys() & rows.keys():
            for value, count in Counter(rows[name]).items():
                if value and fold_value(value) not in self.kinds[name]:
                    self.counts[name] += count
                    if len(some := self.examples.setdefault(name, {})) <= FEW:
                        some[value] = None

    def describe(self, tickets: int) -> Iterator[str]:
        """A line for each field with such values in some of so many ``tickets``."""
        for name in filter(self.counts.get, self.kinds):
            of = f"{self.counts[name]:,} of {tickets:,} tickets have a value of {name!r}"
            yield f"{of} that no ticket of training had: {_list_few([*self.examples[name]])}"


@dataclass(frozen=True, slots=True)
class Survey:
    """Fields that tickets lack, counted as they are looked over."""

    doubts: Doubts  # without what is unusual
    records: Mapping[str, RuleRecord]  # by mission: how often rules were right
    named: Mapping[str, NamedFields]  # by mission: all fields that rules name
    shares: Mapping[
        str, Mapping[str, float]
    ]  # mission -> of each, how many tickets lack it, where those that taught are known
    tickets: Counter[str]  # by mission
    lacking: Counter[tuple[str, str]]  # (mission, field) -> tickets
    # mission -> the fields that tickets have, of a mission with rules that name any
    there: dict[str, dict[str, None]]
    strange: Mapping[str, StrangeValues]  # by mission
    # mission -> all columns of the tickets that taught, where these are known
    columns: Mapping[str, Set[str]]
    by_code: bool  # whether rules judge as code, alone or first
    are_tables: bool  # whether any of the ticket files is one

    @classmethod
    def of(
        cls,
        config: UseConfig,
        source: str,
        all_guidance: Mapping[str, Guidance],
        known: Sequence[Ticket],
        are_taught: bool,
        by_code: bool,
    ) -> Survey:
        """Nothing counted yet. ``known`` are the tickets that taught the rules of ``source``, if
        they ``are_taught``, or else some that are to be judged; ``by_code``: the caller has code
        judge."""
        words = words_of(config.prompt, config.model)
        guidance = {mission: each for mission, each in all_guidance.items() if len(each.rules) > 1}
        taught = known if are_taught else ()
        records = {mission: read_record(source, each, taught) for mission, each in guidance.items()}
        fields, every, shares, strange, columns = {}, {}, {}, {}, {}
        for mission, each in guidance.items():
            mine = [ticket for ticket in known if ticket.mission == mission]
            vocabulary = Vocabulary.of(mine)
            named, needed = (
                find_named_fields(each, vocabulary, words, are_taught, only)
                for only in (False, True)
            )
            every[mission] = named
            fields[mission] = keep_common(needed, mine) if are_taught else needed
            if mine and are_taught:
                shares[mission] = find_shares(named, mine)
            strange[mission] = StrangeValues.beside(
                vocabulary if are_taught else Vocabulary.of_named(each.named), named
            )
            if are_taught and all(
                ticket.content and not ticket.content.is_counted for ticket in mine
            ):
                columns[mission] = vocabulary.values.keys()
        by_code = by_code or any(each.judge == "rules" for each in all_guidance.values())
        are_tables = any(map(is_table, config.tickets))
        counts = Counter[str](), Counter[tuple[str, str]](), dict[str, dict[str, None]]()
        return cls(
            Doubts(fields), records, every, shares, *counts, strange, columns, by_code, are_tables
        )

    def add(self, ticket: Ticket) -> None:
        """One more ticket."""
        self.tickets[ticket.mission] += 1
        if named := self.named.get(ticket.mission):
            read = reading(ticket)
            self.strange[ticket.mission].add({name: [value] for name, value in read.pairs.items()})
            missing = find_missing_fields(named, read, self.by_code)
            self._count(ticket.mission, read.pairs, missing, 1)

    def add_rows(self, mission: str, rows: Mapping[str, Sequence[str]]) -> None:
        """So many rows of a mission by their fields; empty where one lacks a field."""
        there = Counter(zip(*(map(bool, values) for values in rows.values()), strict=True))
        self.tickets[mission] += there.total()
        if named := self.named.get(mission):
            self.strange[mission].add(rows)
            for has, count in there.items():
                names = [*compress(rows, has)]
                self._count(mission, names, _list_missing(named, names, self.by_code), count)

    def _count(
        self, mission: str, there: Iterable[str], missing: Iterable[str], tickets: int
    ) -> None:
        """So many tickets in which these fields are ``there``, and those of rules ``missing``."""
        self.there.setdefault(mission, {}).update(dict.fromkeys(there))
        self.lacking.update({(mission, name): tickets for name in missing})

    def check(self) -> None:
        """Raise ``InputError`` where rules name what no ticket has, though it is no field that is
        empty at times: its column has another name, or lost its values, and judging would be in
        vain, or wrong."""
        for mission, named in self.named.items():
            tickets = self.tickets[mission]
            gone = next((name for name in named if self._is_gone(mission, name)), None)
            if gone is None:
                continue
            known = self.columns.get(mission, named)
            near = find_renamed(
                gone, (name for name in self.there.get(mission, {}) if name not in known)
            )
            remedy = (
                f"; the nearest is {near!r}; call the column as the rules do"
                if near
                else "; give its values"
            )
            if near and self.are_tables:
                remedy += f" ({write_option('columns.rename', {near: gone})})"
            what = (
                f"none of {tickets:,} tickets has {gone!r}, which "
                f"{_join(named[gone])}{self._compare_share(mission, gone)}"
            )
            raise InputError(f"{mission}: {what}{remedy}, or give guidance without them")

    def conclude(self) -> Doubts:
        """Conclude what there is to doubt, once all tickets were looked over."""
        unusual = {
            mission: {
                name: named[name]
                for name, share in shares.items()
                if self._is_unusual(mission, name, share)
            }
            for mission, named in self.named.items()
            if (shares := self.shares.get(mission))
        }
        return replace(
            self.doubts, unusual={mission: named for mission, named in unusual.items() if named}
        )

    def _is_unusual(self, mission: str, name: str, share: float) -> bool:
        return bool(self.tickets[mission]) and is_unusual(
            self.lacking[mission, name], self.tickets[mission], share
        )

    def _is_gone(self, mission: str, name: str) -> bool:
        share = self.shares.get(mission, {}).get(name, 0.0)
        return self.lacking[mission, name] == self.tickets[mission] >= SEVERAL and (
            not share or self._is_unusual(mission, name, share)
        )

    def _compare_share(self, mission: str, name: str) -> str:
        share = self.shares.get(mission, {}).get(name)
        return f" (of the tickets learnt from {share:.0%} lacked it)" if share else ""

    def describe(self, prices: Prices) -> Iterator[str]:
        """Lines that a person should know before tickets are judged, where errors cost
        ``prices``."""
        unless = " unless another rule decides them" if self.by_code else ""
        unusual = self.conclude().unusual
        for mission, named in self.named.items():
            tickets = self.tickets[mission]
            for name, keys in named.items():
                count, than = self.lacking[mission, name], self._compare_share(mission, name)
                if name in unusual.get(mission, {}):
                    what = f"{than}: these go to review"
                elif needing := self.doubts.fields.get(mission, {}).get(name):
                    keys, what = needing, f": these go to review{unless}"
                else:
                    what = than if count == tickets else ""
                if count and what:
                    of = f"{count:,} of {tickets:,} tickets ({count / tickets:.0%})"
                    yield f"{mission}: {of} have no {name!r}, which {_join(keys)}{what}"
        for mission, strange in self.strange.items():
            yield from (f"{mission}: {said}" for said in strange.describe(self.tickets[mission]))
        for mission, known in self.columns.items():
            if new := [name for name in self.there.get(mission, ()) if name not in known]:
                yield (
                    f"{mission}: no ticket of training had {_list_few(new)}: no rule speaks of that"
                )
        for mission, record in self.records.items():
            yield from name_doubtful(mission, record, prices)


def send_to_review(row: Mapping[str, Any], doubt: str) -> dict[str, Any]:
    """A row of predictions, with one more reason for a person to look, if there is one."""
    if not doubt:
        return dict(row)
    return {**row, "review": True, "why": f"{row['why']}; {doubt}" if row["why"] else doubt}
