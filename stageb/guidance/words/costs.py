"""Figures of verdicts by class and at the user's prices, beside the best answer that never looks at
a ticket.

Where failures are rare, accuracy hides them: passing everything is right in 96 of 100 cases and
catches none. So beside each accuracy stand *recall* (the share of a label's tickets that got it)
and *precision* (the share of its verdicts that were right), and what always answering the same
would score. An answer that cannot be read is wrong at the price of its label.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from stageb.errors import ConfigError, shown, write_option
from stageb.guidance.words.labels import Verdict, has_labels, list_labels
from stageb.guidance.words.texts import count_of
from stageb.runs.figures import wilson
from stageb.settings import PRICE, Section, setting

Confusion = Mapping[str, Mapping[str, float]]
"""Label -> what was answered, one of the labels or none -> tickets."""
Prices = Mapping[str, float]
"""Label -> the price of judging one of its tickets wrong: 1 where it names none, as other labels
than pass and fail."""

EQUAL: Prices = {"pass": 1.0, "fail": 1.0}


@dataclass(frozen=True)
class PriceConfig(Section, at="price"):
    """The cost of errors, one beside the other: by these prices learning draws its tickets, the
    gate weighs what edits gain, and val chooses."""

    missed_failure: float = setting(1.0, PRICE)
    """The cost of a missed failure: a ticket labelled fail that passes."""
    false_alarm: float = setting(1.0, PRICE)
    """The cost of a false alarm: a ticket labelled pass that fails."""

    @property
    def by_label(self) -> Prices:
        """The price of a ticket of each label that is judged wrong."""
        return {"pass": self.false_alarm, "fail": self.missed_failure}


def scale_up(confusion: Confusion, scale: Mapping[str, float]) -> Confusion:
    """The tickets that those counted stand for, each of a label for ``scale`` of them, 1 where it
    names none."""
    return {
        label: {said: scale.get(label, 1.0) * n for said, n in row.items()}
        for label, row in confusion.items()
    }


def effective_counts(confusion: Confusion, scale: Mapping[str, float]) -> tuple[float, float]:
    """Right verdicts and tickets of the plain sample whose accuracy would be known as well as that
    of the tickets which those counted stand for (Kish's effective sample size): label by label the
    accuracy is that of the tickets counted."""
    whole = scale_up(confusion, scale)
    n = sum(sum(row.values()) for row in whole.values())
    if not n:
        return 0.0, 0.0
    right = sum(whole[label][label] for label in whole)
    variance = 0.0
    for label in whole:
        counted = sum(confusion[label].values())
        if counted:
            share = confusion[label][label] / counted
            variance += (scale.get(label, 1.0) * counted / n) ** 2 * share * (1 - share) / counted
    size = (
        right / n * (1 - right / n) / variance
        if variance
        else sum(sum(row.values()) for row in confusion.values())
    )
    return right / n * size, size


def make_confusion(labels: Collection[Verdict]) -> dict[str, dict[str, int]]:
    """The confusion of no ticket."""
    return {label: dict.fromkeys((*labels, "none"), 0) for label in labels}


def measure_confusion(confusion: Confusion) -> dict[str, Any]:
    """Accuracy with its 95 % interval, how many had no verdict, and how many tickets there are; of
    pass and fail, the missed failures (fp) and the false alarms (fn)."""
    n = sum(sum(row.values()) for row in confusion.values())
    right = sum(row[label] for label, row in confusion.items())
    errors = (
        {}
        if has_labels(confusion)
        else {"fp": confusion["fail"]["pass"], "fn": confusion["pass"]["fail"]}
    )
    return {
        "acc": measure_ratio(right, n),
        "acc_interval": measure_interval(right, n),
        **errors,
        "unanswered": sum(row["none"] for row in confusion.values()),
        "n": n,
    }


def measure_classes(confusion: Confusion, prices: Prices) -> dict[str, Any]:
    """Recall and precision by label (None of no ticket) and how many had no verdict, the mean
    ``cost`` of a ticket, and the same of the constant answer of least cost, ``always``; of other
    labels than pass and fail ``macro_f1`` too."""
    of = {label: sum(row.values()) for label, row in confusion.items()}
    n, price = sum(of.values()), {label: prices.get(label, 1.0) for label in of}
    constant = find_cheapest(of, prices)
    missed = {label: of[label] - confusion[label][label] for label in of}
    classes = {
        label: {
            "n": round(of[label]),
            "recall": measure_ratio(confusion[label][label], of[label]),
            "precision": measure_ratio(
                confusion[label][label], sum(confusion[each][label] for each in of)
            ),
            "unanswered": round(confusion[label]["none"]),
        }
        for label in of
    }
    return {
        "classes": classes,
        **({"macro_f1": _measure_macro_f1(confusion)} if has_labels(of) else {}),
        "cost": measure_ratio(sum(price[label] * missed[label] for label in of), n),
        "always": {
            "verdict": constant,
            "acc": measure_ratio(of[constant], n),
            "cost": measure_ratio(
                sum(price[label] * of[label] for label in of if label != constant), n
            ),
        },
    }


def find_cheapest(counts: Mapping[Verdict, float], prices: Prices) -> Verdict:
    """The verdict that costs least where all tickets get it, by how many have each label; the first
    of equals."""
    cost = {label: prices.get(label, 1.0) * count for label, count in counts.items()}
    return max(cost, key=cost.__getitem__)


def describe_counts(counts: Mapping[Verdict, int]) -> str:
    """How many tickets have each label: ``high (12), low (30)``, which a label that is a number
    cannot blur."""
    return ", ".join(f"{label} ({counts[label]:,})" for label in list_labels(counts))


def _measure_macro_f1(confusion: Confusion) -> float | None:
    """The mean of F1 over the labels that tickets have; None where there is no ticket."""
    scores = []
    for label, row in confusion.items():
        if of := sum(row.values()):
            scores.append(2 * row[label] / (of + sum(each[label] for each in confusion.values())))
    return measure_ratio(sum(scores), len(scores))


def describe_classes(figures: Mapping[str, Any], prices: Prices = EQUAL) -> str:
    """Describe in words what ``measure_classes`` returned, or a row that holds it; costs where the
    prices differ."""
    classes, always = figures["classes"], figures["always"]
    if always["acc"] is None:
        return "no tickets"
    if has_labels(classes):
        return _describe_labels(figures)
    fail, passes = classes["fail"], classes["pass"]
    judged, total = figures.get("n", fail["n"] + passes["n"]), fail["n"] + passes["n"]
    scaled = (
        f"estimated for all {total:,} from the {judged:,} that were judged: "
        if total > judged
        else ""
    )
    said = "no failure among them"
    if fail["n"]:
        said = (
            f"{round(fail['recall'] * fail['n']):,} of {fail['n']:,} failures caught "
            f"({fail['recall']:.0%})"
        )
    if passes["n"]:
        alarms = count_alarms(passes)
        said += f", {count_of(alarms, 'false alarm')} among {passes['n']:,} others"
    if unanswered := fail["unanswered"] + passes["unanswered"]:
        said += f", {unanswered:,} without a verdict"
    if fail["precision"] is not None:
        said += f", {fail['precision']:.0%} of the alarms right"
    said += f"; always {always['verdict']} would score {always['acc']:.1%}"
    others = figures.get("without_review", {"n": 0, "acc": None})
    if others["acc"] is not None and others["n"] < figures["n"]:
        coverage = others["n"] / figures["n"]
        said += f"; {coverage:.0%} need no review, {others['acc']:.1%} of these are right"
    if prices["fail"] != prices["pass"]:
        said += (
            f". Cost a ticket: {figures['cost']:.3f}, and {always['cost']:.3f} if all "
            f"{always['verdict']}"
        )
    return scaled + said


def _describe_labels(figures: Mapping[str, Any]) -> str:
    """The same of other labels than pass and fail."""
    said = ", ".join(
        f"{label}: {of['recall']:.0%} of {of['n']:,} found"
        + (f" ({of['precision']:.0%} of its verdicts right)" if of["precision"] is not None else "")
        for label, of in figures["classes"].items()
        if of["n"]
    )
    always = figures["always"]
    return (
        f"{said}; macro-F1 {figures['macro_f1']:.3f}; always {always['verdict']} would score "
        f"{always['acc']:.1%}"
    )


def count_wrong(figures: Mapping[str, Any]) -> int:
    """Tickets that got another verdict than their label."""
    if "fp" in figures:
        return int(figures["fp"] + figures["fn"])
    return sum(
        n
        for label, row in figures["confusion"].items()
        for said, n in row.items()
        if said not in (label, "none")
    )


def check_prices(
    price: PriceConfig, mission: str, labels: Iterable[Verdict], **limits: float
) -> None:
    """Raise ``ConfigError`` for prices, and ``limits`` of the gate, where a mission has other
    labels than pass and fail."""
    keys = {**{f"price.{name}": value for name, value in asdict(price).items()}, **limits}
    for key, value in keys.items():
        if has_labels(labels) and value != 1:
            which = f"mission {shown(mission, 60)!r} has the labels {shown(', '.join(labels), 200)}"
            raise ConfigError(
                key, value, f"prices and limits are of pass and fail, and {which}; leave it at 1"
            )


def count_alarms(passes: Mapping[str, Any]) -> int:
    """False alarms, by the figures of the label pass: its tickets judged fail."""
    return int(passes["n"] - round((passes["recall"] or 0) * passes["n"]) - passes["unanswered"])


def describe_review(figures: Mapping[str, Any]) -> str:
    """How many tickets a person should see, and how often the verdicts on the others are right:
    ``12 (others 97.6%)``."""
    others = figures["without_review"]
    count = figures["n"] - others["n"]
    return (
        f"{count:,} (others {others['acc']:.1%})"
        if count and others["acc"] is not None
        else f"{count:,}"
    )


def warn_of_constant(figures: Mapping[str, Any], prices: Prices = EQUAL) -> str:
    """A line where verdicts are no better than the best constant answer; empty where they are, or
    there is no ticket."""
    always = figures["always"]
    if figures["cost"] is None or figures["cost"] < always["cost"] or figures["cost"] == 0:
        return ""
    said = (
        f"NO BETTER THAN ALWAYS {always['verdict'].upper()}: looking at no ticket would do as well"
    )
    if prices["fail"] == prices["pass"] and always["verdict"] == "pass":
        said += (
            f". Where a missed failure costs more than a false alarm, say so: "
            f"{write_option('price.missed_failure', 20)}"
        )
    return said


def measure_ratio(part: float, whole: float) -> float | None:
    """A share or a mean, rounded to six places; None where ``whole`` is 0."""
    return round(part / whole, 6) if whole else None


def measure_interval(part: float, whole: float) -> list[float] | None:
    """The 95 % confidence interval of a share (Wilson), rounded to six places; None where ``whole``
    is 0."""
    return [round(end, 6) for end in wilson(part, whole)] if whole else None
