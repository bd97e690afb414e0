"""The lines that a run of this loop prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stageb.runs.figures import short
from stageb.snake.config import START_LENGTH, SnakeConfig
from stageb.snake.schedule import Schedule


def describe_start(config: SnakeConfig, schedule: Schedule, done: int, last: Mapping[str, Any] | None) -> str:
    """The first line, when ``done`` updates are done; ``last`` is the row of the last of them."""
    place = f"{config.output.root}/{config.output.run_name}"
    if last:
        return f"{place}: resuming after {done} of {schedule.updates} updates, {describe_figures(last, config)}"
    games = f"{schedule.all_games:,} games on {schedule.world_size} rank{'s' * (schedule.world_size > 1)}"
    return f"{place}: {schedule.updates:,} updates from {schedule.steps:,} steps each, of {games}"


def describe_figures(row: Mapping[str, Any], config: SnakeConfig) -> str:
    """The figures of games, in a few words."""
    if row["eval/games"]:
        return f"evaluated: {row['eval/score']:.1f} foods, {row['eval/win_rate']:.1%} won"
    if not row["games"]:
        return "no game ended"
    return f"{row['score']:.2f} of {config.game.cells - START_LENGTH} foods, {row['win_rate']:.1%} won"


def describe_result(row: Mapping[str, Any], config: SnakeConfig) -> str:
    """The result of the run whose last row is ``row``, in a few words."""
    most = config.game.cells - START_LENGTH
    return (
        f"after {short(row['steps'])} steps, {row['eval/games']} games with the most probable actions: "
        f"{row['eval/score']:.1f} of {most} foods, {row['eval/win_rate']:.1%} won, {row['eval/cut_rate']:.1%} cut off"
    )
