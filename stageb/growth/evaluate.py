"""``stageb evaluate RUN``: what a run's controller is worth, beside others at equal FLOPs, on
environments held out."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from stageb.cli.parsing import parse_run
from stageb.config import FabricConfig, require
from stageb.errors import InputError
from stageb.growth import play
from stageb.growth.compare import (
    OTHERS,
    Comparison,
    Found,
    average_across,
    average_course,
    compare_on_ranks,
    draw_courses,
)
from stageb.growth.config import GrowthConfig
from stageb.growth.deciding import (
    Decider,
    StoredController,
    estimate_learning_cost,
    load_controller,
)
from stageb.growth.play import play_episode
from stageb.growth.ranks import cut_blocks
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.runs.figures import short, wilson
from stageb.store import disk
from stageb.store.output import check_target
from stageb.training.run import add_placement

MOST_ENVIRONMENTS = 1_000_000  # environments
FIRST = 10_000  # environment, so that none is among those by which a run is watched


def main(folder: Path, config: GrowthConfig, arguments: Sequence[str]) -> int:
    """How good a run's controller is, beside others that spend as many FLOPs, in environments that
    it did not learn from."""
    given = make_parser(config).parse_args(arguments)
    require(
        1 <= given.environments <= MOST_ENVIRONMENTS,
        "--environments",
        given.environments,
        f"1 to {MOST_ENVIRONMENTS}",
    )
    for name in ("devices", "block"):
        require(getattr(given, name) >= 1, f"--{name}", getattr(given, name), "at least 1")
    require(given.first >= 0, "--first", given.first, "0 or more")
    others = _parse_names(given.against, config)
    if given.out:
        check_target(Path(given.out), {})
    if given.pictures:
        disk.check_place(Path(given.pictures), "another --pictures")
    controller, places = (
        config.growth.controller,
        [Path(run).resolve() for run in (folder, *given.also)],
    )
    for run in given.also:
        remedy = "other runs, each once: one that counts twice makes intervals look narrower"
        require(places.count(Path(run).resolve()) == 1, "--also", run, remedy)
    runs = [
        load_controller(folder, config, controller),
        *(_load_similar(Path(other), folder, config) for other in given.also),
    ]
    learning = statistics.fmean(
        estimate_learning_cost(Path(run), config) for run in (folder, *given.also)
    )
    fabric = FabricConfig(accelerator=given.accelerator, devices=given.devices)
    numbers = range(given.first, given.first + given.environments)

    def on_ranks(world: World) -> int:
        deciders = [Decider(controller, run.snapshot, greedy=True) for run in runs]
        found = compare_on_ranks(world, config, cut_blocks(numbers, given.block), deciders, others)
        if world.is_global_zero:
            if given.out:
                _write(Path(given.out), found)
            title = (
                f"{folder}, after {runs[0].updates:,} updates"
                + f", and {len(runs) - 1} like it" * (len(runs) > 1)
            )
            print(f"{title}; {len(numbers)} held-out environments, {numbers[0]} to {numbers[-1]}")
            print("\n".join(format_table(found, controller, learning)))
            if given.pictures:
                print(
                    "\n".join(
                        str(path) for path in _draw(Path(given.pictures), config, found, runs[0])
                    )
                )
        return 0

    return worlds.run(fabric, on_ranks)


def make_parser(config: GrowthConfig) -> argparse.ArgumentParser:
    """The parser of the command's arguments, for a run of this ``config``."""
    parser = argparse.ArgumentParser(prog="stageb evaluate RUN", description=main.__doc__)
    parser.add_argument("--environments", type=int, default=64, help="how many (default 64)")
    parser.add_argument(
        "--first", type=int, default=FIRST, help=f"number of the first (default {FIRST})"
    )
    parser.add_argument(
        "--against", default="", metavar="NAMES", help=f"of: {', '.join(OTHERS)} (default: all)"
    )
    parser.add_argument(
        "--also",
        nargs="+",
        default=[],
        metavar="RUN",
        help="more runs, which differ only in their seed",
    )
    parser.add_argument("--out", metavar="FILE", help="write all results to FILE, as JSON Lines")
    parser.add_argument(
        "--pictures",
        metavar="FOLDER",
        help="draw accuracy over FLOPs, and the controller's episodes in its best and its worst "
        "environment",
    )
    add_placement(parser, "environments")
    block = config.growth.block
    parser.add_argument(
        "--block",
        type=int,
        default=block,
        help=f"environments in one batch (default {block}, the run's)",
    )
    return parser


def _parse_names(against: str, config: GrowthConfig) -> list[str]:
    """The controllers to compare with. Raises ``ConfigError`` for what is none, or what cannot be
    here."""
    names = [name.strip() for name in against.split(",")] if against else [*OTHERS]
    for name in names:
        require(
            name in OTHERS, "--against", name, f"of: {', '.join(OTHERS)}, with commas in between"
        )
        obstacle = config.obstacle(name)
        require(not obstacle or not against, "--against", name, obstacle)
    return [
        name for name in names if name != config.growth.controller and not config.obstacle(name)
    ]


def _load_similar(folder: Path, first: Path, config: GrowthConfig) -> StoredController:
    """Another run, which may differ in its seed alone. Raises ``InputError``."""
    other = parse_run(folder).config
    if not isinstance(other, GrowthConfig) or drop_irrelevant_keys(other) != drop_irrelevant_keys(
        config
    ):
        raise InputError(
            f"--also {folder}: its config is another one than that of {first}; only seeds may "
            f"differ"
        )
    return load_controller(folder, other, config.growth.controller)


def drop_irrelevant_keys(config: GrowthConfig) -> GrowthConfig:
    """The config without its seed, and without what changes no result."""
    plain = GrowthConfig()
    same = {
        name: getattr(plain, name)
        for name in ("seed", "output", "fabric", "curves", "log_level", "loggers")
    }
    return replace(config, **same)


def _write(path: Path, found: Found) -> None:
    rows = [
        {
            "run": run,
            **asdict(each),
            "truth": each.truth[0] if each.truth and len(each.truth) == 1 else each.truth,
        }
        for run, outcomes in enumerate(found)
        for each in outcomes
    ]
    disk.write(path, disk.json_lines(rows))


def _draw(folder: Path, config: GrowthConfig, found: Found, run: StoredController) -> list[Path]:
    """Accuracy over FLOPs, and what grew in the environments in which the run's controller does
    best and worst."""
    disk.make_named_folder(folder, "another --pictures")
    controller = config.growth.controller
    mine = sorted(
        (each for each in found[0] if each.controller == controller),
        key=lambda each: each.test_accuracy,
    )
    names = dict.fromkeys(each.controller for each in found[0])
    title = f"{config.task.name}, {config.host.kind} hosts, {len(mine)} held-out environments"
    drawn = {
        "accuracy.png": partial(
            draw_courses, {name: average_course(found, name) for name in names}, title
        )
    }
    for name, each in (("best.png", mine[-1]), ("worst.png", mine[0])):
        episode, _ = play_episode(
            config, Decider(controller, run.snapshot, greedy=True), each.environment
        )
        drawn[name] = partial(play.draw, episode)
    for name, draw in drawn.items():
        disk.write(folder / name, draw)
    return [folder / name for name in drawn]


# Results


def format_table(found: Found, controller: str, learning: float = 0.0) -> list[str]:
    """A line for each controller, and what teachers tell. Intervals are of 95 %, of paired
    differences. ``learning`` are the FLOPs that the run's controller cost."""
    whole = [each for outcomes in found for each in outcomes]
    names = list(dict.fromkeys(each.controller for each in whole))
    head = (
        f"{'':<14}{'test accuracy':>14}{'parameters':>12}{'epochs':>8}{'FLOP':>10}  "
        f"{controller + ' above it by':<24}"
    )
    lines = [head + "pays after" * bool(learning)]
    for name in names:
        of = [each for each in whole if each.controller == name]
        line = (
            f"{name:<14}{_mean(of, 'test_accuracy'):>14.1%}{1 + _mean(of, 'extra'):>11.2f}x"
            f"{_mean(of, 'epochs'):>8.1f}"
            f"{short(_mean(of, 'flops')):>10}  "
        )
        if name != controller:
            mean, half = measure_gain(found, controller, name)
            line += f"{f'{100 * mean:+.2f} +- {100 * half:.2f} points':<24}"
            line += estimate_break_even(found, controller, name, learning) if learning else ""
        lines.append(line.rstrip())
    if learning:
        hosts = learning / _mean([each for each in whole if each.controller == controller], "flops")
        lines.append(
            f"learning cost {short(learning)}FLOP, as much as {hosts:,.0f} hosts here; "
            f"{controller} pays after so many, if each stops once it is as accurate on the "
            "validation set as the other is in the end"
        )
    return [*lines, *_describe_teachers(whole, controller)]


def estimate_break_even(found: Found, controller: str, other: str, learning: float) -> str:
    """After how many hosts ``controller`` has saved what it cost to learn, where it is better than
    ``other`` at all."""
    mean, half = measure_gain(found, controller, other)
    if mean <= half:
        return "never" if mean < -half else "not shown"
    others = [each for outcomes in found for each in outcomes if each.controller == other]
    enough = average_course(found, controller).reaches(_mean(others, "accuracy"))
    saved = 0.0 if enough is None else _mean(others, "flops") - enough
    return f"{math.ceil(learning / saved):,} hosts" if saved > 0 else "not shown"


def measure_gain(found: Found, controller: str, other: str) -> tuple[float, float]:
    """By how much the test accuracy of ``controller`` is above that of ``other``, and half the
    width of its interval. Differences are paired by environment."""
    return average_across([_pair_differences(outcomes, controller, other) for outcomes in found])


def _pair_differences(outcomes: Sequence[Comparison], controller: str, other: str) -> list[float]:
    by_name = {(each.controller, each.environment): each.test_accuracy for each in outcomes}
    numbers = dict.fromkeys(each.environment for each in outcomes)
    return [by_name[controller, number] - by_name[other, number] for number in numbers]


def _describe_teachers(whole: Sequence[Comparison], controller: str) -> list[str]:
    """Describe what the controller kept, beside what is known to be right, and how far it goes on
    the way to the oracle."""
    mine = [each for each in whole if each.controller == controller]
    none = sum(not each.kept for each in mine)
    lines = [f"no growth in {_format_share(none, len(mine))}"]
    if right := [each for each in mine if each.truth]:
        hit = sum(each.kept == each.truth for each in right)
        held = sum(set(each.truth or ()) <= set(each.kept) for each in right)
        lines.append(
            f"the right slot and blueprint, and no other, in {_format_share(hit, len(right))}; "
            f"among others in {held - hit}"
        )
    means = {
        name: _mean([each for each in whole if each.controller == name], "test_accuracy")
        for name in ("oracle", "static-small")
    }
    if means["oracle"] > means["static-small"]:
        way = (_mean(mine, "test_accuracy") - means["static-small"]) / (
            means["oracle"] - means["static-small"]
        )
        lines.append(f"{way:.0%} of the way from static-small to the oracle")
    return lines


def _format_share(hits: int, of: int) -> str:
    low, high = wilson(hits, of)
    return f"{hits / of:.1%} ({low:.1%} to {high:.1%})"


def _mean(outcomes: Sequence[Comparison], name: str) -> float:
    return sum(getattr(each, name) for each in outcomes) / len(outcomes) if outcomes else math.nan
