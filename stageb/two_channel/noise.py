"""Noise boxes, which show no object and follow the true objects under the name noise: sequence augmentation (Chen et al.
2022, Pix2Seq, section 2.3).

A model that is trained on true objects only learns to end its answer early, and misses objects that it is unsure of. With
answers filled up to a budget it learns to continue, and to decide for each box whether it is an object.
"""

from __future__ import annotations

from collections.abc import Sequence

from stageb.seeds import bits, uniform
from stageb.two_channel.types import BINS, Bins, Detection

NOISE = "noise"  # the name of a box that shows no object
JITTER = 0.1  # largest shift of the sides of a repeated object, as a fraction of its size
SIDES = (0.02, 0.5)  # smallest and largest side of a random box, as fractions of the image
_DRAWS = 6  # numbers of its stream that a box uses


def draw_noise(true: Sequence[Detection], count: int, key: int) -> tuple[Detection, ...]:
    """``count`` noise boxes from the stream ``key``, a third each on average: ``true`` objects shifted slightly, boxes of
    their sizes at random places, boxes of random sizes at random places (only these if there are no true objects)."""
    return tuple(Detection(NOISE, _draw_box(true, key, _DRAWS * number)) for number in range(count))


def drop_noise(objects: Sequence[Detection]) -> tuple[Detection, ...]:
    """``objects`` without those named noise."""
    return tuple(each for each in objects if each.desc != NOISE)


def _draw_box(true: Sequence[Detection], key: int, position: int) -> Bins:
    kind, chosen = bits(key, position) % 3 if true else 2, bits(key, position + 1)
    draw = [uniform(key, position + 2 + number) for number in range(4)]
    if kind == 2:
        least, most = SIDES
        width, height = (BINS * least * (most / least) ** each for each in draw[2:])
        return _place_box(BINS * draw[0], BINS * draw[1], width, height)
    x1, y1, x2, y2 = true[chosen % len(true)].bins
    width, height = x2 - x1, y2 - y1
    if kind == 1:
        return _place_box(BINS * draw[0], BINS * draw[1], width, height)
    shifts = [JITTER * (2 * each - 1) for each in draw]
    return _place_box(
        (x1 + x2) / 2 + shifts[0] * width,
        (y1 + y2) / 2 + shifts[1] * height,
        width * (1 + shifts[2]),
        height * (1 + shifts[3]),
    )


def _place_box(x: float, y: float, width: float, height: float) -> Bins:
    """The bins of a box with its centre at (``x``, ``y``), clipped to the image, at least one bin wide and high."""
    (x1, x2), (y1, y2) = (_place_interval(centre, side) for centre, side in ((x, width), (y, height)))
    return x1, y1, x2, y2


def _place_interval(centre: float, side: float) -> tuple[int, int]:
    low = min(BINS - 2, max(0, round(centre - side / 2)))
    return low, min(BINS - 1, max(low + 1, round(centre + side / 2)))
