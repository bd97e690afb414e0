"""Images with their true and predicted boxes, drawn side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stageb.store import disk
from stageb.two_channel.boxes.metrics import Detections, match
from stageb.two_channel.boxes.text import list_true_objects, to_pixels
from stageb.two_channel.types import Detection, Match, Object, Sample
from stageb.untrusted import pictures
from stageb.untrusted.pictures import pillow

WIDTH = 400  # of an image in a drawing, in pixels
GAP = 8
GROUND, WORDS = (24, 26, 27), (235, 235, 235)
GREEN, RED = (74, 201, 126), (232, 73, 66)  # correct boxes; missed objects and false positives


def draw_all(
    samples: Sequence[Sample], detections: Sequence[Detections], gate: float, path: Path
) -> None:
    """Draw ``samples`` with their true and predicted boxes, matched at IoU ``gate``, into one
    picture. Raises ``PictureError``, ``JournalError``."""
    drawn = []
    for sample, each in zip(samples, detections, strict=False):
        true = list_true_objects(sample)
        drawn.append(draw_pair(sample, each.objects, true, match(each.objects, true, gate)))
    with disk.reporting(path):
        disk.make_folder(path.parent)
        disk.place(path, lambda beside: arrange(drawn).save(beside, "PNG", optimize=True))


def draw_pair(
    sample: Sample, predicted: Sequence[Detection], true: Sequence[Detection], matched: Match
) -> Any:
    """The image twice, as a ``PIL.Image``: on the left with the ``true`` boxes, missed ones in red;
    on the right with the ``predicted`` boxes, false positives in red.

    Raises ``PictureError``.
    """
    image = pictures.open_picture(sample.image, pictures.read(sample.image), pixels=1 << 24)
    size = (WIDTH, max(1, round(image.height * WIDTH / image.width)))
    image = image.resize(size, pillow().Resampling.BICUBIC)
    picture = pillow().new("RGB", (2 * WIDTH + GAP, size[1]), GROUND)
    for left, objects, wrong in (
        (0, true, matched.missed),
        (WIDTH + GAP, predicted, matched.false_positives),
    ):
        picture.paste(_draw_boxes(image.copy(), to_pixels(objects, *size), wrong), (left, 0))
    return picture


def arrange(pictures: Sequence[Any]) -> Any:
    """One picture of ``pictures``, two in a row."""
    rows = [pictures[start : start + 2] for start in range(0, len(pictures), 2)]
    width = max(sum(each.width for each in row) + 3 * GAP * (len(row) - 1) for row in rows)
    heights = [max(each.height for each in row) for row in rows]
    made = pillow().new("RGB", (width, sum(heights) + 3 * GAP * (len(rows) - 1)), GROUND)
    top = 0
    for row, height in zip(rows, heights, strict=True):
        left = 0
        for each in row:
            made.paste(each, (left, top))
            left += each.width + 3 * GAP
        top += height + 3 * GAP
    return made


def _draw_boxes(image: Any, objects: Sequence[Object], wrong: Sequence[int]) -> Any:
    """``image`` with the boxes and names of ``objects``, in its pixels, drawn on it; indices in
    ``wrong`` are red."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(image)
    for number, each in enumerate(objects):
        x1, y1, x2, y2 = each.box
        colour = RED if number in wrong else GREEN
        pen.rectangle((x1, y1, max(x1, x2 - 1), max(y1, y2 - 1)), outline=colour, width=2)
        label = pen.textbbox((x1 + 3, y1 + 2), each.desc)
        pen.rectangle((label[0] - 2, label[1] - 1, label[2] + 1, label[3] + 1), fill=GROUND)
        pen.text((x1 + 3, y1 + 2), each.desc, fill=WORDS)
    return image
