"""Views of images: mirrored, turned, scaled, in another light, so that few images teach as many.

A view is drawn from a stream and noted in the image's name, ``photo.jpg#mirrored,crop=12:0:500:366``; whoever opens images
by ``views.Views`` sees it so, the learner and the engine that rolls out alike, and nobody else need know. Boxes are moved
with it.

Scaling keeps the aspect, as images to be judged by have theirs: what is scaled up is cropped, what is scaled down stands on
grey, so a view is as large as its image and as many tokens. A view scaled up shows few objects at once, where looking is
learnt; images to be judged by show all, so the range of scales may go from the one to the other over a run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from stageb.seeds import uniform
from stageb.two_channel.config import AugmentationConfig
from stageb.two_channel.types import Box, Object, Sample

VISIBLE = 0.4  # the share of an object's area that a crop must show; of others it shows no box
_VIEW = re.compile(r"#((?:mirrored|upended|turned|crop=[\d:]+|pad=[\d:]+|light=[-\d]+:[-\d]+)(?:,|$))+$")

Corners = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class View:
    """What is done to an image, in this order."""

    crop: Corners | None = None  # what is kept of it, scaled up to the whole view, in pixels
    pad: Corners | None = None  # where in the view the whole of it stands, scaled down, in pixels
    mirrored: bool = False  # left is right
    upended: bool = False  # top is bottom
    turned: bool = False  # rows are columns
    light: tuple[int, int] = (0, 0)  # brightness and contrast, in hundredths more


def scale_range(config: AugmentationConfig, done: float) -> tuple[float, float]:
    """Least and greatest scale of views when the share ``done`` of a run lies behind, from 0 to 1."""
    first, last = config.scale_jitter, config.scale_jitter_end or config.scale_jitter
    least, greatest = (begin ** (1 - done) * end**done for begin, end in zip(first, last, strict=True))
    return least, greatest


def make_view(sample: Sample, key: int, config: AugmentationConfig, done: float) -> Sample:
    """``sample`` in a view drawn from the stream ``key`` when the share ``done`` of a run lies behind; itself where
    ``config`` asks for none. Its scale is uniform in the logarithm."""
    size = (sample.width, sample.height)
    draw = [uniform(key, position) for position in range(10)]
    least, greatest = scale_range(config, done)
    crop, pad = _scaled(size, least ** (1 - draw[0]) * greatest ** draw[0], draw[1:3])
    view = View(
        crop=crop,
        pad=pad,
        mirrored=config.mirror and draw[4] < 0.5,
        upended=config.upend and draw[5] < 0.5,
        turned=config.turn and draw[6] < 0.5,
        light=(round((2 * draw[7] - 1) * 100 * config.light), round((2 * draw[8] - 1) * 100 * config.light)),
    )
    if view == View():
        return sample
    width, height = size[::-1] if view.turned else size
    objects = tuple(found for each in sample.objects if (found := _moved(each, view, size)))
    return replace(sample, image=f"{sample.image}#{note_view(view)}", width=width, height=height, objects=objects)


def parted(image: str) -> tuple[str, View]:
    """The path in an image's name, and the view."""
    if not _VIEW.search(image):
        return image, View()
    path, _, noted = image.rpartition("#")
    view = View()
    for part in noted.split(","):
        name, _, numbers = part.partition("=")
        given: Any = tuple(map(int, numbers.split(":"))) if numbers else True
        view = replace(view, **{name: given})
    return path, view


def _scaled(size: tuple[int, int], scale: float, draw: list[float]) -> tuple[Corners | None, Corners | None]:
    """The crop or the padding that scales an image of ``size`` by ``scale``, in a place by ``draw``; neither where that
    leaves it as it is."""
    width, height = (max(1, round(side * min(scale, 1 / scale))) for side in size)
    if (width, height) == size:
        return None, None
    left, top = (round((side - less) * part) for side, less, part in zip(size, (width, height), draw, strict=True))
    corners = left, top, left + width, top + height
    return (corners, None) if scale > 1 else (None, corners)


def _moved(given: Object, view: View, size: tuple[int, int]) -> Object | None:
    """An object where the view shows it, if enough of it."""
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


def note_view(view: View) -> str:
    """``view`` as it is noted in an image's name."""
    parts = [name for name in ("mirrored", "upended", "turned") if getattr(view, name)]
    parts += [f"crop={':'.join(map(str, view.crop))}"] if view.crop else []
    parts += [f"pad={':'.join(map(str, view.pad))}"] if view.pad else []
    parts += [f"light={view.light[0]}:{view.light[1]}"] if any(view.light) else []
    return ",".join(parts)
