"""The model card of a run, and what to do where its detector finds nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from statistics import fmean
from typing import Any

from stageb.runs.figures import short
from stageb.runs.folder import find_result
from stageb.two_channel.boxes.data import DetectorData
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

# nats of a coordinate's cross-entropy: some 30 of 1,000 bins, too many for an IoU of .50 with usual
# boxes
LEARNT = 3.5
FEW = 100  # images: from nothing, 40 have taught nothing
FEWEST_STEPS = 200  # steps after which it can be told whether a loss has settled
FALLS = 0.01  # by which a loss falls that has not settled, from one tenth of the steps to the next


def advise(
    inputs: DetectorData, rows: Sequence[Mapping[str, Any]], offered: Mapping[str, Any]
) -> str:
    """What hinders a run that offers a detector that finds nothing on val, or on test without val,
    and what to do about it; empty if it finds something. ``rows`` are those of metrics.jsonl."""
    part, samples, f1 = (
        ("val", inputs.val, "val/f1_50") if inputs.val else ("test", inputs.test, "eval/f1_50")
    )
    names = {each.desc for sample in samples for each in sample.objects}
    if not names or offered.get(f1) != 0:
        return ""
    return f"it finds nothing on {part} (F1 0): {_find_hindrance(inputs, names, rows)}"


def _find_hindrance(
    inputs: DetectorData, names: Set[str], rows: Sequence[Mapping[str, Any]]
) -> str:
    """What most likely hinders a detector that finds nothing of ``names``, and what to do about it.

    How well it knows the training images tells: one that does not know even those needs more steps,
    or right boxes, unless they are few.
    """
    if names.isdisjoint(inputs.descs):
        return f"give both the same names: train has no object that is called {min(names)!r}"
    losses = [row["loss/coordinates"] for row in rows if row["loss/coordinates"] is not None]
    tenth, count = len(losses) // 10, len(inputs.train)
    more = f"raise schedule.steps: its loss was not low yet after {len(rows):,}"
    if len(losses) < FEWEST_STEPS:
        return more
    if (last := fmean(losses[-tenth:])) <= LEARNT or count < FEW:
        learnt = f"it has learnt its {count:,} images, but not what others show"
        why = learnt if last <= LEARNT else f"{count} images are few"
        return (
            f"give it more to train on, or begin with a taught checkpoint "
            f"(model.model_name_or_path): {why}"
        )
    if last < (1 - FALLS) * fmean(losses[-2 * tenth : -tenth]):
        return more
    return "check that boxes fit their images: those of train are not learnt either"


def write_card(
    config: TwoChannelConfig,
    inputs: DetectorData,
    rows: Sequence[Mapping[str, Any]],
    best: Any,
    size: int,
) -> str:
    """The card of a run as Markdown. ``rows`` are those of metrics.jsonl, ``best`` the run's state
    about the checkpoint that was best on val (None without val), ``size`` the number of the model's
    parameters."""
    base = config.model.model_name_or_path
    by_lora = ", by LoRA" if config.model.lora_rank else ""
    began = f"fine-tuned from `{base}`{by_lora}" if base else "trained from random weights"
    steps = best["step"] if best else rows[-1]["step"]
    parts = {"train": inputs.train, "val": inputs.val, "test": inputs.test}
    lines = [
        f"# {config.output.run_name}",
        "",
        f"A detector: a vision-language model with {short(size)} parameters, {began}, that "
        f"writes the objects of an",
        f"image with their boxes. Trained on {len(inputs.train):,} images in {steps:,} steps of "
        f"the loop `two_channel`.",
        "",
        "## Data",
        "",
        *_format_table(
            ["", *parts],
            [["images", *(f"{len(part):,}" for part in parts.values())], *_count_objects(parts)],
        ),
        "",
        f"Digest of all data: `{inputs.digest}`. {' '.join(inputs.shared) or NOTHING_SHARED}",
        "",
        "## Results",
        "",
        *_format_results(rows, best),
        *(
            ["", f"{advice[0].upper()}{advice[1:]}."]
            if (advice := advise(inputs, rows, find_result(rows, best)))
            else []
        ),
        "",
        "## Limits",
        "",
        "- It knows the categories above and no others. Its answers to images unlike the "
        "training images were not measured.",
        "- A score is the probability of an object's words times the geometric mean of that of "
        "its coordinates. It ranks",
        "  boxes; it is not the probability that a box is right.",
        f"- Images of more than {config.model.image_pixels:,} pixels are scaled down: tiny "
        f"objects are lost.",
        "- Boxes are written one after another: a missed or repeated object changes those that "
        "follow.",
        "",
        "## Use",
        "",
        "`stageb predict RUN --images FOLDER --to FOLDER` detects objects in pictures, `stageb "
        "evaluate RUN --data FILE`",
        "measures it on labelled ones; the checkpoint loads in transformers as it is.",
    ]
    return "\n".join(lines) + "\n"


def _count_objects(parts: Mapping[str, Sequence[Sample]]) -> list[list[str]]:
    """A row for each category: the number of its objects in each part of the data."""
    counts = {
        name: Counter(each.desc for sample in part for each in sample.objects)
        for name, part in parts.items()
    }
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
        [
            said,
            *(
                "-" if (value := row.get(f"{prefix}/{name}")) is None else f"{value:.3f}"
                for row, prefix in held.values()
            ),
        ]
        for name, said in FIGURES.items()
    ]
    lines = _format_table(["", *held], [line for line in table if set(line[1:]) != {"-"}])
    if (times := sum("eval/mAP" in row for row in rows)) > 1:
        lines += [
            "",
            f"Test was measured {times} times, as the run ended before and went on: it is "
            f"sealed no longer.",
        ]
    if best and "threshold" in best:
        said = (
            f"On val, F1 is largest for boxes with scores of at least "
            f"{best['threshold']:.4g}: `stageb predict` keeps those."
        )
        lines += ["", said]
    return lines


def _format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return [
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    ]
