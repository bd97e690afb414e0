"""A detector small enough for tests, drawn images, and what it is taught of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from stageb.two_channel.boxes import data, text
from stageb.two_channel.boxes.shapes import write_shapes
from stageb.two_channel.config import (
    DetectorConfig,
    LossConfig,
    PackingConfig,
    SmallConfig,
    TwoChannelConfig,
)
from stageb.two_channel.learning.learner import DetectorLearner, StepFigures
from stageb.two_channel.learning.packing import Line
from stageb.two_channel.learning.targets import (
    count_totals,
    make_corrected_target,
    make_true_target,
)
from stageb.two_channel.model import model
from stageb.two_channel.model.model import Detector
from stageb.two_channel.types import Match, Sample, StepTotals, Target

SMALL = SmallConfig(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    vision_hidden_size=16,
    vision_depth=2,
    vision_num_heads=1,
    patch_size=16,
)
EVERY_LOSS = LossConfig(soft_width=4.0)
WORDS = TwoChannelConfig().data.prompt


@cache
def folder_of(root: Path) -> Path:
    """A checkpoint and six drawn images beneath ``root``."""
    torch.set_num_threads(1)
    write_shapes(root, "train", 6, seed=3)
    model.make_small(
        root / "model", SMALL, {each.desc for sample in samples(root) for each in sample.objects}
    )
    return root


def samples(root: Path) -> list[Sample]:
    """The drawn images."""
    return data.read([root / "train.jsonl"])


def detector(root: Path, config: DetectorConfig | None = None) -> Detector:
    """A detector whose choices are far from even."""
    return roughened(load(folder_of(root) / "model", config))


def load(folder: Path, config: DetectorConfig | None = None) -> Detector:
    """The checkpoint in ``folder``."""
    return model.load(str(folder), TwoChannelConfig(model=config or DetectorConfig()), (), "cpu")


def save(found: Detector, folder: Path) -> None:
    """Write ``found`` as a checkpoint that transformers loads as it is."""
    made, state = found.model, found.model.state_dict()
    tables = {layer: name for name, layer in made.named_modules()}
    if made.config.get_text_config().tie_word_embeddings or made.config.tie_word_embeddings:
        into, out = (
            f"{tables[layer]}.weight"
            for layer in (made.get_input_embeddings(), made.get_output_embeddings())
        )
        state[out] = state[into]
    made.save_pretrained(folder, state_dict=state)
    found.tokenizer.save_pretrained(folder)
    found.eyes.process.save_pretrained(folder)


@torch.no_grad()
def roughened(found: Detector) -> Detector:
    """``found`` with larger weights, so that what stands where is not lost in rounding."""
    generator = torch.Generator().manual_seed(1)
    for weight in found.model.parameters():
        if weight.ndim > 1:
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.15)
    return found


def taught(root: Path, found: Detector) -> list[tuple[Sample, Target]]:
    """Every image with its truth; the last two as if a rollout had found its first object twice and
    missed the others."""
    spelling = found.spelling
    targets: list[tuple[Sample, Target]] = []
    for number, sample in enumerate(samples(root)):
        true = text.list_true_objects(sample)
        if number < 4:
            targets.append((sample, make_true_target(true, spelling)))
            continue
        answer = text.write_answer([true[0], true[0]], spelling).ids
        matched = Match(((0, 0),), (1,), tuple(range(1, len(true))))
        targets.append(
            (
                sample,
                make_corrected_target(
                    answer, text.parse(answer, spelling), matched, true, spelling
                ),
            )
        )
    return targets


def totals(*packs: list[Line]) -> StepTotals:
    """Of a step that learns from ``packs``."""
    return count_totals(line.target for lines in packs for line in lines)


def step(
    learner: DetectorLearner, number: int, targets: Sequence[tuple[Sample, Target]]
) -> StepFigures:
    """A whole step on ``targets``, at a rate of .001."""
    learner.teach(number, targets, count_totals(target for _, target in targets))
    return learner.finish(1e-3)


def config(**sections: Any) -> TwoChannelConfig:
    """A run's config, with every loss and packs of about two images."""
    return TwoChannelConfig(
        **({"losses": EVERY_LOSS, "packing": PackingConfig(160, 128)} | sections)
    )
