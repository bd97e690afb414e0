"""What cells came to, as tables: test accuracy by budget, its interval over seeds, and differences paired by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from statistics import fmean
from typing import Any

from lab.bench.learning.statistics import Interval, mean_interval, wilson

Result = Mapping[str, Any]  # what ``cells.run`` writes
OURS = "ours"


def accuracy(result: Result, rollouts: int) -> float:
    """Test accuracy of what would be handed back after so many rollouts."""
    last: str = [point for point in result["curve"] if point["rollouts"] <= rollouts][-1]["right"]
    return last.count("1") / len(last)


def accuracies(results: Iterable[Result], dataset: str, method: str, rollouts: int) -> dict[int, float]:
    """By seed."""
    return {r["seed"]: accuracy(r, rollouts) for r in results if (r["dataset"], r["method"]) == (dataset, method)}


def spread(results: Sequence[Result], dataset: str, method: str, rollouts: int) -> tuple[float, Interval]:
    """Mean accuracy and its interval: over seeds; over tickets (Wilson) where there is one seed."""
    found = list(accuracies(results, dataset, method, rollouts).values())
    if len(found) > 1:
        return fmean(found), mean_interval(found)
    tickets = next(r["tickets"]["test"] for r in results if (r["dataset"], r["method"]) == (dataset, method))
    return found[0], wilson(round(found[0] * tickets), tickets)


def differences(results: Sequence[Result], dataset: str, peer: str, rollouts: int) -> list[float]:
    """Ours less the peer, by seed."""
    ours, theirs = (accuracies(results, dataset, method, rollouts) for method in (OURS, peer))
    return [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]


def in_order(results: Iterable[Result], field: str) -> list[str]:
    """The values of a field, in order of first appearance."""
    return list(dict.fromkeys(result[field] for result in results))


def learning_table(results: Sequence[Result], budget: int) -> str:
    """The tables of ``bin/bench learn``, as Markdown."""
    datasets, methods = in_order(results, "dataset"), in_order(results, "method")
    parts = [budget // 4, budget // 2, budget]
    heads = [f"{part:,} rollouts" for part in parts]
    rows = []
    for dataset in datasets:
        for method in methods:
            of_cell = [r for r in results if (r["dataset"], r["method"]) == (dataset, method)]
            if not of_cell:
                continue
            shown = [percent(spread(results, dataset, method, part)[0]) for part in parts]
            low, high = spread(results, dataset, method, budget)[1]
            costs = [f"{fmean(r[name] for r in of_cell):.0f}" for name in ("reflections", "accepted")]
            start = percent(fmean(accuracy(r, 0) for r in of_cell))
            rows.append([dataset, method, str(len(of_cell)), start, *shown, between(max(0.0, low), min(1.0, high)), *costs])
    head = ["tickets", "method", "seeds", "before", *heads, "95 % interval", "reflections", "edits accepted"]
    text = "Test accuracy, mean over seeds:\n\n" + table(head, rows)
    peers = [method for method in methods if method != OURS]
    if OURS in methods and peers:
        text += "\nOurs less the peer, paired by seed, in points (95 % interval):\n\n"
        text += table(
            ["tickets", *(f"{peer} at {part:,}" for peer in peers for part in (parts[0], budget))],
            [
                [dataset, *(gap(differences(results, dataset, peer, part)) for peer in peers for part in (parts[0], budget))]
                for dataset in datasets
            ]
            + [
                [
                    "all",
                    *(
                        gap([d for dataset in datasets for d in differences(results, dataset, peer, part)])
                        for peer in peers
                        for part in (parts[0], budget)
                    ),
                ]
            ],
        )
    return text


def noise_table(results: Sequence[Result]) -> str:
    """The table of ``bin/bench noise``: in how many runs an edit was accepted though none could be better."""
    rows = []
    for dataset in in_order(results, "dataset"):
        for what, chosen in (("labels shuffled", "shuffled"), ("idle edits", "idle")):
            for method in in_order(results, "method"):
                runs = [r for r in results if (r["dataset"], r["method"]) == (dataset, method) and r[chosen]]
                if runs:
                    hits = sum(r["accepted"] > 0 for r in runs)
                    low, high = wilson(hits, len(runs))
                    mean = fmean(r["accepted"] for r in runs)
                    kept = sum(len(r["curve"]) > 1 for r in runs)
                    spent = fmean(r["rollouts"] for r in runs)
                    rows.append(
                        [
                            dataset,
                            what,
                            method,
                            f"{hits} of {len(runs)}",
                            between(low, high),
                            f"{mean:.2f}",
                            str(kept),
                            f"{spent:,.0f}",
                        ]
                    )
    head = ["tickets", "nothing to learn", "method", "runs that accepted an edit", "95 % interval", "edits a run"]
    return table([*head, "runs that handed one back", "rollouts a run"], rows)


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
    if not values:
        return "-"
    low, high = mean_interval(values)
    reach = "" if isinf(high) else f" ({100 * low:+.1f} to {100 * high:+.1f})"
    return f"{100 * fmean(values):+.1f}{reach}"
