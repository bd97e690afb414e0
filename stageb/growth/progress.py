"""The lines that a run of this loop prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stageb.growth.config import GrowthConfig, GrowthSection
from stageb.growth.schedule import Schedule
from stageb.runs.figures import short


def describe_start(config: GrowthConfig, schedule: Schedule, done: int, last: Mapping[str, Any] | None) -> str:
    """The first line, when ``done`` updates are done; ``last`` is the row of the last of them."""
    place = f"{config.output.root}/{config.output.run_name}"
    if last:
        return f"{place}: resuming after {done} of {schedule.updates} updates, {describe_figures(last)}"
    growth, host = config.growth, config.host
    return (
        f"{place}: {schedule.updates:,} updates of {growth.environments} environments each: {config.task.name}, "
        f"{host.kind} hosts, {host.epochs} epochs; controller {growth.controller}"
    )


def describe_assignment(places: Sequence[str], environments: Sequence[int], growth: GrowthSection) -> list[str]:
    """The assignment of an update's environments in lines: ``places`` are the ranks' devices. A lopsided one is said."""
    lines = [
        f"rank {rank} on {place}: {count} environments of an update, in {-(-count // growth.block)} blocks"
        for rank, (place, count) in enumerate(zip(places, environments, strict=True))
    ]
    if len(set(environments)) > 1:
        idle = 1 - sum(environments) / (max(environments) * len(environments))
        lines.append(
            f"lopsided: ranks wait for the busiest, and {idle:.0%} of their time is idle; make the number of blocks "
            f"(growth.environments / growth.block) a multiple of {len(environments)}"
        )
    return lines


def describe_figures(row: Mapping[str, Any]) -> str:
    """The figures of episodes, in a few words."""
    said = f"J {row['objective']:.3f}, validation accuracy {row['accuracy']:.1%}, {row['fossilized']:.2f} seeds kept"
    if row["explained_variance"] is not None:
        said += f", explained variance {row['explained_variance']:.2f}"
    return said if row["eval/objective"] is None else f"{said}; held out: J {row['eval/objective']:.3f}"


def describe_result(row: Mapping[str, Any]) -> str:
    """The result of the run whose last row is ``row``, in a few words."""
    right = "" if row["eval/right"] is None else f", the right slot and blueprint in {row['eval/right']:.0%}"
    return (
        f"after {row['episodes']:,} episodes, {short(row['flops_so_far'])}FLOP; {row['eval/episodes']} held out: "
        f"J {row['eval/objective']:.3f}, validation accuracy {row['eval/accuracy']:.1%}, "
        f"{row['eval/fossilized']:.2f} seeds kept{right}"
    )
