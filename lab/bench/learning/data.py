"""The data sets of the benchmark, by name: synthetic ones, the demo's, and ticket files in a
folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from lab.bench.learning import missions
from stageb.demo import TICKETS
from stageb.errors import InputError
from stageb.guidance.rules.candidates import reading
from stageb.guidance.tickets import tickets as ticket_files
from stageb.guidance.tickets.groups import join_equal
from stageb.guidance.words.types import Ticket, Verdict
from stageb.seeds import shuffled, stream

MADE = tuple(missions.MISSIONS)  # parts of this loop were tuned on them
# read from a folder
REAL = ("car_evaluation", "maintie", "monk1", "tic_tac_toe", "balance_scale", "house_votes")
SPOKEN = (0.2, 0.4)  # the share of tickets of which a drawn rule speaks, least and most
DEMO = {"demo-rack": "rack cabling", "demo-site": "site photos"}


def load(name: str, folder: Path | None) -> list[Ticket] | None:
    """The tickets of one mission, or None where ``folder`` holds no ``{name}/tickets.jsonl``.

    Raises ``BadInputError`` where the file is there and cannot be used.
    """
    if name in missions.MISSIONS:
        return join_equal(missions.tickets(name))
    if name in DEMO:
        return [ticket for ticket in _read(TICKETS) if ticket.mission == DEMO[name]]
    path = (folder or Path()) / name / "tickets.jsonl"
    return _read(path) if path.is_file() else None


def shuffled_labels(tickets: Sequence[Ticket], seed: int) -> list[Ticket]:
    """The tickets with their labels dealt anew: there is nothing to learn. Every ticket gets a
    group_id of its own.

    As many fail as pass. Of labels in other shares the commoner one can be learnt: where most fail
    and the first guidance passes all, any rule that fails a ticket is a gain, and a true one.
    """
    return _dealt(tickets, frozenset(), stream("shuffled labels", seed))


def permuted_labels(tickets: Sequence[Ticket], seed: int) -> list[Ticket]:
    """The tickets with their labels in another order, so that as many fail as before. There is
    nothing to learn only where passing all, as the first guidance does, costs less than failing
    all. Every ticket gets a group_id of its own."""
    return _relabelled(
        tickets, shuffled([ticket.label for ticket in tickets], stream("permuted labels", seed))
    )


def one_rule(tickets: Sequence[Ticket], seed: int) -> tuple[list[Ticket], frozenset[str]]:
    """The tickets with one true rule, and the groups of which it speaks: they fail. The labels of
    all others are dealt anew.

    The rule is drawn: a pair ``name: value`` or a word that between a fifth and two fifths of the
    tickets have. Beside it, to fail more tickets or fewer gains nothing in the mean. Raises
    ``InputError`` where so many tickets share nothing.
    """
    have: dict[str, set[int]] = {}
    for number, read in enumerate(map(reading, tickets)):
        for mark in (*(f"{name}: {value}" for name, value in read.pairs.items()), *read.words):
            have.setdefault(mark, set()).add(number)
    fitting = [
        have[mark]
        for mark in sorted(have)
        if SPOKEN[0] <= len(have[mark]) / len(tickets) <= SPOKEN[1]
    ]
    if not fitting:
        raise InputError(
            f"{tickets[0].mission}: no pair and no word that {SPOKEN[0]:.0%} to {SPOKEN[1]:.0%} "
            f"of tickets have"
        )
    ruled = shuffled(fitting, stream("one rule", seed))[0]
    dealt = _dealt(tickets, ruled, stream("labels beside one rule", seed))
    return dealt, frozenset(dealt[number].group_id for number in ruled)


def _dealt(tickets: Sequence[Ticket], failed: Collection[int], key: int) -> list[Ticket]:
    """The tickets at the places ``failed`` fail; of the others as many fail as pass, in an order
    that ``key`` draws."""
    both: list[Verdict] = ["pass", "fail"]
    labels = iter(shuffled([both[number % 2] for number in range(len(tickets) - len(failed))], key))
    return _relabelled(
        tickets, ["fail" if number in failed else next(labels) for number in range(len(tickets))]
    )


def _relabelled(tickets: Sequence[Ticket], labels: Sequence[Verdict]) -> list[Ticket]:
    """The tickets with these labels, each with a group_id of its own."""
    dealt = zip(tickets, labels, strict=True)
    return join_equal(
        [
            replace(t, label=label, group_id=f"{number:05d}")
            for number, (t, label) in enumerate(dealt)
        ]
    )


def write(tickets: Sequence[Ticket], path: Path) -> None:
    """A ticket file as ``stageb fit`` reads it."""
    rows = (
        {
            "mission": t.mission,
            "group_id": t.group_id,
            "label": t.label,
            "per_image": dict(t.per_image),
        }
        for t in tickets
    )
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows),
        encoding="utf-8",
        newline="\n",
    )


def _read(path: Path) -> list[Ticket]:
    return ticket_files.read_tickets([path], "error")[0]
