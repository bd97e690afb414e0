"""Predicted boxes as JSON Lines, and for other programs.

COCO results, Label Studio tasks, YOLO texts.

``{"image": KEY, "objects": [[desc, x1, y1, x2, y2, score], ...]}``.

Boxes are in bins, as the detector wrote them. Boxes that few views tell of are the ``tail``, in the
same form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from stageb.errors import InputError
from stageb.store import disk
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.types import Sample


def write(samples: Sequence[Sample], detections: Sequence[Detections], path: Path) -> None:
    """Write ``detections`` in ``samples``, a line for each. Raises ``JournalError``."""
    rows = [
        {
            "image": sample.key,
            "objects": [
                [one.desc, *one.bins, float(f"{score:.6g}")]
                for one, score in zip(each.objects, each.scores, strict=True)
            ],
            **(
                {"tail": [[one.desc, *one.bins, float(f"{score:.6g}")] for one, score in each.tail]}
                if each.tail
                else {}
            ),
        }
        for sample, each in zip(samples, detections, strict=True)
    ]
    disk.write(path, disk.json_lines(rows))


# Export predicted boxes for other programs: COCO results, Label Studio tasks, YOLO text files.
#
# The input is the rows that ``stageb predict`` writes: ``{"images": [NAME], "width", "height",
# "objects": [{"desc", "bbox_2d", "score"}]}``, or ``{"images": [NAME], "error"}`` for a picture
# that was left out.
#
# - *COCO*: ``results.json``, which COCO's ``loadRes`` reads, and ``images.json``, which maps its
# ids to names and sizes.
# - *Label Studio*: tasks with predictions (pre-annotations), in per cent of the image, and a
# labelling interface for them.
# - *YOLO*: per image a file of ``class x_center y_center width height confidence``, in fractions of
#   the image, as Ultralytics saves them, and ``classes.txt``.
#
# People edit such files, so a file that was changed since it was written here (``.exports.json``
# has the digests) is renamed to ``NAME.1`` before it is written again.

Row = Mapping[str, Any]
NOTES = ".exports.json"
# the names of the label and image controls in Label Studio's interface
LABEL, IMAGE = "label", "image"


@dataclass(frozen=True, slots=True)
class BoxSelection:
    """Which boxes are exported, and how."""

    categories: tuple[str, ...]  # in the order of their ids; boxes with other names are left out
    threshold: float  # the smallest score of a box
    url: str  # prefix of a picture's URL for Label Studio
    model: str  # name of the model, for Label Studio

    def kept(self, row: Row) -> Iterator[tuple[str, Sequence[float], float]]:
        """The boxes of ``row`` to export: name, corners in pixels, score."""
        for each in row.get("objects", ()):
            if each["score"] >= self.threshold and each["desc"] in self.categories:
                yield each["desc"], each["bbox_2d"], each["score"]


class ExportFolder:
    """The folder that exports are written to."""

    def __init__(self, folder: Path) -> None:
        self.aside: list[str] = []  # files that were set aside
        self._folder, self._notes = folder, folder / NOTES
        # by file, the digest of what was written here
        self._known: dict[str, str] = _read_notes(self._notes)
        self._written: dict[str, str] = {}

    def write(self, name: str, text: str) -> None:
        """Write ``text`` to the file ``name``; if somebody has changed that file, it is renamed
        first."""
        path, data = self._folder / name, disk.encode(text)
        self._written[name] = disk.digest(data)
        before = path.read_bytes() if path.is_file() else None
        if before == data:
            return
        if before is not None and disk.digest(before) != self._known.get(name):
            path.rename(disk.find_free_name(path))
            self.aside.append(name)
        disk.replace_unsynced(path, data)

    def note(self) -> None:
        """Save the digests of all files, once they are written."""
        disk.replace(self._notes, disk.json_lines([self._known | self._written]))


def _read_notes(path: Path) -> dict[str, str]:
    """The saved digests, by file; empty if they cannot be read, so that every existing file counts
    as changed."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return (
        {str(name): str(digest) for name, digest in found.items()}
        if isinstance(found, dict)
        else {}
    )


def write_coco(rows: Sequence[Row], selection: BoxSelection, into: ExportFolder) -> None:
    """Write ``coco/results.json`` and ``coco/images.json``; the id of an image is its number among
    all rows, from 1."""
    ids = {desc: number for number, desc in enumerate(selection.categories, 1)}
    images = [
        {"id": at, "file_name": row["images"][0], "width": row["width"], "height": row["height"]}
        for at, row in enumerate(rows, 1)
        if "error" not in row
    ]
    results = [
        {"image_id": at, "category_id": ids[desc], "bbox": _to_sides(box), "score": score}
        for at, row in enumerate(rows, 1)
        for desc, box, score in selection.kept(row)
    ]
    categories = [{"id": number, "name": desc} for desc, number in ids.items()]
    into.write("coco/results.json", _format(results))
    into.write(
        "coco/images.json", _format({"images": images, "annotations": [], "categories": categories})
    )


def write_label_studio(rows: Sequence[Row], selection: BoxSelection, into: ExportFolder) -> None:
    """Write ``label_studio/tasks.json`` and ``label_studio/interface.xml``."""
    tasks = [
        {
            "data": {IMAGE: selection.url + quote(row["images"][0])},
            "predictions": [
                {"model_version": selection.model, "result": _make_results(row, selection)}
            ],
        }
        for row in rows
        if "error" not in row
    ]
    labels = "".join(f"    <Label value={quoteattr(desc)}/>\n" for desc in selection.categories)
    into.write("label_studio/tasks.json", _format(tasks))
    interface = (
        f'  <Image name="{IMAGE}" value="${IMAGE}"/>\n  <RectangleLabels name="{LABEL}" '
        f'toName="{IMAGE}">\n{labels}'
    )
    into.write("label_studio/interface.xml", f"<View>\n{interface}  </RectangleLabels>\n</View>\n")


def write_yolo(rows: Sequence[Row], selection: BoxSelection, into: ExportFolder) -> None:
    """Write ``yolo/labels/NAME.txt`` for each image, and ``yolo/classes.txt``."""
    ids = {desc: number for number, desc in enumerate(selection.categories)}
    into.write("yolo/classes.txt", "".join(f"{desc}\n" for desc in ids))
    for row in rows:
        if "error" in row:
            continue
        lines = []
        for desc, (x1, y1, x2, y2), score in selection.kept(row):
            width, height = row["width"], row["height"]
            shares = (
                (x1 + x2) / 2 / width,
                (y1 + y2) / 2 / height,
                (x2 - x1) / width,
                (y2 - y1) / height,
            )
            lines.append(f"{ids[desc]} {' '.join(f'{each:.6f}' for each in shares)} {score:.6g}\n")
        into.write(f"yolo/labels/{_name_label_file(row['images'][0])}", "".join(lines))


FORMATS: Mapping[str, Callable[[Sequence[Row], BoxSelection, ExportFolder], None]] = {
    "coco": write_coco,
    "label_studio": write_label_studio,
    "yolo": write_yolo,
}


def check_names(names: Sequence[str]) -> None:
    """Raise ``InputError`` if two of the images ``names`` would share a YOLO file."""
    taken: dict[str, str] = {}
    for name in names:
        if (first := taken.setdefault(_name_label_file(name), name)) != name:
            remedy = "rename one, or leave yolo out of --formats"
            raise InputError(
                f"{first} and {name} would share yolo/labels/{_name_label_file(name)}; {remedy}"
            )


def _name_label_file(name: str) -> str:
    return PurePosixPath(name).with_suffix(".txt").as_posix()


def _make_results(row: Row, selection: BoxSelection) -> list[dict[str, Any]]:
    """The boxes of a row in Label Studio's format."""
    width, height = row["width"], row["height"]
    common = {"type": "rectanglelabels", "from_name": LABEL, "to_name": IMAGE, "image_rotation": 0}
    found = []
    for number, (desc, (x1, y1, x2, y2), score) in enumerate(selection.kept(row), 1):
        shares = {
            "x": x1 / width,
            "y": y1 / height,
            "width": (x2 - x1) / width,
            "height": (y2 - y1) / height,
        }
        value = {name: round(100 * share, 4) for name, share in shares.items()}
        size = {"original_width": width, "original_height": height}
        value |= {"rotation": 0, "rectanglelabels": [desc]}
        found.append({"id": str(number), **common, **size, "value": value, "score": score})
    return found


def _to_sides(box: Sequence[float]) -> list[float]:
    x1, y1, x2, y2 = box
    return [x1, y1, round(x2 - x1, 2), round(y2 - y1, 2)]


def _format(value: Any) -> str:
    return disk.json_text(value) + "\n"
