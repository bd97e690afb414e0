"""The benchmark's data sets: what they promise to methods and to readers of its tables."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from pathlib import Path

import pytest

from lab.bench.learning import data, missions
from stageb.guidance.rules.candidates import reading
from stageb.guidance.tickets import tickets as ticket_files
from stageb.guidance.words.types import Ticket

NAMES = [*missions.MISSIONS, *data.DEMO]
DIGESTS = {
    "plain": "1bd29ee30ac8ca31750666cda9107adc",
    "exceptions": "aeaa0520f300f8c04da848115cf278de",
    "notes": "bc4e115834348abb30ac23ed71d03666",
}


def facts_of(ticket: Ticket) -> dict[str, str]:
    facts = {}
    for _, summary in ticket.per_image:
        for part in summary.split("; "):
            name, colon, value = part.partition(": ")
            facts.update({name: value} if colon else {"text": part})
    return facts


@pytest.mark.parametrize("name", missions.MISSIONS)
def test_labels_follow_the_hidden_rules_but_for_those_that_are_flipped(name: str) -> None:
    mission, tickets = missions.MISSIONS[name], missions.tickets(name)
    wrong = sum((ticket.label == "fail") != mission.fails(facts_of(ticket)) for ticket in tickets)
    assert abs(wrong / len(tickets) - mission.flipped) < 0.03
    assert (wrong == 0) == (mission.flipped == 0)


@pytest.mark.parametrize("name", missions.MISSIONS)
def test_the_words_of_made_missions_are_those_that_training_keeps_out(name: str) -> None:
    shown = " ".join(
        ticket.mission + " " + summary
        for ticket in missions.tickets(name)
        for _, summary in ticket.per_image
    )
    assert [word for word in set(re.findall(r"\w+", shown)) if zlib.crc32(word.encode()) % 10] == []


def test_made_tickets_are_the_same_on_every_machine() -> None:
    digests = {name: ticket_files.fingerprint(missions.tickets(name)) for name in missions.MISSIONS}
    assert digests == DIGESTS


@pytest.mark.parametrize("name", NAMES)
def test_tickets_written_down_are_read_back(name: str, tmp_path: Path) -> None:
    tickets = data.load(name, None)
    assert tickets
    data.write(tickets, tmp_path / "tickets.jsonl")
    read, _ = ticket_files.read_tickets([tmp_path / "tickets.jsonl"], "error")
    assert ticket_files.fingerprint(read) == ticket_files.fingerprint(tickets)
    assert len({ticket.mission for ticket in tickets}) == 1


def test_a_folder_of_ticket_files_is_found_by_name_and_a_missing_one_is_none(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine").mkdir()
    data.write(missions.tickets("plain")[:3], tmp_path / "mine" / "tickets.jsonl")
    assert len(data.load("mine", tmp_path) or ()) == 3
    assert data.load("yours", tmp_path) is None
    assert data.load("mine", None) is None


@pytest.mark.parametrize("name", NAMES)
def test_shuffled_labels_favour_neither_verdict_and_follow_nothing(name: str) -> None:
    tickets = data.load(name, None)
    assert tickets
    one, other = (data.shuffled_labels(tickets, seed) for seed in (1, 2))
    for dealt in (one, other):
        shares = Counter(t.label for t in dealt)
        assert 0 <= shares["pass"] - shares["fail"] <= 1, "or the commoner verdict could be learnt"
        assert [t.per_image for t in dealt] == [t.per_image for t in tickets]
        assert len({t.group_id for t in dealt}) == len(tickets), (
            "a group that stood in two splits would tell its label"
        )
    labels = [[t.label for t in some] for some in (tickets, one, other)]
    assert labels[0] != labels[1] != labels[2] != labels[0]


@pytest.mark.parametrize("name", NAMES)
def test_permuted_labels_are_as_rare_as_before_and_follow_nothing(name: str) -> None:
    tickets = data.load(name, None)
    assert tickets
    one, other = (data.permuted_labels(tickets, seed) for seed in (1, 2))
    labels = [[t.label for t in some] for some in (tickets, one, other)]
    assert Counter(labels[0]) == Counter(labels[1]) == Counter(labels[2])
    assert labels[0] != labels[1] != labels[2] != labels[0]
    assert [t.per_image for t in one] == [t.per_image for t in tickets]
    assert len({t.group_id for t in one}) == len(tickets)


@pytest.mark.parametrize("name", NAMES)
def test_one_true_rule_says_the_labels_of_its_tickets_and_all_others_are_chance(name: str) -> None:
    tickets = data.load(name, None)
    assert tickets
    for seed in (1, 2, 3):
        dealt, ruled = data.one_rule(tickets, seed)
        assert 0.2 <= len(ruled) / len(tickets) <= 0.4
        assert {t.label for t in dealt if t.group_id in ruled} == {"fail"}
        others = Counter(t.label for t in dealt if t.group_id not in ruled)
        assert 0 <= others["pass"] - others["fail"] <= 1
        assert [t.per_image for t in dealt] == [t.per_image for t in tickets]
        shared = [
            {*reading(t).pairs.items(), *reading(t).words} for t in dealt if t.group_id in ruled
        ]
        marks = set.intersection(*shared)
        assert any(
            all(
                (t.group_id in ruled) == (mark in {*reading(t).pairs.items(), *reading(t).words})
                for t in dealt
            )
            for mark in marks
        )
    assert data.one_rule(tickets, 1) == data.one_rule(tickets, 1)
