"""Data augmentation: random views of images.

A view is drawn from a random stream and noted in the image's name:
``photo.jpg#mirrored,crop=12:0:500:366``. ``views.Views`` opens such names, for the learner and for
the engine that rolls out, and no other code needs to know. Boxes move with the view.

Scaling keeps the aspect ratio. Images that are scaled up are cropped, images that are scaled down
are padded with grey, so a view has the size and the number of tokens of its image. Views that are
scaled up show few objects at once, which helps the model learn to look; test images show all
objects, so the range of scales may change from one to the other over a run.

Objects of other images may be pasted first (Dwibedi et al. 2017, "Cut, paste and learn"; Ghiasi et
al. 2021), where neither they nor the image's own objects are hidden. A view names these other
images by their index in the training set.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from stageb.seeds import ahead, stream, uniform
from stageb.two_channel.config import AugmentationConfig
from stageb.two_channel.types import Box, Object, Sample

# the least fraction of an object's area within a crop; the boxes of other objects are dropped
VISIBLE = 0.4
# largest overlap of a pasted object with others, here and in its image, as a fraction of the
# smaller box
OVERLAP = 0.1
TRIES = 8  # to find an object and a place for it, before it is given up
_VIEW = re.compile(
    r"#((?:paste=[\d:]+|mirrored|upended|turned|crop=[\d:]+|pad=[\d:]+|light=[-\d]+:[-\d]+)"
    r"(?:,|$))+$"
)

Corners = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ImageView:
    """The transformations of an image, in this order."""

    paste: tuple[int, ...] = ()  # pasted objects, as the seven numbers of ``Paste`` for each
    crop: Corners | None = None  # the part that is scaled up to the whole view, in pixels
    pad: Corners | None = None  # the part of the view that the scaled-down image takes, in pixels
    mirrored: bool = False  # left and right swapped
    upended: bool = False  # top and bottom swapped
    turned: bool = False  # rows and columns swapped (transposed)
    light: tuple[int, int] = (0, 0)  # change of brightness and contrast, in hundredths

    @property
    def pasted(self) -> list[Paste]:
        """The pasted objects, in order."""
        return [Paste(*self.paste[place : place + 7]) for place in range(0, len(self.paste), 7)]


@dataclass(frozen=True, slots=True)
class Paste:
    """An object of another image, to be pasted; in pixels."""

    source: int  # the index of its image in the training set
    x1: int  # its box there
    y1: int
    x2: int
    y2: int
    left: int  # of its box in the image that it is pasted into
    top: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """The fields in order, as ``ImageView.paste`` holds them."""
        return self.source, self.x1, self.y1, self.x2, self.y2, self.left, self.top

    def moved(self, box: Box) -> Box:
        """A box of the object's image, moved to where it lies in the other image."""
        right, down = self.left - self.x1, self.top - self.y1
        return box[0] + right, box[1] + down, box[2] + right, box[3] + down


def scale_range(config: AugmentationConfig, done: float) -> tuple[float, float]:
    """Smallest and largest scale of views when the fraction ``done`` (0 to 1) of a run is over."""
    first, last = config.scale_jitter, config.scale_jitter_end or config.scale_jitter
    least, greatest = (
        begin ** (1 - done) * end**done for begin, end in zip(first, last, strict=True)
    )
    return least, greatest


def make_view(
    sample: Sample,
    key: int,
    config: AugmentationConfig,
    done: float,
    sources: Sequence[Sample] = (),
) -> Sample:
    """``sample`` in a view drawn from the stream ``key``, when the fraction ``done`` of a run is
    over; unchanged if ``config`` asks for no augmentation. The scale is log-uniform. Objects of
    ``sources`` are pasted into it."""
    pasted = draw_pasted(sample, sources, config.copy_paste, key) if sources else []
    size = (sample.width, sample.height)
    draw = [uniform(key, position) for position in range(10)]
    least, greatest = scale_range(config, done)
    crop, pad = _place_scaled(size, least ** (1 - draw[0]) * greatest ** draw[0], draw[1:3])
    view = ImageView(
        paste=tuple(number for paste, _ in pasted for number in paste.numbers),
        crop=crop,
        pad=pad,
        mirrored=config.mirror and draw[4] < 0.5,
        upended=config.upend and draw[5] < 0.5,
        turned=config.turn and draw[6] < 0.5,
        light=(
            round((2 * draw[7] - 1) * 100 * config.light),
            round((2 * draw[8] - 1) * 100 * config.light),
        ),
    )
    if view == ImageView():
        return sample
    width, height = size[::-1] if view.turned else size
    shown = (*sample.objects, *(each for _, each in pasted))
    objects = tuple(found for each in shown if (found := _move(each, view, size)))
    return replace(
        sample,
        image=f"{sample.image}#{note_view(view)}",
        width=width,
        height=height,
        objects=objects,
    )


def draw_pasted(
    sample: Sample, sources: Sequence[Sample], most: int, key: int
) -> list[tuple[Paste, Object]]:
    """Up to ``most`` objects of ``sources`` to paste into ``sample``, each with its box there;
    drawn from the stream ``key``."""
    found: list[tuple[Paste, Object]] = []
    standing = [each.box for each in (*sample.objects, *sample.crowds)]
    for number in range(int(uniform(key, 9) * (most + 1))):
        tries = stream(key, "paste", number)
        for attempt in range(TRIES):
            drawn = _draw_paste(sample, sources, ahead(tries, 4 * attempt))
            if drawn and not _is_hidden(drawn[1].box, standing):
                found.append(drawn)
                standing.append(drawn[1].box)
                break
    return found


def _draw_paste(sample: Sample, sources: Sequence[Sample], key: int) -> tuple[Paste, Object] | None:
    """A random object of another of ``sources`` at a random place in ``sample``; None if it is
    hidden or does not fit."""
    source = int(uniform(key, 0) * len(sources))
    other = sources[source]
    if other.key == sample.key or not other.objects:
        return None
    place = int(uniform(key, 1) * len(other.objects))
    picked = other.objects[place]
    beside = [
        each.box for each in (*other.objects[:place], *other.objects[place + 1 :], *other.crowds)
    ]
    x1, y1, x2, y2 = map(round, picked.box)
    left, top = sample.width - (x2 - x1), sample.height - (y2 - y1)  # at most
    if min(x2 - x1, y2 - y1) < 1 or min(left, top) < 0 or _is_hidden(picked.box, beside):
        return None
    paste = Paste(
        source, x1, y1, x2, y2, round(uniform(key, 2) * left), round(uniform(key, 3) * top)
    )
    return paste, Object(picked.desc, paste.moved(picked.box))


def _is_hidden(box: Box, others: Sequence[Box]) -> bool:
    """Whether ``box`` overlaps any of ``others`` by more than ``OVERLAP``. Plain Python: thousands
    of calls per step."""
    x1, y1, x2, y2 = box
    area = (x2 - x1) * (y2 - y1)
    for left, top, right, bottom in others:
        if left >= x2 or right <= x1 or top >= y2 or bottom <= y1:
            continue
        shared = (min(x2, right) - max(x1, left)) * (min(y2, bottom) - max(y1, top))
        if shared / min(area, (right - left) * (bottom - top)) > OVERLAP:
            return True
    return False


@lru_cache(1 << 10)
def parse_name(image: str) -> tuple[str, ImageView]:
    """The path and the view in an image's name, as ``note_view`` writes it."""
    if not _VIEW.search(image):
        return image, ImageView()
    path, _, noted = image.rpartition("#")
    view = ImageView()
    for part in noted.split(","):
        name, _, numbers = part.partition("=")
        given: Any = tuple(map(int, numbers.split(":"))) if numbers else True
        view = replace(view, **{name: given})
    return path, view


def _place_scaled(
    size: tuple[int, int], scale: float, draw: list[float]
) -> tuple[Corners | None, Corners | None]:
    """The crop (``scale`` above 1) or the padding (below 1) that scales an image of ``size``,
    placed by ``draw``, two numbers from 0 to 1; neither if the size does not change."""
    width, height = (max(1, round(side * min(scale, 1 / scale))) for side in size)
    if (width, height) == size:
        return None, None
    left, top = (
        round((side - less) * part)
        for side, less, part in zip(size, (width, height), draw, strict=True)
    )
    corners = left, top, left + width, top + height
    return (corners, None) if scale > 1 else (None, corners)


def _move(given: Object, view: ImageView, size: tuple[int, int]) -> Object | None:
    """An object with its box in the view; None if the view shows too little of it."""
    x1, y1, x2, y2 = given.box
    width, height = size
    if view.crop:
        left, top, right, bottom = view.crop
        xs = [min(max(x, left), right) for x in (x1, x2)]
        ys = [min(max(y, top), bottom) for y in (y1, y2)]
        if (xs[1] - xs[0]) * (ys[1] - ys[0]) < VISIBLE * (x2 - x1) * (y2 - y1):
            return None
        x1, x2 = ((x - left) * width / (right - left) for x in xs)
        y1, y2 = ((y - top) * height / (bottom - top) for y in ys)
    if view.pad:
        left, top, right, bottom = view.pad
        x1, x2 = (left + x * (right - left) / width for x in (x1, x2))
        y1, y2 = (top + y * (bottom - top) / height for y in (y1, y2))
    if view.mirrored:
        x1, x2 = width - x2, width - x1
    if view.upended:
        y1, y2 = height - y2, height - y1
    box: Box = (y1, x1, y2, x2) if view.turned else (x1, y1, x2, y2)
    return Object(given.desc, box)


def note_view(view: ImageView) -> str:
    """``view`` as text for an image's name; ``parse_name`` reads it."""
    parts = [f"paste={':'.join(map(str, view.paste))}"] if view.paste else []
    parts += [name for name in ("mirrored", "upended", "turned") if getattr(view, name)]
    parts += [f"crop={':'.join(map(str, view.crop))}"] if view.crop else []
    parts += [f"pad={':'.join(map(str, view.pad))}"] if view.pad else []
    parts += [f"light={view.light[0]}:{view.light[1]}"] if any(view.light) else []
    return ",".join(parts)
