"""Synthetic images for trying out a detector: coloured shapes on a noisy background, with their
boxes.

Every image is a function of (seed, split, number) alone. Objects overlap little, and are named by
colour and shape: "red circle".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb.errors import InputError
from stageb.seeds import stream, uniform
from stageb.store import disk
from stageb.untrusted.pictures import encode_png, pillow

SIDES = (64, 96)  # of an image, in pixels, in multiples of ``STEP``
STEP = 32
MOST_OBJECTS = 6  # objects of an image
SMALLEST, LARGEST = 12, 32  # side of an object, in pixels
OVERLAP = 0.1  # largest IoU of two objects
TRIES = 40  # to find a place for an object
FORMS = ("circle", "square", "triangle")
COLOURS = {"red": (214, 48, 49), "green": (46, 160, 67), "blue": (52, 101, 214)}
NOISE = 24  # levels by which colours vary

Edges = tuple[int, int, int, int]
Draw = Callable[[], float]  # the next uniform number of a stream


@dataclass(frozen=True)
class Drawing:
    """How images are drawn."""

    most: int = MOST_OBJECTS  # objects of an image
    # of every image, in pixels, a multiple of ``STEP``; None: drawn within ``SIDES``
    side: int | None = None


MIXED = Drawing()


def write_shapes(folder: Path, split: str, count: int, seed: int, kind: Drawing = MIXED) -> Path:
    """Draw ``count`` images of ``split`` into ``folder``, and write their annotations. Returns the
    path of the annotations.

    Images are ``{split}/{number:05d}.png``, annotations ``{split}.jsonl``. Raises ``OSError``.
    """
    (folder / split).mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}.jsonl"
    for each, data in _make_files(folder, split, count, seed, kind):
        if each == path:
            disk.replace(path, data)
        elif not disk.holds(each, data):
            disk.replace_unsynced(each, data)  # atomically: a reader never sees half an image
    return path


def check_free(folder: Path, split: str, count: int, seed: int, kind: Drawing = MIXED) -> None:
    """Raise ``InputError`` if ``write_shapes`` would replace a file of other content, or mix its
    images with others.

    Files that an equal call has written are accepted. Hidden files are ignored.
    """
    remedy = "move it, or name another folder"
    there = {each for each in (folder / split).glob("*") if not each.name.startswith(".")}
    if not there and not os.path.lexists(folder / f"{split}.jsonl"):
        return
    for each, data in _make_files(folder, split, count, seed, kind):
        if os.path.lexists(each) and not disk.holds(each, data):
            raise InputError(f"--to {each}: has other content; {remedy}")
        there.discard(each)
    if there:
        raise InputError(f"--to {min(there)}: is in the folder to draw images into; {remedy}")


def _make_files(
    folder: Path, split: str, count: int, seed: int, kind: Drawing
) -> Iterator[tuple[Path, bytes]]:
    """The files that ``write`` writes: each image and, last, the annotations."""
    rows = []
    for number in range(count):
        image, objects = draw_image(seed, split, number, kind)
        name = f"{split}/{number:05d}.png"
        yield folder / name, encode_png(image)
        named_boxes = [{"desc": desc, "bbox_2d": list(box)} for desc, box in objects]
        rows.append(
            {"images": [name], "width": image.width, "height": image.height, "objects": named_boxes}
        )
    yield folder / f"{split}.jsonl", disk.json_lines(rows)


def draw_image(
    seed: int, split: str, number: int, kind: Drawing = MIXED
) -> tuple[Any, list[tuple[str, Edges]]]:
    """One image, as a ``PIL.Image``, and its objects: name and box (x1, y1, x2, y2) in whole
    pixels."""
    draw = _make_draw(stream(seed, "shapes", split, number))
    low, high = (side // STEP for side in (SIDES if kind.side is None else (kind.side, kind.side)))
    width, height = (STEP * _draw_integer(draw, low, high) for _ in range(2))
    image = _draw_ground(draw, width, height)
    objects: list[tuple[str, Edges]] = []
    for _ in range(_draw_integer(draw, 1, kind.most)):
        form, colour = (
            names[_draw_integer(draw, 0, len(names) - 1)] for names in (FORMS, list(COLOURS))
        )
        place = _find_place(draw, (width, height), [box for _, box in objects])
        if place is not None:
            _paint(image, form, _vary_colour(draw, COLOURS[colour]), place)
            objects.append((f"{colour} {form}", place))
    return image, objects


def _find_place(draw: Draw, size: tuple[int, int], taken: list[Edges]) -> Edges | None:
    """The box of another object that overlaps few of ``taken``; None if none is found in
    ``TRIES``."""
    for _ in range(TRIES):
        side = _draw_integer(draw, SMALLEST, LARGEST)
        x, y = _draw_integer(draw, 0, size[0] - side), _draw_integer(draw, 0, size[1] - side)
        box = (x, y, x + side, y + side)
        if all(_compute_iou(box, other) <= OVERLAP for other in taken):
            return box
    return None


def _paint(image: Any, form: str, colour: tuple[int, int, int], box: Edges) -> None:
    """Draw a shape that touches all four edges of ``box``. Pillow's boxes include their last
    pixel."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(image)
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    if form == "circle":
        pen.ellipse((left, top, right, bottom), fill=colour)
    elif form == "square":
        pen.rectangle((left, top, right, bottom), fill=colour)
    else:
        pen.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=colour)


def _draw_ground(draw: Draw, width: int, height: int) -> Any:
    """A grey background of coarse noise."""
    grey = _draw_integer(draw, 96, 200)
    cells = (width // 8, height // 8)
    levels = bytes(
        max(0, min(255, grey + _draw_integer(draw, -NOISE, NOISE)))
        for _ in range(cells[0] * cells[1])
    )
    image = pillow().frombytes("L", cells, levels)
    return image.resize((width, height), pillow().Resampling.NEAREST).convert("RGB")


def _vary_colour(draw: Draw, colour: tuple[int, int, int]) -> tuple[int, int, int]:
    red, green, blue = (
        max(0, min(255, level + _draw_integer(draw, -NOISE, NOISE))) for level in colour
    )
    return red, green, blue


def _compute_iou(one: Edges, other: Edges) -> float:
    wide = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    high = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = ((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return wide * high / (sum(areas) - wide * high)


def _make_draw(key: int) -> Draw:
    position = iter(range(1 << 30))
    return lambda: uniform(key, next(position))


def _draw_integer(draw: Draw, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``, both included."""
    return low + int(draw() * (high - low + 1))
