"""What forms of evidence find, simulated."""

from __future__ import annotations

import json

from lab.bench.learning import eye, missions
from lab.bench.learning.proposer import statistics
from stageb.engines.protocol import Decode, Prompt
from stageb.guidance.types import Ticket


def count_tickets() -> list[Ticket]:
    """Tickets that fail where two of three marks are set, and two marks beside them."""
    marks = [f"{n:07b}"[-5:] for n in range(32)] * 8
    texts = ["; ".join(f"{name}: {mark}" for name, mark in zip("abcde", each, strict=True)) for each in marks]
    return [
        Ticket("m", f"g{n:03d}", "fail" if each[:3].count("1") >= 2 else "pass", (("image_1", text),))
        for n, (each, text) in enumerate(zip(marks, texts, strict=True))
    ]


def test_a_simulated_run_learns_and_is_the_same_again() -> None:
    tickets = missions.tickets("plain")
    run = eye.learn(tickets, "plain", 1)
    assert run.accuracies[-1] >= 0.95
    assert run == eye.learn(tickets, "plain", 1)


def test_counts_are_found_where_they_are_looked_for() -> None:
    run = eye.learn(count_tickets(), "counts", 1)
    assert run.accuracies[-1] == 1
    assert any("at least 2 of (" in rule for rule in run.rules)


def test_what_makes_rules_of_the_evidence_names_cases_that_meet_them() -> None:
    user = (
        "Counted in 3 wrong that should fail, 2 right to pass:\n[1] 3 to 0: at least 2 of (a is 1; b is 1; c is 1)\n\n"
        "Right to pass:\nT1. a: 0; b: 0; c: 1\n\n"
        "Wrong or unsure, should fail:\nT2. a: 0; b: 1; c: 0\nT3. a: 1; b: 1; c: 0\nT4. a: 0; b: 1; c: 1"
    )
    (operation,) = json.loads(statistics(Prompt(system="", user=user), Decode(), 0))["operations"]
    assert operation["text"] == "Fail if at least 2 of (a is 1; b is 1; c is 1)."
    assert operation["evidence"] == ["T3", "T4"]
