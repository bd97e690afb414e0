"""Views of images: mirrored, turned, scaled, in another light, so that few images teach as many.

A view is drawn from a stream and noted in the image's name, ``photo.jpg#mirrored,crop=12:0:500:366``; whoever opens images
by ``views.Views`` sees it so, the learner and the engine that rolls out alike, and nobody else need know. Boxes are moved
with it.

Scaling keeps the aspect, as images to be judged by have theirs: what is scaled up is cropped, what is scaled down stands on
grey, so a view is as large as its image and as many tokens. A view scaled up shows few objects at once, where looking is
learnt; images to be judged by show all, so the range of scales may go from the one to the other over a run.

Objects of other images may be pasted beside an image's own first (Dwibedi et al. 2017, "Cut, paste and learn"; Ghiasi et al.
2021), where neither hides the other; a view names these images by their numbers among those that are learnt from.
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

VISIBLE = 0.4  # the share of an object's area that a crop must show; of others it shows no box
OVERLAP = 0.1  # that a pasted object may have with others, there and where it is from, as a share of the smaller box
TRIES = 8  # to find an object and a place for it, before there is one fewer
_VIEW = re.compile(r"#((?:paste=[\d:]+|mirrored|upended|turned|crop=[\d:]+|pad=[\d:]+|light=[-\d]+:[-\d]+)(?:,|$))+$")

Corners = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class View:
    """What is done to an image, in this order."""

    paste: tuple[int, ...] = ()  # objects that are put into it, as numbers: those of ``Paste`` for each
    crop: Corners | None = None  # what is kept of it, scaled up to the whole view, in pixels
    pad: Corners | None = None  # where in the view the whole of it stands, scaled down, in pixels
    mirrored: bool = False  # left is right
    upended: bool = False  # top is bottom
    turned: bool = False  # rows are columns
    light: tuple[int, int] = (0, 0)  # brightness and contrast, in hundredths more

    @property
    def pasted(self) -> list[Paste]:
        """The objects that are put into the image, in order."""
        return [Paste(*self.paste[place : place + 7]) for place in range(0, len(self.paste), 7)]


@dataclass(frozen=True, slots=True)
class Paste:
    """An object of another image, in pixels."""

    source: int  # the number of its image
    x1: int  # its box there
    y1: int
    x2: int
    y2: int
    left: int  # of its box in the image that it is put into
    top: int

    @property
    def numbers(self) -> tuple[int, ...]:
        """See ``View.paste``."""
        return self.source, self.x1, self.y1, self.x2, self.y2, self.left, self.top

    def moved(self, box: Box) -> Box:
        """A box in the object's image as it stands in the other."""
        right, down = self.left - self.x1, self.top - self.y1
        return box[0] + right, box[1] + down, box[2] + right, box[3] + down


def scale_range(config: AugmentationConfig, done: float) -> tuple[float, float]:
    """Least and greatest scale of views when the share ``done`` of a run lies behind, from 0 to 1."""
    first, last = config.scale_jitter, config.scale_jitter_end or config.scale_jitter
    least, greatest = (begin ** (1 - done) * end**done for begin, end in zip(first, last, strict=True))
    return least, greatest


def make_view(sample: Sample, key: int, config: AugmentationConfig, done: float, sources: Sequence[Sample] = ()) -> Sample:
    """``sample`` in a view drawn from the stream ``key`` when the share ``done`` of a run lies behind; itself where
    ``config`` asks for none. Its scale is uniform in the logarithm. Objects of ``sources`` are pasted into it."""
    pasted = draw_pasted(sample, sources, config.copy_paste, key) if sources else []
    size = (sample.width, sample.height)
    draw = [uniform(key, position) for position in range(10)]
    least, greatest = scale_range(config, done)
    crop, pad = _place_scaled(size, least ** (1 - draw[0]) * greatest ** draw[0], draw[1:3])
    view = View(
        paste=tuple(number for paste, _ in pasted for number in paste.numbers),
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
    shown = (*sample.objects, *(each for _, each in pasted))
    objects = tuple(found for each in shown if (found := _move(each, view, size)))
    return replace(sample, image=f"{sample.image}#{note_view(view)}", width=width, height=height, objects=objects)


def draw_pasted(sample: Sample, sources: Sequence[Sample], most: int, key: int) -> list[tuple[Paste, Object]]:
    """Up to ``most`` objects of ``sources`` to paste into ``sample``, and as they stand there; by the stream ``key``."""
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
    """Any object of another of ``sources``, anywhere in ``sample``; none where others hide it or it finds no room."""
    source = int(uniform(key, 0) * len(sources))
    other = sources[source]
    if other.key == sample.key or not other.objects:
        return None
    place = int(uniform(key, 1) * len(other.objects))
    picked = other.objects[place]
    beside = [each.box for each in (*other.objects[:place], *other.objects[place + 1 :], *other.crowds)]
    x1, y1, x2, y2 = map(round, picked.box)
    left, top = sample.width - (x2 - x1), sample.height - (y2 - y1)  # at most
    if min(x2 - x1, y2 - y1) < 1 or min(left, top) < 0 or _is_hidden(picked.box, beside):
        return None
    paste = Paste(source, x1, y1, x2, y2, round(uniform(key, 2) * left), round(uniform(key, 3) * top))
    return paste, Object(picked.desc, paste.moved(picked.box))


def _is_hidden(box: Box, others: Sequence[Box]) -> bool:
    """Whether ``box`` and any of ``others`` hide each other. Boxes are compared by the thousand for every step."""
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
def parse_name(image: str) -> tuple[str, View]:
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


def _place_scaled(size: tuple[int, int], scale: float, draw: list[float]) -> tuple[Corners | None, Corners | None]:
    """The crop or the padding that scales an image of ``size`` by ``scale``, in a place by ``draw``; neither where that
    leaves it as it is."""
    width, height = (max(1, round(side * min(scale, 1 / scale))) for side in size)
    if (width, height) == size:
        return None, None
    left, top = (round((side - less) * part) for side, less, part in zip(size, (width, height), draw, strict=True))
    corners = left, top, left + width, top + height
    return (corners, None) if scale > 1 else (None, corners)


def _move(given: Object, view: View, size: tuple[int, int]) -> Object | None:
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
    parts = [f"paste={':'.join(map(str, view.paste))}"] if view.paste else []
    parts += [name for name in ("mirrored", "upended", "turned") if getattr(view, name)]
    parts += [f"crop={':'.join(map(str, view.crop))}"] if view.crop else []
    parts += [f"pad={':'.join(map(str, view.pad))}"] if view.pad else []
    parts += [f"light={view.light[0]}:{view.light[1]}"] if any(view.light) else []
    return ",".join(parts)
