"""The rows of a run's files: the figures of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stageb.runs.figures import rounded
from stageb.runs.logs import Curves, RowView
from stageb.two_channel.boxes import metrics
from stageb.two_channel.learning.ranks import Evaluation, StepResult
from stageb.two_channel.learning.schedule import Schedule
from stageb.two_channel.learning.targets import summarise

CURVES = Curves(
    step="step",
    axis="steps",
    panels=(
        ("loss/text", "cross-entropy of text"),
        ("loss/coordinates", "cross-entropy of coordinates"),
        ("rollout/f1", "F1 at IoU .50"),
        ("rollout/predicted_per_true", "objects told per true one"),
        ("packing/fill", "fill of packs"),
    ),
    tested={"rollout/f1": "val/f1_50"},
    apart="most probable tokens, val",
)
VIEW = RowView(CURVES)


def make_row(
    schedule: Schedule,
    step: int,
    result: StepResult,
    skipped: int,
    val: Evaluation | None,
    test: Evaluation | None,
) -> dict[str, Any]:
    """The row of metrics.jsonl after a step; ``skipped`` is the number of skipped optimiser steps since the run began."""
    figures, channel = result.figures, schedule.channel(step)
    assert figures  # rank 0 learns
    row: dict[str, Any] = {
        "step": step + 1,
        "epoch": schedule.epoch(step + 1),
        "stage2/channel_a": int(channel == "A"),
        "stage2/channel_b": int(channel == "B"),
        **{f"loss/{name}": value for name, value in figures.losses.items() if name != "mass"},
        "coordinates/mass": figures.losses["mass"],
        "grad_norm": figures.grad_norm,
        "learning_rate": schedule.learning_rate(step),
        "skipped": skipped,
        "samples": schedule.size(step),
        "set_aside": figures.set_aside,
        "packing/packs": figures.packs,
        "packing/tokens": figures.tokens,
        "packing/fill": figures.fill,
        **(summarise(result.outcomes) if result.outcomes else {}),
    }
    for part, each in (("val", val), ("eval", test)):
        if each:
            row |= {
                f"{part}/{name}": value for name, value in metrics.compute_figures(each.samples, each.detections).items()
            }
    return {name: value if isinstance(value, int) else rounded(value) for name, value in row.items()}


def summarise_times(result: StepResult, seconds: float) -> dict[str, float]:
    """The times of a step by their names in the logs: for each, that of the slowest rank; ``seconds`` is the whole step."""
    names = sorted({name for each in result.times for name in each if name != "rank"})
    times = {"time/step_s": round(seconds, 3), **{f"time/{name}": _find_slowest(result.times, name) for name in names}}
    if result.outcomes and times.get("time/rollout_generate_s"):
        made = sum(each.tokens for each in result.outcomes)
        times["rollout/gen_tokens_per_s"] = round(made / times["time/rollout_generate_s"], 1)
    return times


def _find_slowest(times: Sequence[Mapping[str, float]], name: str) -> float:
    return round(max(each.get(name, 0.0) for each in times), 3)
