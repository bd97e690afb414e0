"""Controllers side by side on the same environments, at equal FLOPs: their results, and how
accurate they are on the way.

The controller that is asked about plays its episodes as it learnt to. What it spent in an
environment, counterfactuals counted, is the budget of every other there. One whose episode comes to
its end before its budget does goes on training the network that it has, with nothing more to
decide; one that cannot pay for another epoch ends there. Networks that do not change are trained
alone, and pay for no counterfactual. How accurate they are meanwhile is noted for pictures; nobody
pays.

All start from the same weights, and read the same examples in the same order.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stageb.growth.config import GrowthConfig
from stageb.growth.controllers import Controller
from stageb.growth.deciding import Decider
from stageb.growth.environment import Block, Course, Places, PlantedSeeds, Setting
from stageb.growth.episodes import play, take_turn
from stageb.growth.ranks import name_environments
from stageb.growth.types import EnvironmentView, restore_tuples
from stageb.growth.views import list_kept
from stageb.job.world import World
from stageb.runs.figures import interval

# the bare host; the network that the controller made, from the start
STATIC = ("static-small", "static-final")
OTHERS = ("probe-1", "probe-2", "heuristic", "random", "periodic", *STATIC, "oracle")


@dataclass(frozen=True)
class Comparison:
    """The result of one controller in one environment."""

    controller: str
    environment: int
    test_accuracy: float
    accuracy: float  # on the validation set
    extra: float  # parameters added, as a share of the host's
    epochs: int
    flops: float
    kept: PlantedSeeds
    truth: PlantedSeeds | None = None
    course: Course = ()  # while it was trained, and at its end

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Comparison:
        """From what ``asdict`` made, JSON in between."""
        return cls(
            **{**restore_tuples(plain), "course": tuple(map(tuple, plain.get("course", ())))}
        )


def compare(
    setting: Setting, places: Places, decider: Decider, others: Sequence[str]
) -> list[Comparison]:
    """The outcomes of a block: of the run's controller in every environment, then those of
    ``others``."""
    block = Block(setting, places)
    ended = play(block, decider.of(block)).ended
    found = list(_summarise(block, decider.name, range(len(ended))).values())
    budgets = [each.flops for each in ended]
    for name in others:
        begins = [each.kept for each in ended] if name == "static-final" else None
        other = Block(setting, places, begins)
        controller = None if name in STATIC else Decider(name, {}).of(other)
        found += train_within_budgets(other, name, controller, budgets)
    return found


def compare_on_ranks(
    world: World,
    config: GrowthConfig,
    blocks: Sequence[range],
    deciders: Sequence[Decider],
    others: Sequence[str],
) -> list[list[Comparison]]:
    """Compare all controllers in all environments; returns a list for each of ``deciders`` on rank
    0, and an empty one elsewhere."""
    setting, mine = Setting.of(config, world.device), []
    for block in world.share(blocks):
        with world.at(name_environments(block)):
            places = Places(tuple(block), held_out=True)
            mine.append(
                [
                    list(map(asdict, compare(setting, places, decider, others)))
                    for decider in deciders
                ]
            )
    parts = world.join_shares(world.collect(mine))
    return [
        [Comparison.of(each) for block in parts for each in block[run]]
        for run in range(len(deciders))
    ]


def train_within_budgets(
    block: Block, name: str, controller: Controller | None, budgets: Sequence[float]
) -> list[Comparison]:
    """Train a block that has just begun until every environment has spent its budget, in FLOPs; by
    member."""
    members = range(len(block.keys))
    living, found = set(members), dict[int, Comparison]()
    while living:
        acts = controller is not None and block.epochs < block.setting.config.host.epochs
        prices = {
            each: block.price(each) + (block.price_of_looking(each) if acts else 0.0)
            for each in living
        }
        if spent := [
            each for each in sorted(living) if block.flops[each] + prices[each] > budgets[each]
        ]:
            for each in spent:
                if block.views[each]:
                    block.close(each)
            found |= _summarise(block, name, spent)
            living -= set(spent)
        if living:
            figures = block.train()
            if controller and acts:
                _decide(block, controller, block.look(figures))
            else:
                block.note([accuracy for _, accuracy in block.judge(test=False)])
    return [found[each] for each in members]


def _decide(block: Block, controller: Controller, known: Sequence[EnvironmentView]) -> None:
    """Take an action for each environment after an epoch, or close the environments after the last
    one."""
    if block.epochs < block.setting.config.host.epochs:
        take_turn(block, controller, known)
    else:
        for member in range(len(block.keys)):
            block.close(member)


def _summarise(block: Block, name: str, members: Sequence[int]) -> dict[int, Comparison]:
    """The results of members that have ended, by member."""
    judged, tested, found = block.judge(test=False), block.judge(test=True), {}
    for member in members:
        host, extra = block.count_parameters(member)
        found[member] = Comparison(
            controller=name,
            environment=block.places.numbers[member],
            test_accuracy=tested[member][1],
            accuracy=judged[member][1],
            extra=extra / host,
            epochs=block.epochs,
            flops=block.flops[member],
            kept=list_kept(block.slots[member]),
            truth=block.lessons.right[member] if block.lessons.right else None,
            course=block.course(member, judged[member][1]),
        )
    return found


POINTS = 200  # of a course

Found = Sequence[Sequence[Comparison]]
"""Comparisons of all controllers in all environments, a list for each run."""


@dataclass(frozen=True)
class AverageCourse:
    """Validation accuracy over FLOPs: means over environments, and half the widths of their 95 %
    intervals."""

    flops: tuple[float, ...]
    accuracy: tuple[float, ...]
    half: tuple[float, ...]

    def reaches(self, accuracy: float) -> float | None:
        """The least FLOPs at which it is as accurate as that; None where it never is."""
        return next(
            (
                flops
                for flops, mean in zip(self.flops, self.accuracy, strict=True)
                if mean >= accuracy
            ),
            None,
        )


def average_across(runs: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The mean of figures of each run and environment, and half the width of its interval.

    Where there are several runs, their spread counts as well as that of environments: the squares
    of both standard errors are added, which is exact but for what the two share, and then too wide.
    """
    mean, half = interval([sum(column) / len(column) for column in zip(*runs, strict=True)])
    if len(runs) > 1:
        half = math.hypot(half, interval([sum(row) / len(row) for row in runs])[1])
    return mean, half


def average_course(found: Found, controller: str) -> AverageCourse:
    """The course of a controller, from when all its networks have been looked at to when the last
    has spent its budget."""
    runs = [
        [each.course for each in outcomes if each.controller == controller] for outcomes in found
    ]
    first, last = (
        max(each[0][0] for run in runs for each in run),
        max(each[-1][0] for run in runs for each in run),
    )
    flops = [first + (last - first) * point / (POINTS - 1) for point in range(POINTS)]
    means = [
        average_across([[_find_accuracy(each, at) for each in run] for run in runs]) for at in flops
    ]
    return AverageCourse(
        tuple(flops), tuple(mean for mean, _ in means), tuple(half for _, half in means)
    )


def _find_accuracy(course: Sequence[tuple[float, float]], flops: float) -> float:
    """Return the accuracy when ``flops`` were spent: as of the last look before."""
    return course[bisect_right(course, flops, key=lambda point: point[0]) - 1][1]


def draw_courses(courses: Mapping[str, AverageCourse], title: str, path: Path) -> None:
    """Write the courses of controllers, with their bands, as a PNG file."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots()
    for number, (name, course) in enumerate(courses.items()):
        colour = colormaps["tab20"](number % 20)
        axes.plot(
            course.flops,
            course.accuracy,
            color=colour,
            linewidth=2.5 if number == 0 else 1.2,
            label=name,
        )
        bands = [
            (mean, half)
            for mean, half in zip(course.accuracy, course.half, strict=True)
            if math.isfinite(half)
        ]
        if len(bands) == len(course.flops):
            low, high = [mean - half for mean, half in bands], [mean + half for mean, half in bands]
            axes.fill_between(course.flops, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set_xlabel("FLOPs spent on a network, counterfactuals counted")
    axes.set_ylabel("validation accuracy, mean and 95 % interval")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=100, metadata={"Software": None})
