"""Boxes that show none of an image's objects, to be told behind them and named noise: sequence augmentation (Chen et al.
2022, Pix2Seq, section 2.3).

Where the truth alone is taught, a model learns that an answer ends once all is told, and what it is unsure of it either
tells or never reaches. With answers filled up to a budget it learns to go on, and to say of each box whether it is one.
"""

from __future__ import annotations

from collections.abc import Sequence

from stageb.seeds import bits, uniform
from stageb.two_channel.types import BINS, Bins, Detection

NOISE = "noise"  # the name of a box that shows no object
JITTER = 0.1  # of the sides of an object that is told twice
SIDES = (0.02, 0.5)  # of a box drawn anywhere, in shares of the image
_DRAWS = 6  # numbers that a box takes of its stream


def draw_noise(true: Sequence[Detection], count: int, key: int) -> tuple[Detection, ...]:
    """``count`` boxes named noise from the stream ``key``, in even parts: of ``true`` objects told a second time, moved by a
    little; of their size in other places; and of any size anywhere."""
    return tuple(Detection(NOISE, _draw_box(true, key, _DRAWS * number)) for number in range(count))


def drop_noise(objects: Sequence[Detection]) -> tuple[Detection, ...]:
    """Those of ``objects`` that are not named noise."""
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
    """The bins of a box around (``x``, ``y``), cut at the image's edges, with area."""
    (x1, x2), (y1, y2) = (_place_interval(centre, side) for centre, side in ((x, width), (y, height)))
    return x1, y1, x2, y2


def _place_interval(centre: float, side: float) -> tuple[int, int]:
    low = min(BINS - 2, max(0, round(centre - side / 2)))
    return low, min(BINS - 1, max(low + 1, round(centre + side / 2)))
