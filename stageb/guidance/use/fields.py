"""Fields that rules name and tickets lack: a verdict on such a ticket is a guess, so a person should see it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from stageb.errors import InputError
from stageb.guidance.prompts import Words
from stageb.guidance.reflection.conditions import reading
from stageb.guidance.rules.expression import atoms
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.parse import OutOfReach, RuleCode
from stageb.guidance.rules.scales import Scale
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import Guidance, Ticket

SEVERAL = 10  # tickets, from which on a field that none of them has is not one that happens to be empty
OFTEN = 0.05  # share of the tickets that taught a rule, from which on a field that they lack is an empty cell like others

SHORTEST = 3  # letters of a name that is looked for in a text which is no code: shorter ones stand there by chance

NamedFields = Mapping[str, Sequence[str]]
"""Fields as rules name them, each with the keys of these rules."""


def find_named_fields(
    guidance: Guidance, known: Sequence[Ticket], words: Words, scales: Sequence[Scale], taught: bool
) -> dict[str, list[str]]:
    """The fields that rules name, with the keys of these. ``known`` are tickets of the mission: those that ``taught`` the
    rules, or else some that are to be judged; what those that taught lack often is left out. Rules rank by ``scales``."""
    vocabulary = Vocabulary.of(known, scales)
    found: dict[str, list[str]] = {}
    for rule in read_rules(guidance, vocabulary, words):
        for name in dict.fromkeys(_list_fields(rule.code, rule.text, vocabulary)):
            found.setdefault(name, []).append(rule.key)
    if taught and known:
        lacking = {name: sum(name in find_missing({name: []}, ticket) for ticket in known) for name in found}
        found = {name: keys for name, keys in found.items() if lacking[name] < OFTEN * len(known)}
    return found


def find_missing(named: NamedFields, ticket: Ticket) -> list[str]:
    """Those of the fields that a ticket lacks. Of counts, one that is not there is 0."""
    read = reading(ticket) if named else None
    if read is None or read.is_counted:
        return []
    there = {name.casefold() for name in read.pairs}
    return [name for name in named if name.casefold() not in there]


def explain_missing(named: NamedFields, ticket: Ticket) -> str:
    """Why a person should see a ticket that lacks such fields; empty where it has all."""
    return "; ".join(f"no {name}, which {_join(named[name])}" for name in find_missing(named, ticket))


def describe_missing(
    mission: str, named: NamedFields, lacking: Mapping[str, int], tickets: int, by_code: bool
) -> Iterator[str]:
    """A line for each field that some of so many ``tickets`` lack; ``by_code``: where the other rules may decide them."""
    unless = " unless another rule decides them" if by_code else ""
    for name, count in lacking.items():
        yield (
            f"{mission}: {count:,} of {tickets:,} tickets ({count / tickets:.0%}) have no {name!r}, which "
            f"{_join(named[name])}: these go to review{unless}"
        )


def check_there(mission: str, named: NamedFields, lacking: Mapping[str, int], tickets: int, there: Iterable[str]) -> None:
    """Raise ``InputError`` where none of so many ``tickets``, whose fields are ``there``, has one that rules name: their
    column has another name, and judging them would be in vain."""
    gone = [name for name in named if lacking[name] == tickets >= SEVERAL]
    if not gone:
        return
    names = {name.casefold(): name for name in there}
    near = difflib.get_close_matches(gone[0].casefold(), names, n=1)
    hint = f"; the nearest is {names[near[0]]!r}" if near else ""
    raise InputError(
        f"{mission}: none of {tickets:,} tickets has {gone[0]!r}, which {_join(named[gone[0]])}{hint}; call the column as "
        "the rules do, or give guidance without them"
    )


def _join(keys: Sequence[str]) -> str:
    return f"{' and '.join(keys)} name{'s' * (len(keys) == 1)}"


def _list_fields(code: RuleCode | OutOfReach, text: str, vocabulary: Vocabulary) -> Iterable[str]:
    """The fields that a rule names; of one that cannot be read as code, those whose names stand in its text."""
    if isinstance(code, RuleCode):
        return [name for atom in atoms(code.expression) for name in atom.fields]
    unknown = [code.field] if code.field and vocabulary.is_tabular else []
    long_ones = (name for name in vocabulary.values if len(name) >= SHORTEST)
    names = (name for name in long_ones if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE))
    return [*unknown, *names]
