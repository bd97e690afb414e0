"""Convert YOLO annotations to this project's rows: a text file per image, with lines of ``class x_center y_center width
height`` in fractions of the image, or ``class x1 y1 x2 y2 x3 y3 ...`` for polygons (Ultralytics' detection and segmentation
formats).

The input is not trusted: see ``imports.py``. A picture without a text file has no objects, as in YOLO; a text file without a
picture is a fault. A sixth number of a line, a detector's confidence, is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from stageb.errors import BadInputError, BadLine, InputError
from stageb.store import disk
from stageb.two_channel.boxes.data import Picture, find_pictures, list_files
from stageb.two_channel.boxes.imports import POLYGON, POLYGONS_REMEDY, ImportedData, bound_points, parse_number
from stageb.two_channel.types import Box
from stageb.untrusted import strict_yaml
from stageb.untrusted.clean_text import text_fault
from stageb.untrusted.strict_json import FaultError, file_named, lines, open_named, short
from stageb.untrusted.strict_yaml import YamlError

WITHOUT_FILE = "pictures without a text file"
MAX_NAMES = 1 << 20  # bytes of a file of names
MAX_DIGITS = 9  # of a class number; Python refuses to parse far longer ones
SLACK = 0.01  # how far rounding may carry a fraction beyond 0 or 1
_NUMBER_KEY = re.compile(r"(^\s*|[{,]\s*)(\d+)(\s*:\s)", re.MULTILINE)  # which strict YAML does not allow
LINE = "class x_center y_center width height, in fractions of the image"


def read_yolo(labels: Path, images: Path, names: Path, polygons: bool) -> ImportedData:
    """Read the text files in ``labels`` about the pictures in ``images``, which have the same relative paths.

    ``names`` lists the classes: one per line, or as ``names`` of a YAML file. With ``polygons``, polygons become the boxes
    around them. Raises ``InputError``.
    """
    if not labels.is_dir():
        raise InputError(f"{labels}: no such folder; name the folder of the YOLO text files")
    known = read_names(names)
    made = ImportedData(str(labels), "labels")
    pictures = find_pictures(images, skip_broken=False)
    named = _group_by_stem(pictures)
    texts = list_files(labels, lambda name: name.endswith(".txt"))
    left = {each.removesuffix(".txt") for each in texts} - ({"classes"} - set(named))
    for stem in sorted(left):
        if len(alike := named.get(stem, [])) > 1:
            what = f"{' and '.join(map(short, alike))} both have this name"
            remedy = "keep one of these pictures, or give each its own name"
            made.bad.append(BadLine(str(labels / f"{stem}.txt"), 0, what, remedy))
            left.remove(stem)
    for picture in pictures:
        assert picture.sample
        size, stem = (picture.sample.width, picture.sample.height), _stem(picture)
        if stem not in left:
            made.counts[WITHOUT_FILE] += 1
            made.add(picture.name, size, [], place=picture.name)
            continue
        left.remove(stem)
        objects = list[tuple[str, Box]]()
        try:
            path = file_named(f"{stem}.txt", labels)
            for number, raw in lines(path, "label", disk.open_file):
                try:
                    objects += _parse_line(raw, known, size, polygons, made)
                except FaultError as fault:
                    made.bad.append(BadLine(str(labels / f"{stem}.txt"), number, fault.what, fault.remedy))
        except FaultError as fault:
            made.bad.append(BadLine(str(labels / f"{stem}.txt"), 0, fault.what, fault.remedy))
        made.add(picture.name, size, objects, place=picture.name)
    remedy = f"put it into {images}, or name a folder that has labels of these pictures only"
    for each in sorted(left):
        made.bad.append(BadLine(str(labels / f"{each}.txt"), 0, "there is no picture with that name", remedy))
    return made.checked()


def read_names(path: Path) -> list[str]:
    """The names of the classes, in order. Raises ``BadInputError``."""
    try:
        raw = [line for _, line in lines(str(path), "name", open_named)]
        if sum(map(len, raw)) > MAX_NAMES:
            raise FaultError("too large for names", "name classes.txt or data.yaml")
        text = b"".join(raw).decode("utf-8")
        found = _parse_yaml_names(text) if path.suffix in (".yaml", ".yml") else [line.strip() for line in text.splitlines()]
        while found and found[-1] == "":
            del found[-1]
        if not found:
            raise FaultError("no names", "write one name per line, in the order of the class numbers")
        for number, name in enumerate(found):
            if not isinstance(name, str) or name != name.strip() or (fault := text_fault(name)):
                what = "not a text" if not isinstance(name, str) else fault or "white space around it"
                raise FaultError(f"class {number}: {what}", "give every class a name, on one line")
        return found
    except (FaultError, YamlError) as fault:
        raise BadInputError("names", [BadLine(str(path), fault.line, fault.what, fault.remedy)]) from None
    except UnicodeDecodeError:
        raise BadInputError("names", [BadLine(str(path), 0, "not UTF-8", "save it as UTF-8")]) from None


def _parse_yaml_names(text: str) -> list[Any]:
    """``names`` of a data.yaml: a list, or a mapping from the numbers 0, 1, ..."""
    values, _ = strict_yaml.read(_NUMBER_KEY.sub(r'\1"\2"\3', text))
    names = values.get("names") if isinstance(values, dict) else None
    if isinstance(names, dict):
        numbered = {int(key): name for key, name in names.items() if key.isdecimal() and len(key) <= MAX_DIGITS}
        if len(numbered) == len(names) and set(numbered) == set(range(len(names))):
            return [numbered[number] for number in range(len(names))]
    if not isinstance(names, list):
        raise FaultError("no names", "name a file with names: [cat, dog], or a .txt with one name per line")
    return names


def _stem(picture: Picture) -> str:
    """The path of a picture's text file, without its suffix."""
    return PurePosixPath(picture.name).with_suffix("").as_posix()


def _group_by_stem(pictures: Sequence[Picture]) -> dict[str, list[str]]:
    """The names of pictures by their text file. If several share one, nobody can tell whose boxes it has."""
    found: dict[str, list[str]] = {}
    for each in pictures:
        found.setdefault(_stem(each), []).append(each.name)
    return found


def _parse_line(
    raw: bytes, names: Sequence[str], size: tuple[int, int], polygons: bool, made: ImportedData
) -> list[tuple[str, Box]]:
    """The object on a line, in pixels; none if it is blank. Raises ``FaultError``."""
    words = raw.decode("ascii", "replace").split()
    if not words:
        return []
    numbers = [parse_number(word) for word in words]
    if None in numbers:
        raise FaultError("a word that is not a number", f"write {LINE}")
    kind, *shares = (number or 0.0 for number in numbers)
    if kind != int(kind) or not 0 <= kind < len(names):
        raise FaultError(f"class {words[0][:20]}, but only {len(names)} have names", "name the file that lists all classes")
    polygon = len(shares) >= 6 and len(shares) % 2 == 0
    if not polygon and len(shares) not in (4, 5):
        raise FaultError(f"{len(words)} numbers", f"write {LINE}")
    if polygon and not polygons:
        raise FaultError("a polygon", POLYGONS_REMEDY)
    told = shares if polygon else shares[:4]
    if not all(-SLACK <= each <= 1 + SLACK for each in told):
        raise FaultError("a number outside 0 to 1", f"write {LINE}")
    width, height = size
    desc = names[int(kind)]
    if polygon:
        made.counts[POLYGON] += 1
        return [(desc, bound_points([(x * width, y * height) for x, y in zip(told[::2], told[1::2], strict=True)]))]
    x, y, across, down = told
    edges = (x - across / 2) * width, (y - down / 2) * height, (x + across / 2) * width, (y + down / 2) * height
    x1, y1, x2, y2 = (round(at, 3) for at in edges)
    return [(desc, (x1, y1, x2, y2))]
