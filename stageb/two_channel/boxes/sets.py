"""Whole sets of data, with a folder for each split, as COCO and YOLO have them, converted at once.

*COCO*: ``train``, ``valid`` and ``test``, each with its images and one JSON file; or
``annotations/instances_NAME.json`` and the folder ``NAME`` or ``images/NAME``, where NAME is such
as ``train2017``. *YOLO*: what ``data.yaml`` names.

Image names are relative to the folder of the set, so that one ``data.images`` holds for all splits.
A set comes from elsewhere: nothing in it, no path that ``data.yaml`` names and no link, leads out
of its folder. Where a ``path`` does, the user names the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from stageb.errors import BadInputError, BadLine, InputError
from stageb.two_channel.boxes.data import PictureFile, find_pictures
from stageb.two_channel.boxes.formats import (
    YAML,
    list_texts,
    name_text,
    read_data_yaml,
    read_labels,
)
from stageb.two_channel.boxes.imports import ImportedData, read_coco
from stageb.two_channel.types import Sample
from stageb.untrusted.strict_json import (
    FaultError,
    file_named,
    filled_lines,
    short,
    upright_picture_named,
)

SPLITS = ("train", "val", "test")
DATA_YAML = "data.yaml"
ANNOTATIONS, INSTANCES = "annotations", "instances_"
LAYOUT = (
    "train, valid and test with their images and one JSON file each, or "
    "annotations/instances_train.json and images/train"
)


@dataclass(frozen=True, slots=True)
class ImportedSet:
    """The splits of a set, or one whose name is empty."""

    images: Path  # the folder that image names are relative to
    splits: Mapping[str, ImportedData]  # in the order of ``SPLITS``


def read_coco_set(root: Path, polygons: bool) -> ImportedSet:
    """Read the splits in ``root``. Raises ``InputError`` with the faults of all."""
    readers, first = dict[str, Callable[[], ImportedData]](), dict[str, str]()
    for split, file, images in _list_coco_splits(root):
        if split in readers:
            remedy = "keep one of the two in there, or convert each file alone, with --images"
            raise InputError(
                f"{root}: both {first[split]} and {file} are of the split {split}; {remedy}"
            )
        first[split], readers[split] = file, partial(_read_coco_split, root, file, images, polygons)
    if not readers:
        raise InputError(f"{root}: no split is found there; name a folder with {LAYOUT}")
    return _read_splits(root, readers)


def is_yolo_set(source: Path) -> bool:
    """Whether ``source`` is called as a data.yaml is, or is a folder that holds it."""
    return source.suffix in YAML or (source / DATA_YAML).is_file()


def read_yolo_set(source: Path, root: Path | None, polygons: bool) -> ImportedSet:
    """Read the splits that ``source``, data.yaml or a folder that holds it, names: relative to
    ``root``; None: to its ``path``, within its own folder. Raises ``InputError`` with the faults of
    all."""
    file = source if source.suffix in YAML else source / DATA_YAML
    values, names = read_data_yaml(file)
    base, inner = (root, "") if root else (file.parent, values.get("path") or "")
    named = {split: values.get(split) for split in SPLITS}
    named["val"] = named["val"] or values.get("validation")  # as Ultralytics reads it, too
    readers = {
        split: partial(_read_yolo_split, file, split, folders, (base, inner), names, polygons)
        for split, folders in named.items()
        if folders not in (None, "", [])
    }
    if not readers:
        remedy = (
            "write the folder of the images as train, val or test, or convert each split "
            "alone, with --names"
        )
        raise InputError(f"{file}: names no images; {remedy}")
    return _read_splits(base, readers)


def _list_coco_splits(root: Path) -> list[tuple[str, str, str]]:
    """The splits in ``root``: name, annotation file and folder of the images."""
    found = []
    for folder in sorted(each.name for each in root.iterdir() if each.is_dir()):
        if split := name_split(folder):
            found += [
                (split, f"{folder}/{file.name}", folder)
                for file in sorted((root / folder).glob("*.json"))
            ]
    for file in sorted((root / ANNOTATIONS).glob("*.json")):
        name = file.stem.removeprefix(INSTANCES)
        if split := name_split(name):
            images = name if (root / name).is_dir() else f"images/{name}"
            found.append((split, f"{ANNOTATIONS}/{file.name}", images))
    return found


def name_split(name: str) -> str | None:
    """The split that a folder or file of this name is of: ``valid`` and ``val2017`` are val."""
    return next((split for split in SPLITS if name.lower().startswith(split)), None)


def _read_coco_split(root: Path, file: str, images: str, polygons: bool) -> ImportedData:
    try:
        place, folder = (Path(file_named(name, root)) for name in (file, images))
    except FaultError as fault:
        raise BadInputError("splits", [fault.in_file(str(root / file))]) from None
    return _rename(read_coco(place, folder, polygons), images)


def _read_yolo_split(
    file: Path, split: str, named: Any, place: tuple[Path, Any], names: list[str], polygons: bool
) -> ImportedData:
    """What the folders and lists ``named`` hold; ``place`` is the folder that nothing leads out of,
    and the ``path``."""
    base, inner = place
    pictures, texts = list[PictureFile](), set[str]()
    try:
        for each in named if isinstance(named, list) else [named]:
            images = _find_named(each, base, inner)
            if images.endswith(".txt"):
                pictures += (found := _read_list(images, base))
                texts.update(
                    text for one in found if (base / (text := _name_label(one.name))).is_file()
                )
            else:
                pictures += _within(
                    images, find_pictures(Path(file_named(images, base)), skip_broken=False)
                )
                labels = _to_labels(images)
                texts.update(
                    f"{labels}/{text}" for text in list_texts(Path(file_named(labels, base)))
                )
    except FaultError as fault:
        raise BadInputError(
            "splits", [BadLine(str(file), 0, f"{split}: {fault.what}", fault.remedy)]
        ) from None
    return read_labels(
        base, base, {each: _name_label(each.name) for each in pictures}, texts, names, polygons
    )


def _find_named(named: Any, base: Path, inner: Any) -> str:
    """The folder, or the list, of images ``named``, relative to ``base``, which holds ``inner``.
    Raises ``FaultError``.

    Roboflow writes ``../train/images`` and means ``train/images``, as Ultralytics reads it where
    the first is not there.
    """
    if not isinstance(named, str) or not isinstance(inner, str):
        raise FaultError(
            short(inner if isinstance(named, str) else named), "write the name of a folder"
        )
    name = _relative(PurePosixPath(inner, named.removeprefix("../")), base)
    try:
        if not Path(file_named(name, base)).is_dir() and not name.endswith(".txt"):
            raise FaultError(f"{short(name)}: no folder", "name the folder of the images")
    except FaultError as fault:
        remedy = (
            f"{fault.remedy}; or give the folder of the set as --images, or take out a "
            f"split that it lacks"
        )
        raise FaultError(fault.what, remedy) from None
    return name


def _read_list(name: str, base: Path) -> list[PictureFile]:
    """The pictures that a list names, a line for each, relative to its folder. Raises
    ``FaultError``, ``BadInputError``."""
    found, first, bad = list[PictureFile](), dict[str, int](), list[BadLine]()
    for number, raw in filled_lines(file_named(name, base), "picture"):
        try:
            key = _relative(PurePosixPath(name).parent / raw.decode("utf-8").strip(), base)
            path, (width, height) = upright_picture_named(key, base)
            if first.setdefault(key, number) != number:
                raise FaultError(
                    f"{short(key)} is on line {first[key]} already", "remove one of the two"
                )
            found.append(PictureFile(key, Sample(key, path, width, height, ())))
        except FaultError as fault:
            bad.append(fault.in_file(str(base / name), number))
        except UnicodeDecodeError:
            bad.append(BadLine(str(base / name), number, "not UTF-8", "save it as UTF-8"))
    if bad:
        raise BadInputError("pictures", bad)
    return found


def _relative(name: PurePosixPath, base: Path) -> str:
    """``name`` relative to ``base`` if it lies in there, else as it is."""
    within = base.resolve()
    return (name.relative_to(within) if name.is_relative_to(within) else name).as_posix()


def _name_label(picture: str) -> str:
    """The text file of a picture, both by their names in the set."""
    return name_text(
        f"{_to_labels(PurePosixPath(picture).parent.as_posix())}/{PurePosixPath(picture).name}"
    )


def _to_labels(images: str) -> str:
    """The folder of the labels of images in a folder: the last ``images`` in its name becomes
    ``labels``; without one, they lie with the images."""
    parts = list(PurePosixPath(images).parts)
    for at in reversed(range(len(parts))):
        if parts[at] == "images":
            return PurePosixPath(*parts[:at], "labels", *parts[at + 1 :]).as_posix()
    return images


def _within(folder: str, pictures: Sequence[PictureFile]) -> list[PictureFile]:
    """``pictures`` of a folder of the set, by their names in the set."""
    return [replace(each, name=PurePosixPath(folder, each.name).as_posix()) for each in pictures]


def _rename(made: ImportedData, folder: str) -> ImportedData:
    """``made``, whose images are in ``folder`` of the set, with names relative to the set."""
    for row in made.rows:
        row["images"] = [PurePosixPath(folder, name).as_posix() for name in row["images"]]
    return made


def _read_splits(images: Path, readers: Mapping[str, Callable[[], ImportedData]]) -> ImportedSet:
    found, bad = dict[str, ImportedData](), list[BadLine]()
    for split in sorted(readers, key=SPLITS.index):
        try:
            found[split] = readers[split]()
        except BadInputError as error:
            bad += error.bad
    if bad:
        raise BadInputError("annotations", bad)
    return ImportedSet(images, found)
