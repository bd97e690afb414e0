"""How often bounds on tickets decided alone are broken, and how many tickets they let decide:
bin/bench automate

Rules are learnt from half of a set and judge the other half, the pool. From this, tickets are drawn
with replacement, as a user labels some; the bound that they prove is right or wrong of the whole
pool, which is known. Beside it, with the same scores: split conformal prediction (sureband, MAPIE,
where they are installed), whose sets hold the label with a probability of 1 - max_error over all
tickets; decided alone is a set of one label. They promise nothing of the tickets decided alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np

from lab.bench.labels import learn
from lab.bench.rows import add_sets, find_set
from stageb.guidance.judging.automation import Judged, Level, find_bounds, order_levels
from stageb.guidance.rules.candidates import reading
from stageb.guidance.rules.judge import read_rules
from stageb.guidance.rules.predicates import measure_margin
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.types import HEADLINE_KEY, Ticket
from stageb.seeds import stream, uniform

SETS = (
    "balance_scale car_evaluation cylinder_bands failure_mode house_votes maintie monk1 "
    "nursery_sample sf_food_condition stage_a steel_plates_faults tic_tac_toe"
).split()
MOST_TRAIN_TICKETS = 2000  # tickets to learn from


class Case(NamedTuple):
    """A ticket of the pool."""

    judged: Judged
    label: str


class Outcome(NamedTuple):
    """The outcome of one resample."""

    share: float  # of the pool, decided alone
    is_broken: bool  # whether more of these are wrong than was allowed


Decide = Callable[[Sequence[Case], float, Sequence[Judged]], list[bool]]
"""From labelled tickets and the errors allowed to whether each of some verdicts stands alone."""


def main(arguments: Sequence[str]) -> int:
    """Print a table for each ``max_error``."""
    parser = argparse.ArgumentParser(prog="bin/bench automate", description=__doc__)
    add_sets(parser, SETS)
    parser.add_argument(
        "--tickets",
        nargs="+",
        type=int,
        metavar="N",
        default=[50, 200, 1000],
        help="labelled, to draw",
    )
    parser.add_argument(
        "--max_error", nargs="+", type=float, metavar="X", default=[0.02, 0.05, 0.1], help="allowed"
    )
    parser.add_argument(
        "--resamples", type=int, metavar="N", default=200, help="of each set and size"
    )
    asked = parser.parse_args(arguments)
    sets = {name: judge_set(find_set(asked.data, name)) for name in asked.sets}
    print("max_error  tickets  method      decided  broken  broken, worst set  promised nothing")
    for max_error in asked.max_error:
        for tickets in asked.tickets:
            for method, make in METHODS.items():
                if method in ("sureband", "mapie") and not find_spec(method):
                    continue
                found = {
                    name: list(resample(*each, make, max_error, tickets, asked.resamples))
                    for name, each in sets.items()
                }
                every = [outcome for of in found.values() for outcome in of]
                worst = max(mean(outcome.is_broken for outcome in of) for of in found.values())
                cells = (
                    mean(each.share for each in every),
                    mean(each.is_broken for each in every),
                    worst,
                )
                none = mean(each.share == 0 for each in every)
                figures = f"{cells[0]:7.1%}  {cells[1]:6.1%}  {cells[2]:17.1%}  {none:.0%}"
                print(f"{max_error:9.2f}  {tickets:7}  {method:10}  {figures}")
    return 0


def judge_set(path: Path) -> tuple[list[Judged], list[Case]]:
    """The pilot and the pool of a set: the tickets that taught rules, and the others, as these
    rules judge them."""
    tickets, _ = read_tickets([str(path)], "skip")
    tickets = [ticket for ticket in tickets if ticket.mission == tickets[0].mission]
    halves: tuple[list[Ticket], list[Ticket]] = [], []
    for ticket in tickets:
        halves[uniform(stream(5, "half", ticket.group), 0) >= 0.5].append(ticket)
    taught = halves[0][:MOST_TRAIN_TICKETS]
    guidance, _ = learn(taught)
    judge = read_rules(guidance, Vocabulary.of(taught), WORDS["en"]).compile()

    def look(ticket: Ticket) -> Judged:
        ruling = judge(reading(ticket))
        margin = measure_margin(ruling, HEADLINE_KEY)
        return Judged(ruling.rule, margin, ruling.verdict, ruling.verdict == ticket.label)

    return [look(ticket) for ticket in taught], [
        Case(look(ticket), ticket.label) for ticket in halves[1]
    ]


def resample(
    pilot: Sequence[Judged],
    pool: Sequence[Case],
    make: Callable[[Sequence[Judged], Sequence[str]], Decide],
    max_error: float,
    tickets: int,
    count: int,
) -> Iterator[Outcome]:
    """Yield the outcomes of so many draws."""
    random = np.random.default_rng([tickets, round(1000 * max_error)])
    decide = make(pilot, sorted({case.label for case in pool}))
    kinds = list({case.judged._replace(is_right=False): None for case in pool})
    place = {kind: n for n, kind in enumerate(kinds)}
    of = np.array([place[case.judged._replace(is_right=False)] for case in pool])
    right = np.array([case.judged.is_right for case in pool])
    for _ in range(count):
        stand = decide([pool[n] for n in random.integers(0, len(pool), tickets)], max_error, kinds)
        alone = np.array(
            [kind.verdict is not None and stands for kind, stands in zip(kinds, stand, strict=True)]
        )[of]
        wrong = (~right[alone]).mean() if alone.any() else 0.0
        yield Outcome(float(alone.mean()), bool(wrong > max_error))


def make_ours(pilot: Sequence[Judged], labels: Sequence[str]) -> Decide:
    """Decide as ``stageb automate`` does."""

    def decide(drawn: Sequence[Case], max_error: float, kinds: Sequence[Judged]) -> list[bool]:
        bound = find_bounds(pilot, [case.judged for case in drawn], {"": max_error}, 0.95)[""].bound
        return [
            bound is not None and bound.covers(each.verdict, each.decider, each.margin)
            for each in kinds
        ]

    return decide


def make_rates(
    pilot: Sequence[Judged], labels: Sequence[str]
) -> Callable[[Judged], Mapping[str, float]]:
    """The probabilities of all labels by the pilot's levels, which are the scores of the other
    methods, too."""
    levels: list[Level] = order_levels(pilot)

    @cache
    def rate(each: Judged) -> Mapping[str, float]:
        rates = (
            of.accuracy for of in levels if of.decider == each.decider and each.margin >= of.margin
        )
        sure = max(rates, default=0.0) if each.verdict else 0.0
        rest = (1 - sure) / max(1, len(labels) - bool(each.verdict))
        return {label: sure if label == each.verdict else rest for label in labels}

    return rate


def make_sureband(pilot: Sequence[Judged], labels: Sequence[str]) -> Decide:
    """Adaptive prediction sets."""
    import sureband

    rate = make_rates(pilot, labels)

    def decide(drawn: Sequence[Case], max_error: float, kinds: Sequence[Judged]) -> list[bool]:
        calibrator = sureband.Calibrator(alpha=max_error)
        calibrator.fit(
            [({"type": "choice", "probabilities": rate(case.judged)}, case.label) for case in drawn]
        )
        return [
            calibrator.wrap({"type": "choice", "probabilities": rate(each)}).is_certain
            for each in kinds
        ]

    return decide


class _Given:
    """A classifier whose rows are probabilities already."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.classes_ = np.array(labels)

    def fit(self, rows: Any, labels: Any) -> _Given:
        return self

    def predict_proba(self, rows: Any) -> Any:
        return np.asarray(rows)

    def predict(self, rows: Any) -> Any:
        return self.classes_[np.asarray(rows).argmax(axis=1)]


def make_mapie(pilot: Sequence[Judged], labels: Sequence[str]) -> Decide:
    """Least ambiguous sets."""
    from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    rate = make_rates(pilot, labels)
    warnings.simplefilter("ignore")  # of classes that no ticket drawn has
    model = type("Given", (_Given, ClassifierMixin, BaseEstimator), {})(labels)

    def decide(drawn: Sequence[Case], max_error: float, kinds: Sequence[Judged]) -> list[bool]:
        rows = np.array([[*rate(case.judged).values()] for case in drawn])
        conformal = SplitConformalClassifier(
            model, confidence_level=1 - max_error, conformity_score="lac", prefit=True
        )
        conformal.conformalize(rows, np.array([case.label for case in drawn]))

        _, sets = conformal.predict_set(np.array([[*rate(each).values()] for each in kinds]))
        return [bool(of.sum() == 1) for of in sets]

    return decide


METHODS: Mapping[str, Callable[[Sequence[Judged], Sequence[str]], Decide]] = {
    "automate": make_ours,
    "sureband": make_sureband,
    "mapie": make_mapie,
}
