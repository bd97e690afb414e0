"""How well failures that tickets do not explain are told from others: bin/bench doubts

Rules are learnt from half of a set in which some passing tickets are labelled fail, so that they
are a given share of its failures; the other half, as it was, tells what that costs the rules. Of
the planted failures, how many the rules pass, and of those that they pass, how many were planted or
passed with the labels as they were.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from lab.bench.labels import are_right, learn
from lab.bench.rows import add_sets, find_set
from stageb.guidance.commands.use.doubted_labels import find_doubts
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.types import Content, Guidance, Ticket
from stageb.seeds import shuffled, stream, uniform

SETS = "car_evaluation cylinder_bands house_votes maintie monk1 tic_tac_toe".split()
MADE_UP = {  # sets of which the rules are known
    "made-up values": lambda a, b, x, y: a == 0 or (a == 1 and b == 2),
    "made-up numbers": lambda a, b, x, y: x > 85 or (x < 20 and y > 60),
    "made-up mixed": lambda a, b, x, y: (a == 0 and b < 2) or y > 90 or (b == 3 and x < 25),
}
TICKETS = 2000  # of a made-up set
MOST_TRAIN_TICKETS = 2000


def main(arguments: Sequence[str]) -> int:
    """Print a line for each set and share."""
    parser = argparse.ArgumentParser(prog="bin/bench doubts", description=__doc__)
    add_sets(parser, SETS)
    parser.add_argument(
        *("--shares", "--share"), nargs="+", type=float, default=[0.1, 0.2], help="of failures"
    )
    asked = parser.parse_args(arguments)
    print("set              share  planted  listed  recall  precision  accuracy, without planted")
    for name in [*MADE_UP, *asked.sets]:
        if name in MADE_UP:
            tickets = make_up(name)
        else:
            tickets, _ = read_tickets([str(find_set(asked.data, name))], "skip")
        halves: tuple[list[Ticket], list[Ticket]] = [], []
        for ticket in tickets:
            halves[uniform(stream(5, "half", ticket.group), 0) >= 0.5].append(ticket)
        train, new = halves[0][:MOST_TRAIN_TICKETS], halves[1]
        before, guidance = list_passed(train)
        clean = measure(guidance, train, new)
        for share in asked.shares:
            planted, dirty = plant(train, share, stream(3, name))
            listed, guidance = list_passed(dirty)
            hits = len(planted & listed)
            figures = (
                f"{hits / len(planted):6.2f}  {len(listed & (planted | before)) / len(listed):9.2f}"
                if listed
                else f"{0:6.2f}          -"
            )
            print(
                f"{name:15}  {share:5.0%}  {len(planted):7}  {len(listed):6}  {figures}  "
                f"{measure(guidance, dirty, new):8.1%}, {clean:.1%}",
                flush=True,
            )
    return 0


def make_up(name: str) -> list[Ticket]:
    """Tickets of two named values and two numbers, and two that tell nothing."""
    tickets = []
    for n in range(TICKETS):
        draw = [uniform(stream(1, name, n), place) for place in range(6)]
        a, b, c = (int(5 * each) for each in draw[:3])
        x, y, z = (round(100 * each, 1) for each in draw[3:])
        fields = {"part": f"p{a}", "seal": f"s{b}", "bay": f"b{c}", "heat": x, "load": y, "hour": z}
        said = tuple((field, str(value)) for field, value in fields.items())
        label = "fail" if MADE_UP[name](a, b, x, y) else "pass"
        shown = (("image_1", str(said)),)
        tickets.append(Ticket(name, f"t{n}", label, shown, content=Content(said, ())))
    return tickets


def plant(tickets: Sequence[Ticket], share: float, key: int) -> tuple[set[str], list[Ticket]]:
    """Passing tickets labelled fail, by name, so many that they are this share of the failures; and
    all tickets with them."""
    fails = {ticket.group_id for ticket in tickets if ticket.label == "fail"}
    passes = [each.group_id for each in tickets if each.group_id not in fails]
    count = round(share / (1 - share) * (len(tickets) - len(passes)))
    planted = {*shuffled(passes, key)[:count]}
    return planted, [
        replace(ticket, label="fail") if ticket.group_id in planted else ticket
        for ticket in tickets
    ]


def list_passed(tickets: Sequence[Ticket]) -> tuple[set[str], Guidance]:
    """The names of failures that rules learnt from the same tickets pass, beside the guidance."""
    guidance, _ = learn(tickets)
    judge = CodeJudge(code_rules({guidance.mission: guidance}, tickets, WORDS["en"]))
    doubts = find_doubts(tickets, judge, {})
    return {each.ticket.group_id for each in doubts if each.verdict == "pass"}, guidance


def measure(guidance: Guidance, taught: Sequence[Ticket], tickets: Sequence[Ticket]) -> float:
    """The share of tickets that the rules judge right."""
    return sum(are_right(guidance, Vocabulary.of(taught), tickets)) / len(tickets)
