"""Figures of labelled rows: accuracy and confusion of one guidance, and two compared, with an
interval and a p-value.

Functions of their arguments; rows are read once, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from stageb.guidance.learning.gate.sequential import mcnemar_p
from stageb.guidance.words.costs import (
    EQUAL,
    Prices,
    make_confusion,
    measure_classes,
    measure_confusion,
)
from stageb.guidance.words.types import Verdict
from stageb.runs.figures import Z

PredictionRow = Mapping[str, Any]
ALL = ""  # stands for all missions together; none has an empty name


@dataclass
class ConfusionCounts:
    """Labelled tickets, by what was answered."""

    labels: Sequence[Verdict]
    answered: dict[str, dict[str, int]] = field(init=False)  # label -> verdict, or none -> tickets
    # the same of those that no person needs to see
    kept: dict[str, dict[str, int]] = field(init=False)
    taught: int = 0  # that the guidance was learnt from
    asked: int = 0  # that the model was asked
    provisional: int = 0  # whose verdict is by a provisional rule

    def __post_init__(self) -> None:
        self.answered, self.kept = make_confusion(self.labels), make_confusion(self.labels)

    def figures(self, prices: Prices) -> dict[str, Any]:
        """As evaluation.json shows them, in the words of ``metrics.jsonl``."""
        return {
            **measure_confusion(self.answered),
            **measure_classes(self.answered, prices),
            "without_review": measure_confusion(self.kept),
            "confusion": self.answered,
            "taught": self.taught,
            "asked": self.asked,
            "provisional": self.provisional,
        }


def count_verdicts(
    rows: Iterable[PredictionRow],
    taught: Mapping[str, Set[str]],
    labels: Mapping[str, Sequence[Verdict]],
) -> dict[str, ConfusionCounts]:
    """The tickets of each mission, and of all. ``taught`` holds, by mission, the keys of those that
    taught or chose its guidance, ``labels`` those of each mission."""
    counts = {
        ALL: ConfusionCounts(list(dict.fromkeys(label for of in labels.values() for label in of)))
    }
    for row in rows:
        mission = row["mission"]
        for count in (counts[ALL], counts.setdefault(mission, ConfusionCounts(labels[mission]))):
            verdict = row["verdict"] or "none"
            count.answered[row["label"]][verdict] += 1
            count.kept[row["label"]][verdict] += not row["review"]
            count.asked += row["by"] == "model"
            count.provisional += row["provisional"]
            count.taught += f"{row['group_id']}::{row['label']}" in taught.get(mission, ())
    return counts


def is_right(row: PredictionRow) -> bool:
    """Whether the verdict is the label; no verdict is wrong."""
    return bool(row["verdict"] == row["label"])


@dataclass
class _Pairs:
    """The tickets of one group, judged twice."""

    # tickets that are right under the first guidance alone, less those that are under the second
    # alone
    gained: int = 0
    tickets: int = 0
    cost: float = 0.0  # of errors under the first guidance, less that under the second
    squares: float = 0.0  # of the tickets' prices


@dataclass
class PairedComparison:
    """The same tickets judged twice. A group counts once: its gain is the mean over its tickets,
    each of which gains 1 where it is right under the first guidance alone, and -1 where under the
    second alone."""

    prices: Prices = field(default_factory=lambda: EQUAL)
    # (mission, group) -> its tickets
    pairs: dict[tuple[str, str], _Pairs] = field(default_factory=dict)

    def add(self, one: PredictionRow, other: PredictionRow) -> None:
        """One more ticket, as a row under each guidance."""
        of = self.pairs.setdefault((one["mission"], one["group_id"]), _Pairs())
        price = self.prices.get(one["label"], 1.0)
        gained = is_right(one) - is_right(other)
        of.gained += gained
        of.tickets += 1
        of.cost -= gained * price
        of.squares += price * price

    def figures(self) -> dict[str, dict[str, Any]]:
        """By mission, and of all: groups won and lost, whether that may be chance, and the
        differences."""
        by_mission: dict[str, list[_Pairs]] = {ALL: []}
        for (mission, _), of in self.pairs.items():
            by_mission[ALL].append(of)
            by_mission.setdefault(mission, []).append(of)
        return {
            mission: compare_gains([of.gained / of.tickets for of in groups])
            | _compare_costs(groups)
            for mission, groups in by_mission.items()
        }


def compare_gains(gains: list[float]) -> dict[str, Any]:
    """Two guidances on as many groups as there are ``gains``, each in [-1, 1], one at least.

    ``p`` is McNemar's exact test (1947), two-sided: the chance that groups won and lost part as
    far, either way, if each falls as a fair coin. The interval is of the mean gain, 95 %.
    """
    won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
    low, high = _find_interval(gains, 1.0)
    return {
        "groups": len(gains),
        "won": won,
        "lost": lost,
        "p": min(1.0, 2 * mcnemar_p(max(won, lost), min(won, lost))),
        "difference": round(sum(gains) / len(gains), 6),
        "difference_interval": [round(max(-1.0, low), 6), round(min(1.0, high), 6)],
    }


def _compare_costs(groups: list[_Pairs]) -> dict[str, Any]:
    """How much more a ticket costs under the first guidance than under the second, on average, with
    its 95 % interval by groups; those of many tickets weigh more, since it is the difference of two
    mean costs of a ticket."""
    tickets = sum(of.tickets for of in groups)
    mean, size = sum(of.cost for of in groups) / tickets, tickets / len(groups)
    low, high = _find_interval(
        [mean + (of.cost - mean * of.tickets) / size for of in groups],
        sqrt(sum(of.squares for of in groups) / tickets),
    )
    return {
        "cost_difference": round(mean, 6),
        "cost_difference_interval": [round(low, 6), round(high, 6)],
    }


def _find_interval(gains: list[float], unit: float) -> tuple[float, float]:
    """The 95 % interval of the mean of paired gains: Bonett & Price ("Adjusted Wald confidence
    interval for a difference of binomial proportions based on paired data", J. Educ. Behav. Stat.
    37, 2012), which adds a gain and a loss of one ``unit``; here with the variance of gains that
    may be fractions, or costs. The unit of costs is the root mean square of the prices: where few
    tickets are dear, a bootstrap of 100 tickets covers the truth in as few as 73 % of
    simulations."""
    n = len(gains) + 2
    mean = sum(gains) / n
    half = Z * sqrt(
        max(0.0, (sum(gain * gain for gain in gains) + 2 * unit * unit) / n - mean * mean) / n
    )
    return mean - half, mean + half
