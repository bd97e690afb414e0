"""A rank's share of ``stageb predict``: what the detector finds in pictures, as rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stageb.job.world import Json
from stageb.two_channel.boxes.data import PictureFile
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.boxes.text import to_pixels
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning.detect import detect
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.model import model
from stageb.two_channel.model.stored import ModelMetadata
from stageb.two_channel.types import Box, Sample
from stageb.untrusted.pictures import PictureError, examine


class Answerer:
    """A rank's model, which answers its share of the pictures."""

    def __init__(
        self, config: TwoChannelConfig, place: Path, metadata: ModelMetadata, device: str
    ) -> None:
        """``place`` is the folder of the checkpoint."""
        self._config, self._place = config, place
        self._writer = Writer(
            model.load(str(place), config, metadata.categories, device, answers=True)
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All that rows depend on besides the pictures."""
        weights = hashlib.blake2b(digest_size=16)
        for path in sorted(self._place.glob("*.safetensors")):
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    weights.update(block)
        return {
            "weights": weights.hexdigest(),
            "dtype": str(self._writer.detector.model.dtype),
            "prompt": self._writer.detector.words,
            "image_pixels": self._config.model.image_pixels,
            "max_new_tokens": self._config.channel_b.max_new_tokens,
            "views": self._config.evaluation.views,
        }

    def answer(self, group: Sequence[PictureFile]) -> Json:
        """A row for each picture of a group; the row of a broken picture has its error."""
        errors = {each.name: each.fault for each in group if each.sample is None}
        samples = [each.sample for each in group if each.sample]
        try:
            detections = self._answer(samples)
        except PictureError:
            broken = {sample.key: fault for sample in samples if (fault := find_fault(sample))}
            if not broken:
                raise
            errors |= broken
            samples = [sample for sample in samples if sample.key not in broken]
            detections = self._answer(samples)
        rows = {
            sample.key: make_row(sample, each)
            for sample, each in zip(samples, detections, strict=True)
        }
        rows |= {name: {"images": [name], "error": what} for name, what in errors.items()}
        return [rows[each.name] for each in group]

    def _answer(self, samples: Sequence[Sample]) -> list[Detections]:
        return detect(self._writer, samples, self._config) if samples else []


def make_row(sample: Sample, detections: Detections) -> dict[str, Any]:
    """The row of ``detections`` in a picture, in its pixels, without boxes of no area; of equal
    boxes the higher score counts."""
    boxes: dict[tuple[str, Box], float] = {}
    for each, score in zip(
        to_pixels(detections.objects, sample.width, sample.height), detections.scores, strict=True
    ):
        x1, y1, x2, y2 = (round(at, 2) for at in each.box)
        if x1 < x2 and y1 < y2:
            key = each.desc, (x1, y1, x2, y2)
            boxes[key] = max(score, boxes.get(key, 0.0))
    objects = [
        {"desc": desc, "bbox_2d": box, "score": float(f"{score:.6g}")}
        for (desc, box), score in boxes.items()
    ]
    return {
        "images": [sample.key],
        "width": sample.width,
        "height": sample.height,
        "objects": objects,
    }


def find_fault(sample: Sample) -> str:
    """Why a picture cannot be opened; empty if it can."""
    try:
        examine(sample.image)
    except PictureError as error:
        return error.what
    return ""
