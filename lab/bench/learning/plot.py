"""Test accuracy over rollouts, one small panel per data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from lab.bench.learning.figures import Result, accuracies, in_order

COLOURS = {  # one per method, told apart by most colour-blind readers; variants of a method share a hue
    "ours": "#c1272d",
    "gepa": "#7fb3d5",
    "gepa-tuned": "#1f5f8b",
    "gepa-no-pool": "#9a86b8",
    "tf-grpo": "#b5b35c",
    "tf-grpo-best": "#6f6d1e",
}
POINTS = 200  # of a curve


def draw(results: Sequence[Result], budget: int, path: Path) -> None:
    """Write a picture: a line per method, the mean over seeds, and a band from the lowest to the highest seed."""
    datasets, methods = in_order(results, "dataset"), in_order(results, "method")
    columns = min(3, len(datasets))
    rows = -(-len(datasets) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.9 * columns, 2.9 * rows + 0.5), squeeze=False, layout="constrained", sharex=True
    )
    spots = [round(budget * i / POINTS) for i in range(POINTS + 1)]
    for axis, dataset in zip(axes.flat, datasets, strict=False):
        for method in methods:
            found = [list(accuracies(results, dataset, method, spot).values()) for spot in spots]
            if not found[0]:
                continue
            colour = COLOURS.get(method, "#555555")
            front = 3 if method == "ours" else 2
            axis.plot(
                spots,
                [100 * fmean(values) for values in found],
                color=colour,
                lw=2.2 if front == 3 else 1.4,
                label=method,
                zorder=front,
            )
            if len(found[0]) > 1:
                lows, highs = ([100 * end(values) for values in found] for end in (min, max))
                axis.fill_between(spots, lows, highs, color=colour, alpha=0.12, lw=0, zorder=1)
        tickets = next(r["tickets"] for r in results if r["dataset"] == dataset)
        axis.set_title(f"{dataset} ({sum(tickets.values()):,} tickets)", fontsize=10, loc="left")
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
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)
    plt.close(figure)
