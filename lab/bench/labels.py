"""Missions with labels of their own, whose rules are known: bin/bench labels

Of 600 tickets, each label but one has a value of one field that tells it, in the order of the
labels. Code learns the rules at once and proves them (``at_once.py``). Shown is in how many seeds
they are proven, and judge at least 99 % of 2,000 new tickets right. Then the same with labels dealt
anew, where a proof is a false one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from stageb.guidance.config import LoopConfig, ReflectionConfig, RunnerConfig, SplitConfig
from stageb.guidance.judging.questions import Dialogue, JudgeTickets, answer_all
from stageb.guidance.learning.at_once import RuleLearner
from stageb.guidance.learning.gate.budget import Pool, divide_budget
from stageb.guidance.learning.proposer import GateResult
from stageb.guidance.learning.state import MissionState
from stageb.guidance.learning.tools import Tools
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.prompts import WORDS, Words
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.groups import whole_groups
from stageb.guidance.tickets.splits import find_default, rank_labels, split_tickets
from stageb.guidance.words.types import Content, Guidance, Judgement, Ticket
from stageb.seeds import shuffled, stream, uniform

CONFIG = LoopConfig(
    tickets=["planted"],
    split=SplitConfig(1.0, 0.0, 0.0),
    runner=RunnerConfig(judge="both"),
    reflection=ReflectionConfig(scope="all", arithmetic=True),
)
TICKETS, NEW, VALUES = 600, 2000, 5
LABELS = (3, 5, 12)
DEALT = 5  # labels of missions whose labels are dealt anew


def plant(labels: int, tickets: int, key: int, anew: bool = False) -> list[Ticket]:
    """Tickets whose labels are told by one value of a field each; ``anew``: dealt by chance."""
    names = [f"queue {chr(ord('a') + n)}" for n in range(labels)]
    fields = [f"field {n}" for n in range(max(4, labels))]
    draws = [
        [int(VALUES * uniform(stream(key, n), place)) for place in range(len(fields))]
        for n in range(tickets)
    ]
    rows = [
        {name: f"v{value}" for name, value in zip(fields, drawn, strict=True)} for drawn in draws
    ]
    told = [
        next((names[n] for n in range(1, labels) if row[fields[n]] == "v0"), names[0])
        for row in rows
    ]
    if anew:
        told = shuffled(told, stream(key, "anew"))
    return [
        Ticket(
            "mail",
            f"t{n}",
            label,
            (("image_1", str(row)),),
            content=Content(tuple(row.items()), ()),
        )
        for n, (label, row) in enumerate(zip(told, rows, strict=True))
    ]


def learn(tickets: Sequence[Ticket], config: LoopConfig = CONFIG) -> tuple[Guidance, bool]:
    """The guidance that tickets of one mission teach, and whether it is proven."""
    ((name, splits),) = split_tickets(tickets, config).items()
    labels, vocabulary = rank_labels(tickets, splits), Vocabulary.of(tickets)
    words = WORDS[config.prompt.language]
    pool = Pool(whole_groups(splits.test_order, tickets), config.gating.pool_size)
    tools = Tools(
        config, tickets, splits, pool, vocabulary, lambda some: [9] * len(some), 16, labels=labels
    )
    default = find_default(tickets, splits, labels, config.price.by_label)
    mission = MissionState(
        make_neutral(name, words, labels, default), divide_budget(config.gating, 1)
    )

    def judge(question: Any) -> list[list[Judgement]]:
        assert isinstance(question, JudgeTickets)  # no model is there
        judged = [
            are_right(guidance, vocabulary, [tickets[i] for i in places], words)
            for guidance, places in question.asked
        ]
        return [[Judgement(float(each), 0, True) for each in some] for some in judged]

    def learning() -> Dialogue[GateResult]:
        learner = RuleLearner(tools)
        after, (bundle,) = yield from learner.draw(mission)
        (lesson,) = yield from learner.propose([bundle], after.guidance)
        return (yield from learner.prove(after, bundle, lesson))

    learnt = answer_all(learning(), judge)
    (tried,) = learnt.decision.tried or (None,)
    winner = learnt.decision.winner
    return (
        winner.guidance if winner else mission.guidance,
        tried is not None and tried.outcome == "accepted",
    )


def are_right(
    guidance: Guidance,
    vocabulary: Vocabulary,
    tickets: Sequence[Ticket],
    words: Words = WORDS["en"],
) -> list[bool]:
    """Whether rules as code give tickets their labels."""
    judge = read_rules(guidance, vocabulary, words).compile()
    return [judge(reading(ticket)).verdict == ticket.label for ticket in tickets]


def main(arguments: Sequence[str]) -> int:
    """Print what is proven and found."""
    parser = argparse.ArgumentParser(prog="bin/bench labels", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="of each number of labels")
    parser.add_argument(
        "--dealt", type=int, default=100, help="missions whose labels are dealt anew"
    )
    asked = parser.parse_args(arguments)
    for labels in LABELS:
        proven = found = 0
        for seed in range(asked.seeds):
            tickets = plant(labels, TICKETS, stream(seed, labels))
            guidance, is_proven = learn(tickets)
            right = are_right(
                guidance, Vocabulary.of(tickets), plant(labels, NEW, stream(seed, labels, "new"))
            )
            proven, found = proven + is_proven, found + (sum(right) >= 0.99 * NEW)
        print(
            f"{labels} labels: {proven} of {asked.seeds} proven, {found} judge 99 % of new "
            f"tickets right",
            flush=True,
        )
    false = sum(
        learn(plant(DEALT, TICKETS, stream(seed, "dealt"), anew=True))[1]
        for seed in range(asked.dealt)
    )
    print(
        f"{DEALT} labels dealt anew: {false} of {asked.dealt} proven, at alpha "
        f"{CONFIG.gating.alpha}"
    )
    return 0
