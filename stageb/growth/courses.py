"""How accurate networks are over the FLOPs that are spent on them: in the mean of environments, and as a picture."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stageb.growth.compare import Comparison
from stageb.runs.figures import interval

POINTS = 200  # of a course

Found = Sequence[Sequence[Comparison]]
"""What all controllers came to in all environments, a list for each run."""


@dataclass(frozen=True)
class AverageCourse:
    """Validation accuracy over FLOPs: means over environments, and half the widths of their 95 % intervals."""

    flops: tuple[float, ...]
    accuracy: tuple[float, ...]
    half: tuple[float, ...]

    def reaches(self, accuracy: float) -> float | None:
        """The least FLOPs at which it is as accurate as that; None where it never is."""
        return next((flops for flops, mean in zip(self.flops, self.accuracy, strict=True) if mean >= accuracy), None)


def average_across(runs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The mean of figures of each run and environment, and half the width of its interval.

    Where there are several runs, their spread counts as well as that of environments: the squares of both standard errors
    are added, which is exact but for what the two share, and then too wide.
    """
    mean, half = interval([sum(column) / len(column) for column in zip(*runs, strict=True)])
    if len(runs) > 1:
        half = math.hypot(half, interval([sum(row) / len(row) for row in runs])[1])
    return mean, half


def average_course(found: Found, controller: str) -> AverageCourse:
    """The course of a controller, from when all its networks have been looked at to when the last has spent its budget."""
    runs = [[each.course for each in outcomes if each.controller == controller] for outcomes in found]
    first, last = max(each[0][0] for run in runs for each in run), max(each[-1][0] for run in runs for each in run)
    flops = [first + (last - first) * point / (POINTS - 1) for point in range(POINTS)]
    means = [average_across([[_accuracy(each, at) for each in run] for run in runs]) for at in flops]
    return AverageCourse(tuple(flops), tuple(mean for mean, _ in means), tuple(half for _, half in means))


def _accuracy(course: Sequence[tuple[float, float]], flops: float) -> float:
    """When that much was spent: as of the last look before."""
    return course[bisect_right(course, flops, key=lambda point: point[0]) - 1][1]


def draw_courses(courses: Mapping[str, AverageCourse], title: str, path: Path) -> None:
    """Write the courses of controllers, with their bands, as a PNG file."""
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for number, (name, course) in enumerate(courses.items()):
        colour = colormaps["tab20"](number % 20)
        axes.plot(course.flops, course.accuracy, color=colour, linewidth=2.5 if number == 0 else 1.2, label=name)
        bands = [(mean, half) for mean, half in zip(course.accuracy, course.half, strict=True) if math.isfinite(half)]
        if len(bands) == len(course.flops):
            low, high = [mean - half for mean, half in bands], [mean + half for mean, half in bands]
            axes.fill_between(course.flops, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("FLOPs spent on a network, counterfactuals counted")
    axes.set_ylabel("validation accuracy, mean and 95 % interval")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=100, metadata={"Software": None})
