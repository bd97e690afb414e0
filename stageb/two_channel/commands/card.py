"""The model card of a run (Mitchell et al. 2019): data, results, limits, use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from stageb.runs.figures import short
from stageb.two_channel.boxes.data import Inputs
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.types import Sample

FIGURES = {
    "f1_50": "F1 at IoU .50",
    "precision_50": "precision at .50",
    "recall_50": "recall at .50",
    "mAP": "mAP (COCO)",
    "mAP50": "mAP at .50",
    **{f"mAP_{size}": f"mAP, {size} objects" for size in ("small", "medium", "large")},
    "AR100": "AR, 100 objects an image",
}


NOTHING_SHARED = "No image of val or test was trained on."


def write_card(config: TwoChannelConfig, inputs: Inputs, rows: Sequence[Mapping[str, Any]], best: Any, size: int) -> str:
    """The card of a run as Markdown. ``rows`` are those of metrics.jsonl, ``best`` the run's state about the checkpoint that
    was best on val (None without val), ``size`` the number of the model's parameters."""
    base = config.model.model_name_or_path
    began = f"fine-tuned from `{base}` ({config.tuner.kind})" if base else "trained from random weights"
    steps = best["step"] if best else rows[-1]["step"]
    parts = {"train": inputs.train, "val": inputs.val, "test": inputs.test}
    lines = [
        f"# {config.output.run_name}",
        "",
        f"A detector: a vision-language model with {short(size)} parameters, {began}, that writes the objects of an",
        f"image with their boxes. Trained on {len(inputs.train):,} images in {steps:,} steps of the loop `two_channel`.",
        "",
        "## Data",
        "",
        *_format_table(["", *parts], [["images", *(f"{len(part):,}" for part in parts.values())], *_count_objects(parts)]),
        "",
        f"Digest of all data: `{inputs.digest}`. {' '.join(inputs.shared) or NOTHING_SHARED}",
        "",
        "## Results",
        "",
        *_format_results(rows, best),
        "",
        "## Limits",
        "",
        "- It knows the categories above and no others. Its answers to images unlike the training images were not measured.",
        "- A score is the probability of an object's words times the geometric mean of that of its coordinates. It ranks",
        "  boxes; it is not the probability that a box is right.",
        f"- Images of more than {config.model.image_pixels:,} pixels are scaled down: tiny objects are lost.",
        "- Boxes are written one after another: a missed or repeated object changes those that follow.",
        "",
        "## Use",
        "",
        "`stageb predict RUN --images FOLDER --to FOLDER` detects objects in pictures, `stageb evaluate RUN --data FILE`",
        "measures it on labelled ones; the checkpoint loads in transformers as it is.",
    ]
    return "\n".join(lines) + "\n"


def _count_objects(parts: Mapping[str, Sequence[Sample]]) -> list[list[str]]:
    """A row for each category: the number of its objects in each part of the data."""
    counts = {name: Counter(each.desc for sample in part for each in sample.objects) for name, part in parts.items()}
    names = sorted({desc for each in counts.values() for desc in each})
    return [[desc, *(f"{each[desc]:,}" for each in counts.values())] for desc in names]


def _format_results(rows: Sequence[Mapping[str, Any]], best: Any) -> list[str]:
    """The figures on val and test, as far as they were measured."""
    judged = next((row for row in rows if best and row["step"] == best["step"]), {})
    parts = {"val, used to choose it": (judged, "val"), "test": (rows[-1], "eval")}
    held = {name: (row, prefix) for name, (row, prefix) in parts.items() if f"{prefix}/mAP" in row}
    if not held:
        return ["It was not evaluated on any image."]
    table = [
        [said, *(_format_figure(row.get(f"{prefix}/{name}")) for row, prefix in held.values())]
        for name, said in FIGURES.items()
    ]
    lines = _format_table(["", *held], [line for line in table if set(line[1:]) != {"-"}])
    if best and "threshold" in best:
        said = (
            f"On val, F1 is largest for boxes with scores of at least {best['threshold']:.4g}: `stageb predict` keeps those."
        )
        lines += ["", said]
    return lines


def _format_figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]
