"""Test accuracy over rollouts, one small panel per data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from lab.bench.learning.classic import LEARNERS
from lab.bench.learning.figures import OURS, Result, accuracies, in_order, title

# one per method, told apart by most colour-blind readers; variants of a method share a hue
COLOURS = {
    "ours": "#c1272d",
    "statistics": "#e08a3c",
    "gepa": "#a9cbe3",
    "gepa-tuned": "#1f5f8b",
    "gepa-evidence": "#4fa3d1",
    "gepa-no-pool": "#9a86b8",
    "tree": "#8a8a8a",
    "rules": "#3a3a3a",
}
POINTS = 200  # of a curve


def draw(results: Sequence[Result], budget: int, path: Path) -> None:
    """Write a picture: a line per method, the mean over seeds, and for this loop a band from the
    lowest to the highest seed. What needs no rollouts is a dashed line."""
    datasets = in_order(results, "dataset")
    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(3.9 * columns, 2.7 * rows + 0.7),
        squeeze=False,
        layout="constrained",
        sharex=True,
    )
    for axis, dataset in zip(axes.flat, datasets, strict=False):
        for method in in_order(results, "method"):
            _line(axis, results, dataset, method, budget)
        tickets = next(r["tickets"] for r in results if r["dataset"] == dataset)
        axis.set_title(
            f"{title(dataset)}, {sum(tickets.values()):,} tickets", fontsize=10, loc="left"
        )
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(axis="y", color="#e6e6e6", lw=0.8)
        axis.tick_params(labelsize=8, color="#999999", labelbottom=True)
        axis.set_xlim(0, budget)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    for axis in axes.flat[len(datasets) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel("test accuracy, %", fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("rollouts", fontsize=9)
    named = {
        name: line
        for axis in axes.flat
        for line, name in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        named.values(),
        named,
        loc="outside lower center",
        ncols=min(6, len(named)),
        frameon=False,
        fontsize=9,
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _line(axis: Any, results: Sequence[Result], dataset: str, method: str, budget: int) -> None:
    """One method in one panel; nothing where it was not run."""
    spots = [round(budget * i / POINTS) for i in range(POINTS + 1)]
    found = [list(accuracies(results, dataset, method, spot).values()) for spot in spots]
    if not found[0]:
        return
    ours = method == OURS
    axis.plot(
        spots,
        [100 * fmean(values) for values in found],
        color=COLOURS.get(method, "#555555"),
        lw=2.2 if ours else 1.3,
        ls="--" if method in LEARNERS else "-",
        label=method,
        zorder=3 if ours else 2,
    )
    if ours and len(found[0]) > 1:
        lows, highs = ([100 * end(values) for values in found] for end in (min, max))
        axis.fill_between(spots, lows, highs, color=COLOURS[method], alpha=0.12, lw=0, zorder=1)
