"""Tables of the results of cells: test accuracy by budget, its interval over seeds, and differences
paired by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from math import inf, isinf, sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from lab.bench.learning.cells import Noise
from lab.bench.learning.classic import LEARNERS
from lab.bench.learning.data import MADE, REAL
from stageb.runs.figures import wilson

Result = Mapping[str, Any]  # what ``cells.run`` writes
Interval = tuple[float, float]
OURS = "ours"
NOISE: Mapping[Noise, str] = {
    "shuffled": "labels dealt anew",
    "permuted": "labels in another order",
    "one-rule": "labels dealt anew beside one true rule",
    "idle": "idle edits",
}
# that the set-by-set table shows
RIVALS = ("gepa-tuned", "gepa-evidence", "gepa-code", "statistics")


def accuracy(result: Result, rollouts: int) -> float:
    """Test accuracy of what would be handed back after so many rollouts."""
    last: str = [point for point in result["curve"] if point["rollouts"] <= rollouts][-1]["right"]
    return last.count("1") / len(last)


def first(result: Result) -> float:
    """Test accuracy of what was begun with."""
    right: str = result["curve"][0]["right"]
    return right.count("1") / len(right)


def accuracies(
    results: Iterable[Result], dataset: str, method: str, rollouts: int
) -> dict[int, float]:
    """By seed."""
    return {
        r["seed"]: accuracy(r, rollouts)
        for r in results
        if (r["dataset"], r["method"]) == (dataset, method)
    }


def spread(
    results: Sequence[Result], dataset: str, method: str, rollouts: int
) -> tuple[float, Interval]:
    """Mean accuracy and its interval: over seeds; over tickets (Wilson) where there is one seed."""
    found = list(accuracies(results, dataset, method, rollouts).values())
    if len(found) > 1:
        return fmean(found), mean_interval(found)
    tickets = next(
        r["tickets"]["test"] for r in results if (r["dataset"], r["method"]) == (dataset, method)
    )
    return found[0], wilson(round(found[0] * tickets), tickets)


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's 95 % interval for a mean; without bounds where there are fewer than two values."""
    if len(values) < 2:
        return -inf, inf
    reach = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return fmean(values) - reach, fmean(values) + reach


def differences(results: Sequence[Result], dataset: str, peer: str, rollouts: int) -> list[float]:
    """Ours less the peer, by seed."""
    ours, theirs = (accuracies(results, dataset, method, rollouts) for method in (OURS, peer))
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def in_order(results: Iterable[Result], field: str) -> list[str]:
    """The values of a field, in order of first appearance."""
    return list(dict.fromkeys(result[field] for result in results))


def learning_table(results: Sequence[Result], budget: int) -> str:
    """The tables of ``bin/bench learn``, as Markdown: at a quarter of the budget, and at all of
    it."""
    marks = (budget // 4, budget)
    text = "Test accuracy in per cent, mean over seeds:\n\n" + accuracy_table(results, marks)
    text += (
        f"\nThe same at {budget:,} rollouts, a line per set (lowest to highest "
        f"seed):\n\n{overview(results, budget)}"
    )
    real = [name for name in in_order(results, "dataset") if name in REAL]
    if real:
        heading = (
            "real sets together, and how many points this loop is ahead, paired by set and seed"
        )
        text += f"\nThe {len(real)} {heading} (95 % interval over runs; over sets):\n\n"
        text += together_table(results, real, marks)
    rivals = [method for method in RIVALS if method in in_order(results, "method")]
    if OURS in in_order(results, "method") and rivals:
        text += (
            "\nSet by set, this loop less the other method, in points (95 % interval over "
            "seeds):\n\n"
        )
        text += differences_table(results, rivals, marks)
    return text


def accuracy_table(results: Sequence[Result], marks: Sequence[int]) -> str:
    """A line per set and method."""
    rows = []
    for dataset in in_order(results, "dataset"):
        for method in in_order(results, "method"):
            runs = [r for r in results if (r["dataset"], r["method"]) == (dataset, method)]
            if not runs:
                continue
            low, high = spread(results, dataset, method, marks[-1])[1]
            shown = [percent(spread(results, dataset, method, mark)[0]) for mark in marks]
            interval = between(max(0.0, low), min(1.0, high))
            if method in LEARNERS:
                costs = ["-", *shown, interval, "-", "-"]
            else:
                spent = [
                    f"{fmean(r[name] for r in runs):.0f}" for name in ("reflections", "accepted")
                ]
                costs = [percent(fmean(first(r) for r in runs)), *shown, interval, *spent]
            rows.append([title(dataset), method, str(len(runs)), *costs])
    heads = [f"{mark:,} rollouts" for mark in marks]
    return table(
        [
            "tickets",
            "method",
            "seeds",
            "before",
            *heads,
            "95 % interval",
            "reflections",
            "edits accepted",
        ],
        rows,
    )


def overview(results: Sequence[Result], rollouts: int) -> str:
    """A line per set, a column per method."""
    methods = in_order(results, "method")
    rows = []
    for dataset in in_order(results, "dataset"):
        row = [title(dataset)]
        for method in methods:
            found = list(accuracies(results, dataset, method, rollouts).values())
            ends = [f"{100 * end(found):.0f}" for end in (min, max)] if found else []
            row.append(
                f"{percent(fmean(found))} ({'-'.join(dict.fromkeys(ends))})" if found else "-"
            )
        rows.append(row)
    return table(["tickets", *methods], rows)


def together_table(results: Sequence[Result], datasets: Sequence[str], marks: Sequence[int]) -> str:
    """A line per method: its mean over sets, and how far this loop is ahead of it."""
    rows = []
    for method in in_order(results, "method"):
        found = [name for name in datasets if accuracies(results, name, method, 0)]
        if found:
            means = [
                percent(fmean(spread(results, name, method, mark)[0] for name in found))
                for mark in marks
            ]
            rows.append(
                [
                    method,
                    str(len(found)),
                    *means,
                    *(lead(results, found, method, mark) for mark in marks),
                ]
            )
    ahead = [f"ours ahead at {mark:,}" for mark in marks]
    return table(["method", "sets", *(f"{mark:,} rollouts" for mark in marks), *ahead], rows)


def lead(results: Sequence[Result], datasets: Sequence[str], method: str, mark: int) -> str:
    """How far this loop is ahead of a method on some sets, with both intervals."""
    by_set = [found for name in datasets if (found := differences(results, name, method, mark))]
    if method == OURS or not by_set:
        return "-"
    return (
        f"{gap([each for found in by_set for each in found])}; "
        f"{reach([fmean(found) for found in by_set])}"
    )


def differences_table(
    results: Sequence[Result], rivals: Sequence[str], marks: Sequence[int]
) -> str:
    """A line per set."""
    pairs = [(rival, mark) for rival in rivals for mark in marks]
    rows = [
        [
            title(dataset),
            *(gap(differences(results, dataset, rival, mark)) for rival, mark in pairs),
        ]
        for dataset in in_order(results, "dataset")
    ]
    return table(["tickets", *(f"{rival} at {mark:,}" for rival, mark in pairs)], rows)


def title(dataset: str) -> str:
    """The name of a set, and that this loop was tuned to it where it was."""
    return f"{dataset} (tuned to)" if dataset in MADE else dataset


def noise_table(results: Sequence[Result]) -> str:
    """The table of ``bin/bench noise``: in how many runs an edit was accepted that was no
    better."""
    rows = []
    for dataset in in_order(results, "dataset"):
        for kind, what in NOISE.items():
            for method in in_order(results, "method"):
                runs = [
                    r
                    for r in results
                    if (r["dataset"], r["method"]) == (dataset, method) and r["noise"] == kind
                ]
                if runs:
                    counts = [worthless(r) for r in runs]
                    hits = sum(count > 0 for count in counts)
                    rows.append(
                        [
                            dataset,
                            what,
                            method,
                            f"{hits} of {len(runs)}",
                            between(*wilson(hits, len(runs))),
                            f"{fmean(counts):.2f}",
                            str(sum(len(r["curve"]) > 1 for r in runs)),
                            f"{fmean(r['rollouts'] for r in runs):,.0f}",
                        ]
                    )
    head = [
        "tickets",
        "nothing to learn",
        "method",
        "runs that accepted an edit that is no better",
        "95 % interval",
    ]
    return table(
        [*head, "such edits a run", "runs that handed back an edit", "rollouts a run"], rows
    )


def worthless(result: Result) -> int:
    """How many edits were accepted that were no better: all of them, but beside one true rule those
    after which no more of its tickets are judged rightly than ever before."""
    if result["noise"] != "one-rule":
        return int(result["accepted"])
    # without those come back to
    points = {tuple(point["rules"]): ruled_right(result, point) for point in result["curve"]}
    first, *later = points.values()
    return sum(
        right <= best for right, best in zip(later, accumulate([first, *later], max), strict=False)
    )


def ruled_right(result: Result, point: Mapping[str, Any]) -> int:
    """Test tickets of which the one rule speaks that are judged rightly."""
    return sum(
        ruled == right == "1" for ruled, right in zip(result["ruled"], point["right"], strict=True)
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def percent(share: float) -> str:
    """A share in per cent."""
    return f"{100 * share:.1f}"


def between(low: float, high: float) -> str:
    """An interval of shares in per cent."""
    return f"{percent(low)} to {percent(high)}"


def gap(values: Sequence[float]) -> str:
    """The mean of differences with its interval, in points."""
    return f"{100 * fmean(values):+.1f} ({reach(values)})".removesuffix(" (-)") if values else "-"


def reach(values: Sequence[float]) -> str:
    """The interval of a mean of differences, in points."""
    low, high = mean_interval(values)
    return "-" if isinf(high) else f"{100 * low:+.1f} to {100 * high:+.1f}"
