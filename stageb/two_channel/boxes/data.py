"""Images and their objects: rows read strictly, pictures in a folder, and the samples that a run
starts from.

JSON Lines, read strictly; all faults are reported at once.

A line is ``{"images": ["a.jpg"], "width": 640, "height": 480, "objects": [{"desc": "RBC",
"bbox_2d": [x1, y1, x2, y2]}]}``: one image, its size as shown (upright, after its EXIF
orientation), and its objects in pixels from the upper left corner, edges included (0 to width). An
image without objects has an empty list. An object with ``"iscrowd": 1`` is a crowd; one with
``poly`` ([x1, y1, x2, y2, x3, y3, ...]) instead of ``bbox_2d`` is refused, or read as the box
around it. Other keys are ignored.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Any

from stageb.errors import BadInputError, BadLine, ConfigError, InputError
from stageb.store import disk
from stageb.two_channel.config import Polygons, Split, TwoChannelConfig
from stageb.two_channel.types import Box, Object, Sample
from stageb.untrusted.clean_text import text_fault
from stageb.untrusted.strict_json import (
    FaultError,
    filled_lines,
    object_on,
    short,
    upright_picture_named,
)

KIND = "sample"
LEAST = 16  # pixels of a side: boxes in so small an image may lie within its first pixel
SHAPE = (
    '{"images": ["photo.jpg"], "width": 640, "height": 480, "objects": [{"desc": "cat", '
    '"bbox_2d": [x1, y1, x2, y2]}]}'
)


def read(
    paths: Sequence[str | Path], images: str | Path | None = None, polygons: Polygons = "refuse"
) -> list[Sample]:
    """The samples of all files, in order; ``images`` is the folder that image names are relative
    to, by default each file's.

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
                    bad.append(fault.in_file(path, number))
            told = [
                ((each.width, each.height), one.box)
                for each in samples[first:]
                for one in each.objects
            ]
            if amiss := find_unit_fault(told):
                raise amiss
        except FaultError as fault:
            bad.append(fault.in_file(path))
        first = len(samples)
    if bad:
        raise BadInputError("places in the data", bad)
    return samples


def find_unit_fault(boxes: Sequence[tuple[tuple[int, int], Box]]) -> FaultError | None:
    """What tells that the boxes of a file, each with its image's size (width, height), are not in
    pixels."""
    most = max((max(box) for _, box in boxes), default=0.0)
    if 0 < most <= 1 and all(min(size) > LEAST for size, _ in boxes):
        return FaultError(
            "all boxes lie within 0 to 1",
            "fractions? give pixels: times the image's width and height",
        )
    outside = sum(box[0] >= size[0] or box[1] >= size[1] for size, box in boxes)
    if most <= 1000 and outside and 10 * outside >= len(boxes):  # fewer may be slips
        what = f"{outside} of {len(boxes)} boxes lie outside of their images, and none beyond 1000"
        return FaultError(
            what, "thousandths? give pixels: times the image's width and height, by 1000"
        )
    return None


def _parse_sample(
    raw: bytes, folder: Path, place: str, places: dict[PurePosixPath, str], polygons: Polygons
) -> Sample:
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
        raise FaultError(
            f"objects {short(row['objects'])}",
            'write a list: [{"desc": "cat", "bbox_2d": [x1, y1, x2, y2]}]',
        )
    objects: dict[Object, int] = {}
    crowds: dict[Object, int] = {}
    for number, value in enumerate(row["objects"], 1):
        kind = crowds if _is_crowd(value, number) else objects
        first = kind.setdefault(_parse_object(value, number, (width, height), polygons), number)
        if first != number:
            raise FaultError(f"object {number} repeats object {first}", "keep one of the two")
    if (first_place := places.setdefault(PurePosixPath(key), place)) is not place:
        raise FaultError(
            f"image {short(key)} is at {first_place} already",
            "put all objects of an image on one line",
        )
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
        raise FaultError(
            f"{here}: {short(value)}", 'write {"desc": "cat", "bbox_2d": [x1, y1, x2, y2]}'
        )
    if "poly" in value:
        if "bbox_2d" in value or polygons == "refuse":
            what = "both bbox_2d and poly" if "bbox_2d" in value else "a poly"
            remedy = "give the box around it, as bbox_2d alone, or set data.polygons to box"
            raise FaultError(
                f"{here}: {what}", "give one of the two" if "bbox_2d" in value else remedy
            )
        value = {**value, "bbox_2d": _parse_polygon(value["poly"], here)}
    for name in ("desc", "bbox_2d"):
        if name not in value:
            raise FaultError(
                f"{here}: no {name}", 'write {"desc": "cat", "bbox_2d": [x1, y1, x2, y2]}'
            )
    desc = value["desc"]
    if not isinstance(desc, str) or not desc.strip():
        raise FaultError(
            f"{here}: desc {short(desc)}", "name the object, in a text that is not empty"
        )
    if desc != desc.strip():
        raise FaultError(f"{here}: desc {short(desc)} begins or ends with a space", "remove it")
    if fault := text_fault(desc):
        raise FaultError(f"{here}: its desc has {fault}", "remove it")
    return Object(desc, _parse_box(value["bbox_2d"], here, size))


def _parse_box(value: Any, here: str, size: tuple[int, int]) -> Box:
    four = value if isinstance(value, list) and len(value) == 4 else []
    numbers = [
        each for each in four if isinstance(each, int | float) and not isinstance(each, bool)
    ]
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise FaultError(f"{here}: bbox_2d {short(value)}", "write four numbers: [x1, y1, x2, y2]")
    x1, y1, x2, y2 = map(float, numbers)
    if x1 >= x2 or y1 >= y2:
        raise FaultError(
            f"{here}: bbox_2d {short(value)} has no area",
            "write [x1, y1, x2, y2] with x1 < x2 and y1 < y2, or remove it",
        )
    if x1 < 0 or y1 < 0 or x2 > size[0] or y2 > size[1]:
        what = f"{here}: bbox_2d {short(value)} is not within the image of {size[0]} x {size[1]}"
        raise FaultError(what, "give pixels, clipped to the image")
    return x1, y1, x2, y2


def _parse_polygon(value: Any, here: str) -> list[float]:
    """The box around a polygon. Raises ``FaultError``."""
    sound = isinstance(value, list) and len(value) >= 6 and len(value) % 2 == 0
    if not sound or not all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in value
    ):
        raise FaultError(
            f"{here}: poly {short(value)}",
            "write three points or more: [x1, y1, x2, y2, x3, y3, ...]",
        )
    return [min(value[::2]), min(value[1::2]), max(value[::2]), max(value[1::2])]


SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
LEAVE_OUT = "--skip-broken leaves such files out"


@dataclass(frozen=True, slots=True)
class PictureFile:
    """A file with a picture's suffix."""

    name: str  # relative to the folder, with ``/``
    sample: Sample | None  # without objects; None if it cannot be used
    fault: str = ""  # why it cannot be used


def find_pictures(folder: Path, skip_broken: bool) -> list[PictureFile]:
    """The pictures in ``folder`` and its subfolders, by name; hidden files and linked folders are
    ignored.

    Raises ``InputError`` if there are none and, unless ``skip_broken``, ``BadInputError`` with all
    that cannot be used.
    """
    if not folder.is_dir():
        raise InputError(f"--images {folder}: no such folder; name the folder of the pictures")
    names = sorted(list_files(folder, lambda name: name.lower().endswith(SUFFIXES)))
    if not names:
        raise InputError(
            f"--images {folder}: holds no pictures ({', '.join(each[1:] for each in SUFFIXES)})"
        )
    found, bad = list[PictureFile](), list[BadLine]()
    for name in names:
        try:
            path, (width, height) = upright_picture_named(name, folder)
            found.append(PictureFile(name, Sample(name, path, width, height, ())))
        except FaultError as fault:
            what = fault.what.removeprefix("images: ").removeprefix(f"{name}: ")
            found.append(PictureFile(name, None, what))
            bad.append(BadLine(str(folder / name), 0, what, f"{fault.remedy}; {LEAVE_OUT}"))
    if bad and not skip_broken:
        raise BadInputError("pictures", bad)
    return found


def compute_digest(pictures: Sequence[PictureFile]) -> str:
    """A digest of the names of ``pictures`` and the sizes of their files."""
    sizes = (
        f"{each.name}\0{Path(each.sample.image).stat().st_size if each.sample else 0}\0"
        for each in pictures
    )
    return disk.digest("".join(sizes))


def list_files(folder: Path, keeps: Callable[[str], bool]) -> list[str]:
    """The files in ``folder`` and its subfolders whose names ``keeps`` accepts, relative to it,
    with ``/``; without hidden ones and those in hidden or linked folders."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        beneath = Path(place).relative_to(folder)
        found += [
            (beneath / each).as_posix()
            for each in files
            if keeps(each) and not each.startswith(".")
        ]
    return found


@dataclass(frozen=True)
class DetectorData:
    """The data of a run, the same on every rank."""

    train: tuple[Sample, ...]
    val: tuple[Sample, ...]  # empty without data.val
    test: tuple[Sample, ...]  # empty without data.test

    @property
    def descs(self) -> list[str]:
        """The names of the objects in train, sorted."""
        return sorted({each.desc for sample in self.train for each in sample.objects})

    @property
    def shared(self) -> list[str]:
        """A sentence for each two parts that have images in common."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        images = {name: {sample.image for sample in part} for name, part in parts.items()}
        counts = {
            (one, other): len(images[one] & images[other]) for one, other in combinations(images, 2)
        }
        return [
            f"{count:,} of {len(images[other]):,} images of {other} stand in {one}, too: "
            f"figures on them flatter."
            for (one, other), count in counts.items()
            if count
        ]

    @property
    def digest(self) -> str:
        """A digest of all that was read, apart from the folders of the images."""
        rows = [
            [_to_plain(sample) for sample in part] for part in (self.train, self.val, self.test)
        ]
        return disk.digest(json.dumps(rows))


def _to_plain(sample: Sample) -> dict[str, Any]:
    """A sample as JSON, without the folder of its image."""
    return {name: value for name, value in asdict(sample).items() if name != "crowds" or value} | {
        "image": ""
    }


def read_inputs(config: TwoChannelConfig) -> DetectorData:
    """The samples that ``config`` names. Raises ``InputError`` with every unusable line."""
    paths: dict[Split, str | None] = {
        "train": config.data.train,
        "val": config.data.val,
        "test": config.data.test,
    }
    train, val, test = (
        _read_split(config, split, path) if path else [] for split, path in paths.items()
    )
    if not train:
        named = "a file with samples to train on; this one has none"
        remedy = named if config.data.train else "name the JSON Lines to train on"
        raise ConfigError("data.train", config.data.train, remedy)
    return DetectorData(tuple(train), tuple(val), tuple(test))


def _read_split(config: TwoChannelConfig, split: Split, path: str) -> list[Sample]:
    folder = config.data.images_of(split)
    try:
        return read([path], folder, config.data.polygons)
    except InputError as error:
        if split == "train" or not folder or folder != config.data.images:
            raise
        remedy = (
            f"{folder}; if those of {split} are elsewhere, name their folder: --data.{split}_images"
        )
        raise InputError(f"{error}\nIts images were looked for in {remedy}") from None


def check(config: TwoChannelConfig) -> int:
    """``stageb validate``: read the samples as a fit does, and print what was read. Raises
    ``InputError``."""
    found = read_inputs(config)
    counts = f"{len(found.train)} train, {len(found.val)} val and {len(found.test)} test samples"
    print(f"The keys are valid, and so is every line of the data: {counts}.")
    for sentence in found.shared:
        print(sentence)
    print("The model, the loggers and the devices were not checked.")
    return 0


def list_keys(samples: Sequence[Sample], limit: int = 5) -> str:
    """The first keys of ``samples``, for a message."""
    more = f" and {len(samples) - limit} more" if len(samples) > limit else ""
    return ", ".join(sample.key for sample in samples[:limit]) + more
