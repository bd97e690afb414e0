"""The lines that a run of this loop prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stageb.two_channel import stored
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.schedule import Schedule


def describe_start(config: TwoChannelConfig, schedule: Schedule, done: int) -> str:
    """The first line, when ``done`` steps are done."""
    place = f"{config.output.root}/{config.output.run_name}"
    if done:
        return f"{place}: resuming after {done} of {schedule.steps} steps"
    images = f"{schedule.samples:,} images, channels {' '.join(config.schedule.pattern)}"
    return f"{place}: {schedule.steps:,} steps over {images}"


def describe_losses(row: Mapping[str, Any], f1: float | None) -> str:
    """The losses of text and coordinates, and ``f1`` of the last rollouts, in a few words."""
    losses = (row["loss/text"], row["loss/coordinates"])
    said = " + ".join("none" if value is None else f"{value:.3f}" for value in losses)
    return f"loss {said}" if f1 is None else f"loss {said}, rollouts F1 {f1:.2f}"


def describe_evaluation(row: Mapping[str, Any], part: str = "eval") -> str:
    """The metrics on the test images, or on val, in a few words."""
    return f"mAP {row[f'{part}/mAP']:.3f}, mAP50 {row[f'{part}/mAP50']:.3f}, F1 {row[f'{part}/f1_50']:.3f}"


def describe_result(row: Mapping[str, Any], config: TwoChannelConfig) -> str:
    """The result of the run whose last row is ``row``."""
    place = f"{config.output.root}/{config.output.run_name}/{stored.BEST if config.data.val else stored.MODEL}"
    found = f"; on the test images {describe_evaluation(row)}" if "eval/mAP" in row else ""
    return f"{row['step']} steps, {row['epoch']:.1f} epochs{found}; the checkpoint: {place}"
