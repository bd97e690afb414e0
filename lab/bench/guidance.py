"""Code's learning from real tickets: how right it is, how long, and which hidden rules it states:
bin/bench guidance

Each set is a folder with a ticket file, learnt from under ``tickets.yaml`` and ``frugal.yaml`` and
judged by rules as code on the sealed test. Of made-up universities the rules behind the labels are
known. A hidden rule is stated if a learnt rule names the same fields and holds for the same
tickets, of all that the file has, or, being the only one, for all others; a learnt rule that states
none is an extra one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from lab.bench.labels import are_right, learn
from lab.bench.rows import add_sets, find_set
from stageb.cli.parsing import parse
from stageb.guidance.config import LoopConfig
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.conditions import Expression, Mentions, OutOfReach, compile_expression
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.rules.word_lists import find_word_lists
from stageb.guidance.tickets.splits import split_tickets
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.types import Guidance, Ticket

SETS = (
    "car_evaluation maintie monk1 house_votes tic_tac_toe balance_scale cylinder_bands "
    "failure_mode sf_food_three monk2 hypobench_admission_base hypobench_admission_depth_3 "
    "hypobench_admission_size_10"
).split()
HIDDEN = {  # what truth.json of each says, as rules
    "hypobench_admission_base": ["Pass if math grade is A."],
    "hypobench_admission_depth_3": [
        "Pass if math grade is A and publications is above 0 and applied major is Engineering.",
        "Pass if history grade is A and art grade is A and community service hours is above 10.",
        "Pass if math grade is A and leadership roles is above 2 and attendance rate is above 90.",
        "Pass if science grade is A and volunteer projects is above 1 and applied major is "
        "Medicine.",
        "Pass if family wealth index is above 8 and donated to school is True and attendance "
        "rate is above 85.",
    ],
    "hypobench_admission_size_10": [
        "Pass if applied major is Science, Medicine or Engineering and math grade is A or B and "
        "science grade is A.",
        "Pass if applied major is Arts, Business or Law and history grade is A or B and art "
        "grade is A or B.",
        "Pass if first generation college is True and attendance rate is above 85.",
        "Pass if leadership roles is above 2 and community service hours is above 30.",
        "Pass if volunteer projects is above 3 and attendance rate is above 90.",
        "Pass if family wealth index is above 8 and donated to school is True.",
        "Pass if academic integrity violation is False and criminal record is False.",
        "Pass if legacy status is True and math grade is A or B.",
        "Pass if faculty family member is True and attendance rate is above 95.",
        "Pass if applied major is Medicine and science grade is A and publications is above 1.",
    ],
}
# five grades are all that its tickets say
FORMS = {"hypobench_admission_base": ["--columns.repeats", "apart"]}


class Measured(NamedTuple):
    """The result of learning from one split."""

    accuracy: float  # on test
    conditions: int
    apart: int  # where each value of several, and each word of a list, is one
    guidance: Guidance


def main(arguments: Sequence[str]) -> int:
    """Print a line for each set. Raises ``InputError`` where one is not there."""
    parser = argparse.ArgumentParser(prog="bin/bench guidance", description=__doc__)
    add_sets(parser, SETS)
    parser.add_argument(
        "--seeds", nargs="+", type=int, metavar="N", default=[1, 2, 3], help="of the split"
    )
    parser.add_argument(
        "--conditions", type=int, metavar="N", help="in all rules; by default reflection.size"
    )
    parser.add_argument("--show", action="store_true", help="print the rules, too")
    asked = parser.parse_args(arguments)
    for name in asked.sets:
        path = find_set(asked.data, name)
        found = [measure(name, path, seed, asked.conditions) for seed in asked.seeds]
        right = [each.accuracy for each in found]
        sizes = [each.conditions for each in found]
        line = (
            f"{name:36}{100 * mean(right):6.1f} %  "
            f"{' '.join(f'{100 * each:.1f}' for each in right)}"
        )
        line += f"  {' '.join(map(str, sizes))} conditions"
        if stated := [_compare(name, path, each.guidance) for each in found if name in HIDDEN]:
            line += (
                f"  of {len(HIDDEN[name])} hidden rules stated: "
                f"{' '.join(str(one) for one, _ in stated)}"
            )
            line += f", extra: {' '.join(str(extra) for _, extra in stated)}"
        print(line, flush=True)
        for each in found if asked.show else ():
            print(
                "\n".join(f"    {rule.key}. {rule.text}" for rule in each.guidance.rules),
                end="\n\n",
            )
    return 0


def measure(name: str, path: Path, seed: int, conditions: int | None) -> Measured:
    """Learn from one split of a set, with so many conditions at most, and measure on its test."""
    config = _configure(
        name, path, seed, ["--reflection.size", str(conditions)] if conditions else []
    )
    tickets, (_, test) = read_set(name, path, seed)
    guidance, _ = learn(tickets, config)
    right = are_right(guidance, Vocabulary.of(tickets), test)
    counts = [_count(code.expression) for code in _read(guidance, tickets)]
    listed = [len(words) for words in find_word_lists(guidance.rules).values()]
    return Measured(
        mean(right),
        sum(own for own, _ in counts),
        sum(listed) + sum(apart for _, apart in counts),
        guidance,
    )


def read_set(
    name: str, path: Path, seed: int
) -> tuple[list[Ticket], tuple[list[Ticket], list[Ticket]]]:
    """All tickets of a set; those that teach, and those that test."""
    config = _configure(name, path, seed, [])
    tickets = read_tickets([path], config.on_bad_record, config.columns)[0]
    (splits,) = split_tickets(tickets, config).values()
    return tickets, ([tickets[i] for i in splits.train], [tickets[i] for i in splits.test])


def _configure(name: str, path: Path, seed: int, more: Sequence[str]) -> LoopConfig:
    words = [
        "--config",
        "tickets",
        "--config",
        "frugal",
        "--tickets",
        json.dumps([str(path)]),
        "--seed",
        str(seed),
    ]
    config = parse([*words, *FORMS.get(name, ()), *more]).config
    assert isinstance(config, LoopConfig)
    return config


def _compare(name: str, path: Path, guidance: Guidance) -> tuple[int, int]:
    """How many of the set's hidden rules are stated, and how many learnt rules state none."""
    tickets = read_tickets([path], "error")[0]
    hidden = [parse_rule(text, Vocabulary.of(tickets), WORDS["en"]) for text in HIDDEN[name]]
    assert not any(isinstance(code, OutOfReach) for code in hidden), hidden
    wanted = {_identify(code, tickets) for code in hidden if isinstance(code, RuleCode)}
    learnt = [_identify(code, tickets) for code in _read(guidance, tickets)]
    # the headline gives the other verdict to all others
    if len(learnt) == 1 and learnt[0] not in wanted:
        ((verdict, fields, held),) = learnt
        learnt = [
            ({"pass": "fail", "fail": "pass"}[verdict], fields, tuple(not each for each in held))
        ]
    return len(wanted & {*learnt}), sum(each not in wanted for each in learnt)


def _identify(
    code: RuleCode, tickets: Sequence[Ticket]
) -> tuple[str, frozenset[str], tuple[bool, ...]]:
    """The verdict, the fields that are named, and the tickets for which the rule holds."""
    holds = compile_expression(code.expression)
    fields = frozenset(code.expression.fields)
    return code.verdict, fields, tuple(bool(holds(reading(ticket))) for ticket in tickets)


def _read(guidance: Guidance, tickets: Sequence[Ticket]) -> Iterator[RuleCode]:
    for rule in read_rules(guidance, Vocabulary.of(tickets), WORDS["en"]).each:
        if isinstance(rule.code, RuleCode):
            yield rule.code


def _count(expression: Expression) -> tuple[int, int]:
    """The conditions in it: each comparison, word, word list, and item of a count or a card is one;
    and as trees and tables of points have them, where each of several values is one, too, and the
    words of lists are counted where these stand."""
    each = [*expression.conditions()]
    mentioned = [condition for condition in each if isinstance(condition, Mentions)]
    lists = {condition.word_list for condition in mentioned if condition.word_list}
    words = sum(len(condition.words) for condition in mentioned if not condition.word_list)
    values = sum(
        max(1, len(condition.named)) for condition in each if not isinstance(condition, Mentions)
    )
    return len(lists) + words + len(each) - len(mentioned), words + values
