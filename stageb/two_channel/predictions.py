"""Predictions as JSON Lines: ``{"image": KEY, "objects": [[desc, x1, y1, x2, y2, score], ...]}``.

Boxes are in bins, so that they are read back exactly. Boxes that were named noise are the ``tail``, in the same form, under
the likeliest other name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stageb.errors import BadInputError, BadLine
from stageb.store import disk
from stageb.two_channel.metrics import Detections
from stageb.two_channel.types import BINS, Detection, Sample
from stageb.untrusted.json_lines import FaultError, filled_lines, object_on, short

KIND = "prediction"
SHAPE = '{"image": "photo.jpg", "objects": [["cat", x1, y1, x2, y2, score]]}'


def write(samples: Sequence[Sample], told: Sequence[Detections], path: Path) -> None:
    """Write the detections ``told`` in ``samples``, a line for each. Raises ``JournalError``."""
    rows = [
        {
            "image": sample.key,
            "objects": [
                [one.desc, *one.bins, float(f"{score:.6g}")] for one, score in zip(each.objects, each.scores, strict=True)
            ],
            **({"tail": [[one.desc, *one.bins, float(f"{score:.6g}")] for one, score in each.tail]} if each.tail else {}),
        }
        for sample, each in zip(samples, told, strict=True)
    ]
    with disk.reporting(path):
        disk.replace(path, disk.json_lines(rows))


def read(path: str, samples: Sequence[Sample]) -> list[Detections]:
    """The detections for each of ``samples`` in a file that ``write`` wrote. Raises ``BadInputError`` with every fault."""
    found: dict[str, Detections] = {}
    bad: list[BadLine] = []
    try:
        for number, raw in filled_lines(path, KIND):
            try:
                row = object_on(raw, SHAPE)
                told, tail = _parse_objects(row.get("objects")), _parse_objects(row.get("tail", []))
                scored = tuple(zip(tail.objects, tail.scores, strict=True))
                found[str(row.get("image"))] = replace(told, tail=scored)
            except FaultError as fault:
                bad.append(BadLine(path, number, fault.what, fault.remedy))
    except FaultError as fault:
        bad.append(BadLine(path, 0, fault.what, fault.remedy))
    remedy = "name predictions for these very images"
    bad += [BadLine(path, 0, f"nothing of image {short(each.key)}", remedy) for each in samples if each.key not in found]
    if bad:
        raise BadInputError("places in the predictions", bad)
    return [found[sample.key] for sample in samples]


def _parse_objects(objects: Any) -> Detections:
    if not isinstance(objects, list):
        raise FaultError(f"objects {short(objects)}", f"write {SHAPE}")
    for each in objects:
        sound = isinstance(each, list) and len(each) == 6 and isinstance(each[0], str)
        sound = sound and all(isinstance(at, int) and 0 <= at < BINS for at in each[1:5])
        if not sound or not isinstance(each[5], int | float):
            raise FaultError(f"an object {short(each)}", f"write {SHAPE}, corners in whole bins from 0 to {BINS - 1}")
    placed = tuple(Detection(desc, (x1, y1, x2, y2)) for desc, x1, y1, x2, y2, _ in objects)
    return Detections(placed, tuple(float(each[5]) for each in objects))
