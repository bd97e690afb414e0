"""Labels of other programs: YOLO's texts, Label Studio's tasks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from stageb.errors import BadInputError, BadLine, InputError
from stageb.store import disk
from stageb.two_channel.boxes.data import PictureFile, find_pictures, list_files
from stageb.two_channel.boxes.imports import (
    POLYGON,
    POLYGONS_REMEDY,
    ImportedData,
    bound_points,
    clean_name,
    find_size,
    name_places,
    parse_number,
    read_json,
)
from stageb.two_channel.types import Box
from stageb.untrusted import strict_yaml
from stageb.untrusted.clean_text import text_fault
from stageb.untrusted.strict_json import FaultError, file_named, lines, open_named, short
from stageb.untrusted.strict_yaml import YamlError

# Convert YOLO annotations to this project's rows: a text file per image, with lines of ``class
# x_center y_center width height`` in fractions of the image, or ``class x1 y1 x2 y2 x3 y3 ...`` for
# polygons (Ultralytics' detection and segmentation formats).
#
# The input is not trusted: see ``imports.py``. A picture without a text file has no objects, as in
# YOLO; a text file without a picture is a fault. A sixth number of a line, a detector's confidence,
# is ignored.

YAML = (".yaml", ".yml")
CLASSES = "classes.txt"  # which tools put beside the labels
WITHOUT_FILE = "pictures without a text file"
MAX_NAMES = 1 << 20  # bytes of a file of names
MAX_DIGITS = 9  # of a class number; Python refuses to parse far longer ones
SLACK = 0.01  # how far rounding may carry a fraction beyond 0 or 1
# which strict YAML does not allow
_NUMBER_KEY = re.compile(r"(^\s*|[{,]\s*)(\d+)(\s*:\s)", re.MULTILINE)
LINE = "class x_center y_center width height, in fractions of the image"


def read_yolo(labels: Path, images: Path, known: Sequence[str], polygons: bool) -> ImportedData:
    """Read the text files in ``labels`` about the pictures in ``images``, which have the same
    relative paths.

    ``known`` are the names of the classes, in order. With ``polygons``, polygons become the boxes
    around them. Raises ``InputError``.
    """
    if not labels.is_dir():
        raise InputError(f"{labels}: no such folder; name the folder of the YOLO text files")
    pictures = find_pictures(images, skip_broken=False)
    return read_labels(
        labels,
        images,
        {each: name_text(each.name) for each in pictures},
        list_texts(labels),
        known,
        polygons,
    )


def read_labels(
    folder: Path,
    images: Path,
    pictures: Mapping[PictureFile, str],
    texts: Iterable[str],
    known: Sequence[str],
    polygons: bool,
) -> ImportedData:
    """Read the labels of ``pictures`` in ``images``, each with the name of its text file in
    ``folder``. ``texts`` are those that there are; each has to belong to a picture. Raises
    ``InputError``."""
    made = ImportedData(str(folder), "labels")
    named: dict[str, list[str]] = {}  # the names of pictures by their text file
    for picture, text in pictures.items():
        named.setdefault(text, []).append(picture.name)
    left = {each for each in texts if each in named or PurePosixPath(each).name != CLASSES}
    for text in sorted(left):
        if len(alike := named.get(text, [])) > 1:  # nobody can tell whose boxes it has
            what = f"{' and '.join(map(short, alike))} both have this name"
            remedy = "keep one of these pictures, or give each its own name"
            made.bad.append(BadLine(str(folder / text), 0, what, remedy))
            left.remove(text)
    for picture, text in pictures.items():
        assert picture.sample
        size = picture.sample.width, picture.sample.height
        if text not in left:
            made.counts[WITHOUT_FILE] += 1
            made.add(picture.name, size, [], place=picture.name)
            continue
        left.remove(text)
        objects = list[tuple[str, Box]]()
        try:
            for number, raw in lines(file_named(text, folder), "label", disk.open_file):
                try:
                    objects += _parse_line(raw, known, size, polygons, made)
                except FaultError as fault:
                    made.bad.append(fault.in_file(str(folder / text), number))
        except FaultError as fault:
            made.bad.append(fault.in_file(str(folder / text)))
        made.add(picture.name, size, objects, place=picture.name)
    remedy = f"put it into {images}, or name a folder that has labels of these pictures only"
    for each in sorted(left):
        made.bad.append(
            BadLine(str(folder / each), 0, "there is no picture with that name", remedy)
        )
    return made.checked()


def name_text(name: str) -> str:
    """The text file of a picture, as it is called beside the picture."""
    return PurePosixPath(name).with_suffix(".txt").as_posix()


def list_texts(folder: Path) -> list[str]:
    """The text files in ``folder`` and its subfolders."""
    return list_files(folder, lambda name: name.endswith(".txt"))


def read_names(path: Path) -> list[str]:
    """The names of the classes, in order. Raises ``BadInputError``."""
    if path.suffix in YAML:
        return read_data_yaml(path)[1]
    with _reporting_faults(path):
        return _check_class_names([line.strip() for line in _read_text(path).splitlines()])


def read_data_yaml(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What a data.yaml says, and the names of its classes, in order. Raises ``BadInputError``."""
    with _reporting_faults(path):
        values, _ = strict_yaml.read(_NUMBER_KEY.sub(r'\1"\2"\3', _read_text(path)))
        values = values if isinstance(values, dict) else {}
        names = _check_class_names(_list_names(values.get("names")))
        if (count := values.get("nc", len(names))) != len(names):
            raise FaultError(
                f"nc {short(count)}, but {len(names)} names", "name as many classes as there are"
            )
        return values, names


def _read_text(path: Path) -> str:
    raw = [line for _, line in lines(str(path), "name", open_named)]
    if sum(map(len, raw)) > MAX_NAMES:
        raise FaultError("too large for names", "name classes.txt or data.yaml")
    return b"".join(raw).decode("utf-8")


def _list_names(names: Any) -> list[Any]:
    """``names`` of a data.yaml: a list, or a mapping from the numbers 0, 1, ..."""
    if isinstance(names, dict):
        numbered = {
            int(key): name
            for key, name in names.items()
            if key.isdecimal() and len(key) <= MAX_DIGITS
        }
        if len(numbered) == len(names) and set(numbered) == set(range(len(names))):
            return [numbered[number] for number in range(len(names))]
    if not isinstance(names, list):
        raise FaultError(
            "no names", "name a file with names: [cat, dog], or a .txt with one name per line"
        )
    return names


def _check_class_names(found: list[Any]) -> list[str]:
    """``found`` without empty ones at its end. Raises ``FaultError`` for one that no class can
    have."""
    while found and found[-1] == "":
        del found[-1]
    if not found:
        raise FaultError("no names", "write one name per line, in the order of the class numbers")
    for number, name in enumerate(found):
        if not isinstance(name, str) or name != name.strip() or (fault := text_fault(name)):
            what = "not a text" if not isinstance(name, str) else fault or "white space around it"
            raise FaultError(f"class {number}: {what}", "give every class a name, on one line")
    return found


@contextmanager
def _reporting_faults(path: Path) -> Iterator[None]:
    """Raise what is wrong with a file of names as ``BadInputError``."""
    try:
        yield
    except (FaultError, YamlError) as fault:
        raise BadInputError(
            "names", [BadLine(str(path), fault.line, fault.what, fault.remedy)]
        ) from None
    except UnicodeDecodeError:
        raise BadInputError(
            "names", [BadLine(str(path), 0, "not UTF-8", "save it as UTF-8")]
        ) from None


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
        raise FaultError(
            f"class {words[0][:20]}, but only {len(names)} have names",
            "name the file that lists all classes",
        )
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
        return [
            (
                desc,
                bound_points(
                    [(x * width, y * height) for x, y in zip(told[::2], told[1::2], strict=True)]
                ),
            )
        ]
    x, y, across, down = told
    edges = (
        (x - across / 2) * width,
        (y - down / 2) * height,
        (x + across / 2) * width,
        (y + down / 2) * height,
    )
    x1, y1, x2, y2 = (round(at, 3) for at in edges)
    return [(desc, (x1, y1, x2, y2))]


# Convert Label Studio's JSON export to this project's rows: rectangles, and polygons if the user
# asks for them.
#
# The input is not trusted: see ``imports.py``. Numbers are per cent of the image. A region has its
# label with it, or in a result of the type ``labels`` with the same id (the tags Rectangle and
# Labels side by side). A task names its picture as Label Studio serves it (an upload, a local file,
# a URL); its file is the longest suffix of that name that exists in the folder of images. For an
# upload, the eight digits that Label Studio puts before the name may be missing.

NOT_ANNOTATED = "tasks without annotation"
_UPLOAD = re.compile(r"^[0-9a-f]{8}-")
SHAPES = ("rectangle", "polygon")
# regions that cannot be read
OTHERS = ("ellipse", "brush", "keypoint", "bitmask", "vector", "videorectangle")
APART = "labels"
EXPORT = "export tasks as JSON, not JSON-MIN"


def read_label_studio(file: Path, images: Path, polygons: bool) -> ImportedData:
    """Read the tasks exported to ``file`` about the pictures in ``images``. Raises
    ``InputError``."""
    tasks = read_json(file)
    listed = isinstance(tasks, list) and all(isinstance(task, dict) for task in tasks)
    if not listed or not all(isinstance(task.get("data"), dict) for task in tasks):
        raise BadInputError(
            "annotations", [BadLine(str(file), 0, "not a list of Label Studio's tasks", EXPORT)]
        )
    made = ImportedData(str(file))
    for task, place in zip(tasks, name_places("task", tasks), strict=True):
        try:
            results = _find_results(task)
            if results is None:
                made.counts[NOT_ANNOTATED] += 1
                continue
            name = _find_picture(task["data"], images)
            found = _find_regions(results)
            regions = list(zip(found, name_places("region", found), strict=True))
            size = find_size(name, images, *_parse_size(regions))
            made.add(
                name,
                size,
                [_parse_region(each, here, size, polygons, made) for each, here in regions],
                place=place,
            )
        except FaultError as fault:
            made.fault(fault, place)
    return made.checked()


def _find_results(task: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The results of a task's annotation; None if it is not annotated. Raises ``FaultError`` if it
    has several."""
    told = task.get("annotations", task.get("completions"))
    if not isinstance(told, list) or not all(isinstance(each, dict) for each in told):
        raise FaultError("no annotations", EXPORT)
    given = [each for each in told if not each.get("was_cancelled")]
    true = [each for each in given if each.get("ground_truth")]
    chosen = true if len(true) == 1 else given
    if not chosen:
        return None
    if len(chosen) > 1:
        raise FaultError(f"{len(chosen)} annotations", "keep one, or mark one as ground truth")
    results = chosen[0].get("result")
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise FaultError("an annotation without a list of results", EXPORT)
    return results


def _find_regions(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results that are regions, those without a label too, each with its label; what is said of
    the whole picture is left out. Raises ``FaultError`` for a label without a region."""
    regions = [each for each in results if _is_region(each.get("type"))]
    labels: dict[str, list[Any]] = {}
    for each in results:
        if each.get("type") == APART:
            labels.setdefault(short(each.get("id")), []).extend(_list_labels(each, APART))
    if alone := labels.keys() - {short(each.get("id")) for each in regions}:
        raise FaultError(
            f"labels of the region {min(alone)}, which is not there",
            "draw it again, or remove them",
        )
    return [_with_labels(each, labels.get(short(each.get("id")), [])) for each in regions]


def _is_region(kind: Any) -> bool:
    return (
        isinstance(kind, str)
        and kind != APART
        and (kind in (*SHAPES, *OTHERS) or kind.endswith("labels"))
    )


def _list_labels(result: dict[str, Any], kind: str) -> list[Any]:
    names = result["value"].get(kind) if isinstance(result.get("value"), dict) else None
    return names if isinstance(names, list) else [] if names is None else [names]


def _with_labels(region: dict[str, Any], names: Sequence[Any]) -> dict[str, Any]:
    """A region in the form of one whose labels stand with it: its own, and ``names`` that stand
    apart."""
    value = region.get("value")
    if not isinstance(value, dict) or (region["type"].endswith("labels") and not names):
        return region
    kind = f"{region['type'].removesuffix('labels')}labels"
    own = _list_labels(region, kind)
    return {
        **region,
        "type": kind,
        "value": {**value, kind: [*own, *(name for name in names if name not in own)]},
    }


def _parse_size(regions: Sequence[tuple[dict[str, Any], str]]) -> tuple[int | None, int | None]:
    """Width and height of the picture on which all its regions agree, else (None, None). Raises
    ``FaultError``."""
    sizes = {
        (_parse_side(each, here, "original_width"), _parse_side(each, here, "original_height"))
        for each, here in regions
    }
    return next(iter(sizes)) if len(sizes) == 1 else (None, None)


def _parse_side(result: dict[str, Any], here: str, name: str) -> int | None:
    if (value := result.get(name)) is None:
        return None
    number = parse_number(value)
    if number is None:
        raise FaultError(
            f"{here}: {name} {short(value)}", "write the picture's size in pixels, or remove it"
        )
    return int(number)


def _find_picture(data: dict[str, Any], images: Path) -> str:
    """The picture that a task's data names, relative to ``images``."""
    texts = [value for value in data.values() if isinstance(value, str)]
    named = data.get("image", texts[0] if len(texts) == 1 else None)
    if not isinstance(named, str):
        raise FaultError("its data names no image", 'name it under "image"')
    try:
        parts = urlsplit(named)
        local = parse_qs(parts.query).get("d", [])
    except ValueError:
        raise FaultError(
            f"{short(named)}: not a URL", "write the name of a file, or a valid URL"
        ) from None
    path = PurePosixPath(local[0] if local else unquote(parts.path))
    ends = [each for each in path.parts if each not in ("/", "..")]
    fault = FaultError(
        f"{short(named)}: no such picture in {images}", "put it there, under that name"
    )
    for start in range(len(ends)):
        for last in dict.fromkeys((ends[-1], _UPLOAD.sub("", ends[-1]))):
            name = "/".join([*ends[start:-1], last])
            try:
                file_named(name, images)
            except FaultError as error:
                if "no such file" not in error.what:
                    raise
                continue
            return name
    raise fault


def _parse_region(
    result: dict[str, Any], here: str, size: tuple[int, int], polygons: bool, made: ImportedData
) -> tuple[str, Box]:
    """The name and the box, in pixels, of a region; ``here`` names it in messages. Raises
    ``FaultError``."""
    kind, value = result["type"], result.get("value")
    if kind.removesuffix("labels") not in SHAPES:
        raise FaultError(
            f"{here}: {short(kind.removesuffix('labels'))}", "keep only rectangles and polygons"
        )
    names = value.get(kind) if isinstance(value, dict) else None
    if (
        not isinstance(names, list)
        or len(names) != 1
        or not isinstance(names[0], str)
        or not names[0].strip()
    ):
        raise FaultError(
            f"{here}: {short(names) if names else 'no label'}", "give it one label, or remove it"
        )
    assert isinstance(value, dict)
    try:
        desc = clean_name(names[0])
    except FaultError as fault:
        raise FaultError(f"{here}: {fault.what}", fault.remedy) from None
    corners = (
        _parse_rectangle(value, size) if kind == "rectanglelabels" else _parse_polygon(value, size)
    )
    if corners is None:
        raise FaultError(
            f"{here}: {short(value)}", "give x, y, width and height, or points, in per cent"
        )
    if kind == "polygonlabels" or value.get("rotation"):
        if not polygons:
            what = "a polygon" if kind == "polygonlabels" else "a rotated rectangle"
            raise FaultError(f"{here}: {what}", POLYGONS_REMEDY)
        made.counts[POLYGON] += 1
    return desc, bound_points(corners)


def _parse_rectangle(
    value: dict[str, Any], size: tuple[int, int]
) -> list[tuple[float, float]] | None:
    """The corners of a rectangle, rotated about its upper left one, in pixels; None if a number is
    missing."""
    numbers = [parse_number(value.get(name)) for name in ("x", "y", "width", "height")]
    turn = parse_number(value.get("rotation") or 0)
    if None in numbers or turn is None:
        return None
    x, y, width, height = (
        (number or 0.0) / 100 * side for number, side in zip(numbers, (*size, *size), strict=True)
    )
    sine, cosine = math.sin(math.radians(turn)), math.cos(math.radians(turn))
    ends = ((0.0, 0.0), (width, 0.0), (width, height), (0.0, height))
    return [
        (x + right * cosine - down * sine, y + right * sine + down * cosine) for right, down in ends
    ]


def _parse_polygon(
    value: dict[str, Any], size: tuple[int, int]
) -> list[tuple[float, float]] | None:
    points = value.get("points")
    if not isinstance(points, list) or len(points) < 3:
        return None
    found = []
    for each in points:
        x, y = (
            map(parse_number, each) if isinstance(each, list) and len(each) == 2 else (None, None)
        )
        if x is None or y is None:
            return None
        found.append((x / 100 * size[0], y / 100 * size[1]))
    return found
