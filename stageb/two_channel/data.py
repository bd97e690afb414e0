"""Images and their objects: JSON Lines, read strictly; all faults are reported at once.

A line is ``{"images": ["a.jpg"], "width": 640, "height": 480, "objects": [{"desc": "RBC", "bbox_2d": [x1, y1, x2, y2]}]}``:
one image, its size as shown (upright, after its EXIF orientation), and its objects in pixels from the upper left corner,
edges included (0 to width). An image without objects has an empty list. An object with ``"iscrowd": 1`` is a crowd; one with
``poly`` ([x1, y1, x2, y2, x3, y3, ...]) instead of ``bbox_2d`` is refused, or read as the box around it. Other keys are
ignored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from stageb.errors import BadInputError, BadLine
from stageb.two_channel.config import Polygons
from stageb.two_channel.types import Box, Object, Sample
from stageb.untrusted.clean_text import text_fault
from stageb.untrusted.json_lines import FaultError, filled_lines, object_on, short, upright_picture_named

KIND = "sample"
LEAST = 16  # pixels of a side: boxes in so small an image may lie within its first pixel
SHAPE = '{"images": ["photo.jpg"], "width": 640, "height": 480, "objects": [{"desc": "cat", "bbox_2d": [x1, y1, x2, y2]}]}'


def read(paths: Sequence[str | Path], images: str | Path | None = None, polygons: Polygons = "refuse") -> list[Sample]:
    """The samples of all files, in order; ``images`` is the folder that image names are relative to, by default each file's.

    Raises ``BadInputError`` with every unusable line of every file.
    """
    samples: list[Sample] = []
    bad: list[BadLine] = []
    first = 0
    places: dict[PurePosixPath, str] = {}
    for path in map(str, paths):
        folder = Path(images) if images is not None else Path(path).parent
        try:
            for number, raw in filled_lines(path, KIND):
                try:
                    samples.append(_parse_sample(raw, folder, f"{path}:{number}", places, polygons))
                except FaultError as fault:
                    bad.append(BadLine(path, number, fault.what, fault.remedy))
            told = [((each.width, each.height), one.box) for each in samples[first:] for one in each.objects]
            if amiss := find_unit_fault(told):
                raise amiss
        except FaultError as fault:
            bad.append(BadLine(path, 0, fault.what, fault.remedy))
        first = len(samples)
    if bad:
        raise BadInputError("places in the data", bad)
    return samples


def find_unit_fault(told: Sequence[tuple[tuple[int, int], Box]]) -> FaultError | None:
    """What tells that the boxes of a file, each with its image's size (width, height), are not in pixels."""
    most = max((max(box) for _, box in told), default=0.0)
    if 0 < most <= 1 and all(min(size) > LEAST for size, _ in told):
        return FaultError("all boxes lie within 0 to 1", "fractions? give pixels: times the image's width and height")
    outside = sum(box[0] >= size[0] or box[1] >= size[1] for size, box in told)
    if most <= 1000 and outside and 10 * outside >= len(told):  # fewer may be slips
        what = f"{outside} of {len(told)} boxes lie outside of their images, and none beyond 1000"
        return FaultError(what, "thousandths? give pixels: times the image's width and height, by 1000")
    return None


def _parse_sample(raw: bytes, folder: Path, place: str, places: dict[PurePosixPath, str], polygons: Polygons) -> Sample:
    row = object_on(raw, SHAPE)
    for name in ("images", "width", "height", "objects"):
        if name not in row:
            raise FaultError(f"no {name}", f"write {SHAPE}")
    if not isinstance(row["images"], list) or len(row["images"]) != 1:
        raise FaultError(f"images {short(row['images'])}", 'name one image: ["photo.jpg"]')
    (key,) = row["images"]
    path, shown = upright_picture_named(key, folder)
    width, height = (_parse_side(row, name) for name in ("width", "height"))
    if shown != (width, height):
        what = f"{width} x {height}, but {key} shows {shown[0]} x {shown[1]}"
        raise FaultError(what, "write the size of the image as it is shown, and boxes within it")
    if not isinstance(row["objects"], list):
        raise FaultError(f"objects {short(row['objects'])}", 'write a list: [{"desc": "cat", "bbox_2d": [x1, y1, x2, y2]}]')
    objects: dict[Object, int] = {}
    crowds: dict[Object, int] = {}
    for number, value in enumerate(row["objects"], 1):
        kind = crowds if _is_crowd(value, number) else objects
        first = kind.setdefault(_parse_object(value, number, (width, height), polygons), number)
        if first != number:
            raise FaultError(f"object {number} repeats object {first}", "keep one of the two")
    if (first_place := places.setdefault(PurePosixPath(key), place)) is not place:
        raise FaultError(f"image {short(key)} is at {first_place} already", "put all objects of an image on one line")
    return Sample(key, path, width, height, tuple(objects), tuple(crowds))


def _parse_side(row: dict[str, Any], name: str) -> int:
    value = row[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FaultError(f"{name} {short(value)}", "write the image's size in whole pixels")
    return value


def _is_crowd(value: Any, number: int) -> bool:
    """Whether the object ``value`` is marked as a crowd."""
    told = value.get("iscrowd", 0) if isinstance(value, dict) else 0
    if told not in (0, 1):
        raise FaultError(f"object {number}: iscrowd {short(told)}", "write 0 or 1")
    return bool(told)


def _parse_object(value: Any, number: int, size: tuple[int, int], polygons: Polygons) -> Object:
    """The object ``value``, the ``number``-th of an image of ``size`` (width, height)."""
    here = f"object {number}"
    if not isinstance(value, dict):
        raise FaultError(f"{here}: {short(value)}", 'write {"desc": "cat", "bbox_2d": [x1, y1, x2, y2]}')
    if "poly" in value:
        if "bbox_2d" in value or polygons == "refuse":
            what = "both bbox_2d and poly" if "bbox_2d" in value else "a poly"
            remedy = "give the box around it, as bbox_2d alone, or set data.polygons to box"
            raise FaultError(f"{here}: {what}", "give one of the two" if "bbox_2d" in value else remedy)
        value = {**value, "bbox_2d": _parse_polygon(value["poly"], here)}
    for name in ("desc", "bbox_2d"):
        if name not in value:
            raise FaultError(f"{here}: no {name}", 'write {"desc": "cat", "bbox_2d": [x1, y1, x2, y2]}')
    desc = value["desc"]
    if not isinstance(desc, str) or not desc.strip():
        raise FaultError(f"{here}: desc {short(desc)}", "name the object, in a text that is not empty")
    if desc != desc.strip():
        raise FaultError(f"{here}: desc {short(desc)} begins or ends with a space", "remove it")
    if fault := text_fault(desc):
        raise FaultError(f"{here}: its desc has {fault}", "remove it")
    return Object(desc, _parse_box(value["bbox_2d"], here, size))


def _parse_box(value: Any, here: str, size: tuple[int, int]) -> Box:
    numbers = (
        [each for each in value if isinstance(each, int | float) and not isinstance(each, bool)] if _has_four(value) else []
    )
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise FaultError(f"{here}: bbox_2d {short(value)}", "write four numbers: [x1, y1, x2, y2]")
    x1, y1, x2, y2 = map(float, numbers)
    if x1 >= x2 or y1 >= y2:
        raise FaultError(
            f"{here}: bbox_2d {short(value)} has no area", "write [x1, y1, x2, y2] with x1 < x2 and y1 < y2, or remove it"
        )
    if x1 < 0 or y1 < 0 or x2 > size[0] or y2 > size[1]:
        what = f"{here}: bbox_2d {short(value)} is not within the image of {size[0]} x {size[1]}"
        raise FaultError(what, "give pixels, clipped to the image")
    return x1, y1, x2, y2


def _parse_polygon(value: Any, here: str) -> list[float]:
    """The box around a polygon. Raises ``FaultError``."""
    sound = isinstance(value, list) and len(value) >= 6 and len(value) % 2 == 0
    if not sound or not all(isinstance(each, int | float) and not isinstance(each, bool) for each in value):
        raise FaultError(f"{here}: poly {short(value)}", "write three points or more: [x1, y1, x2, y2, x3, y3, ...]")
    return [min(value[::2]), min(value[1::2]), max(value[::2]), max(value[1::2])]


def _has_four(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4
