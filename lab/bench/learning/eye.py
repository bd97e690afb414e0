"""What evidence can find: bin/bench eye --data FOLDER

Learning in small, without a model: rules are followed to the letter, and a proposal is a line of the evidence with ``Fail
if`` or ``Pass if`` before it, higher lines drawn more often. A bundle is a fold of the train tickets, its 16 proposals are
raced on 64 tickets that no fold has, the best four are tested on the other two folds by the sign test, and the surest is
accepted at a level of 0.003. So a hundred runs take minutes, and forms of evidence can be compared on many seeds. It is no
run of the loop: no budget is kept, and 24 bundles are learnt from whatever is accepted.

Shown per set and form: test accuracy after 6 bundles and after all, with the difference to plain evidence, paired by seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, log
from pathlib import Path
from statistics import fmean

from lab.bench.learning import data
from lab.bench.learning.cells import split
from lab.bench.learning.figures import gap, percent, table
from lab.bench.learning.method import ENGLISH
from lab.bench.learning.proposer import NEXT
from stageb.config import require
from stageb.guidance.prompts import clue_text
from stageb.guidance.reflection.conditions import PLAIN, Forms, reading
from stageb.guidance.reflection.evidence import Evidence, find_evidence
from stageb.guidance.rules.expression import compile_expression
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.types import FOLDS, Ticket, Verdict
from stageb.seeds import shuffled, stream, uniform

BUNDLES = 24
EARLY = 6  # bundles after which it is measured, too
PROPOSALS = 16
LINES = 12  # of evidence
RACED = 64  # tickets
TESTED = 4  # edits of a bundle
LEVEL = 0.003

WHOLE = "counted on all"
FORMS: Mapping[str, Forms] = {
    "plain": PLAIN,
    WHOLE: PLAIN,  # what is wrong by the rules that stand, or all that has the label
    "arithmetic": Forms(arithmetic=True),
    "phrases": Forms(phrases=True),
    "scales": Forms(scales=()),
}


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench eye", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--datasets", default=",".join(data.REAL), help="names with commas between them")
    parser.add_argument("--forms", default=",".join(FORMS), help=f"of {', '.join(FORMS)}; the first is compared with")
    parser.add_argument("--seeds", type=int, default=12, help="runs of every form on every set (default 12)")
    parser.add_argument("--data", type=Path, help="a folder with NAME/tickets.jsonl for data sets that are not built in")
    given = parser.parse_args(arguments)
    forms = given.forms.split(",")
    require({*forms} <= {*FORMS}, "--forms", given.forms, f"of {', '.join(FORMS)}")
    for name in given.datasets.split(","):
        tickets = data.load(name, given.data)
        require(tickets is not None, "--datasets", name, "a set that is built in, or in --data")
        rows, first = [], None
        for form in forms:
            runs = [learn(tickets or [], form, seed) for seed in range(1, given.seeds + 1)]
            first = first or runs
            gains = [run.accuracies[-1] - other.accuracies[-1] for run, other in zip(runs, first, strict=True)]
            early, last = (percent(fmean(run.accuracies[at] for run in runs)) for at in (EARLY - 1, -1))
            rows.append([name, form, early, last, gap(gains), f"{fmean(len(run.rules) for run in runs):.1f}"])
        print(
            table(["tickets", "evidence", f"{EARLY} bundles", f"{BUNDLES} bundles", "difference", "rules"], rows), flush=True
        )
    return 0


@dataclass(frozen=True, slots=True)
class Run:
    """What was learnt."""

    rules: Sequence[str]
    accuracies: Sequence[float]  # on test, after each bundle


def learn(tickets: Sequence[Ticket], form: str, seed: int) -> Run:
    """Learn from the train tickets of a split; bits of masks are places in ``tickets``."""
    world = World(tickets)
    parts = split(tickets, seed)
    train = shuffled(parts["train"], stream("eye", seed))
    raced = train[: min(RACED, len(train) // 3)]
    folds = [train[len(raced) + number :: FOLDS] for number in range(FOLDS)]
    race, test = world.mask(raced), world.mask(parts["test"])
    rules: tuple[str, ...] = ()
    accuracies = []
    for number in range(BUNDLES):
        fold = folds[number % FOLDS]
        others = world.mask([ticket for each in folds if each is not fold for ticket in each])
        before = world.right(rules)
        edits = [text for text in dict.fromkeys(_propose(world, fold, before, form, seed, number)) if text not in rules]
        after = {text: world.right((*rules, text)) for text in edits if world.reads(text)}
        best = sorted(after, key=lambda text: -_gain(before, after[text], race))[:TESTED]
        surest = min(best, key=lambda text: _sign_test(before, after[text], others), default="")
        if surest and _sign_test(before, after[surest], others) < LEVEL:
            rules = (*rules, surest)
        accuracies.append((world.right(rules) & test).bit_count() / test.bit_count())
    return Run(rules, accuracies)


class World:
    """Tickets, and which of them rules judge rightly."""

    def __init__(self, tickets: Sequence[Ticket]) -> None:
        self._readings = [reading(ticket) for ticket in tickets]
        self._vocabulary = Vocabulary.of(tickets)
        self._places = {ticket.key: place for place, ticket in enumerate(tickets)}
        self._all = (1 << len(tickets)) - 1
        self._fails = self.mask([ticket for ticket in tickets if ticket.label == "fail"])
        self._read = cache(self._read_rule)

    def mask(self, tickets: Sequence[Ticket]) -> int:
        """The bits of some tickets."""
        return sum(1 << self._places[ticket.key] for ticket in tickets)

    def is_in(self, mask: int, ticket: Ticket) -> bool:
        """Whether a ticket's bit is set."""
        return bool(mask >> self._places[ticket.key] & 1)

    def reads(self, rule: str) -> bool:
        """Whether a rule can be read as code."""
        return self._read(rule) is not None

    def right(self, rules: Sequence[str]) -> int:
        """Tickets whose verdict is their label: a ticket that a pass rule speaks of passes, or that no rule does."""
        said = {"pass": 0, "fail": 0}
        for rule in rules:
            read = self._read(rule)
            assert read
            said[read[0]] |= read[1]
        return self._all & ~((said["fail"] & ~said["pass"]) ^ self._fails)

    def _read_rule(self, rule: str) -> tuple[Verdict, int] | None:
        code = parse_rule(rule, self._vocabulary, ENGLISH)
        if not isinstance(code, RuleCode):
            return None
        holds = compile_expression(code.expression)
        return code.verdict, sum(1 << place for place, each in enumerate(self._readings) if holds(each))


def _propose(world: World, fold: Sequence[Ticket], right: int, form: str, seed: int, bundle: int) -> list[str]:
    """What a bundle brings: the label is drawn with its share of the errors, the line by its rank."""
    wrong = [ticket for ticket in fold if not world.is_in(right, ticket)]
    count: Callable[[Verdict], Evidence] = cache(lambda label: _count(world, fold, right, label, form))
    texts = []
    for answer in range(PROPOSALS if wrong else 0):
        key = stream("eye", seed, bundle, answer)
        label = wrong[int(uniform(key, 0) * len(wrong))].label
        clues = count(label).clues
        if clues:
            share = uniform(key, 1) * (1 - (1 - NEXT) ** len(clues))
            clue = clues[min(int(log(1 - share) / log(1 - NEXT)), len(clues) - 1)]
            texts.append(f"{label.capitalize()} if {clue_text(clue.conditions, ENGLISH)}.")
    return texts


def _count(world: World, fold: Sequence[Ticket], right: int, label: Verdict, form: str) -> Evidence:
    errors = [ticket for ticket in fold if ticket.label == label and (form == WHOLE or not world.is_in(right, ticket))]
    contrast = [ticket for ticket in fold if ticket.label != label and (form == WHOLE or world.is_in(right, ticket))]
    return find_evidence(errors, contrast, LINES, forms=FORMS[form])


def _gain(before: int, after: int, among: int) -> int:
    return (after & among).bit_count() - (before & among).bit_count()


def _sign_test(before: int, after: int, among: int) -> float:
    """The chance of so many tickets won among those that change, if each is won or lost with a half."""
    won, lost = (after & ~before & among).bit_count(), (before & ~after & among).bit_count()
    return sum(comb(won + lost, k) for k in range(won, won + lost + 1)) / 2.0 ** (won + lost)
