"""A board as text and as a picture.

A grid is a list of cells: 0 for a free one, 1 for the tail, one more for every cell up to the head, and ``FOOD``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stageb.snake.config import FOOD

if TYPE_CHECKING:
    from PIL import Image

SIDE = 320  # pixels of a board, about: whole cells, of 16 at the least
EDGE = 8  # around the board
BACKGROUND, BOARD, FRUIT, TAIL, BODY, HEAD = range(6)  # places in the palette
PALETTE = bytes((24, 26, 27, 38, 41, 43, 232, 73, 66, 24, 92, 66, 74, 201, 126, 240, 240, 210))
STROKES = {(False, True): "│", (True, False): "─"}
CORNERS = {(-1, 1): "└", (-1, -1): "┘", (1, 1): "┌", (1, -1): "┐"}  # (up or down, right or left) of the two ends


def write_text(grid: Sequence[int]) -> str:
    """The board in a frame, a line a row; the body is drawn as the path that it is."""
    size = math.isqrt(len(grid))
    rows = ["".join(_letters(grid, size, row * size + column) for column in range(size)) for row in range(size)]
    edge = "─" * (2 * size + 1)
    return "\n".join([f"┌{edge}┐", *(f"│ {row}│" for row in rows), f"└{edge}┘"])


def draw_image(grid: Sequence[int]) -> Image.Image:
    """The board in the colours of ``PALETTE``; the body is joined as the path that it is.

    Cells of one body look alike, so that from step to step little changes: that keeps a picture that moves small.
    """
    from PIL import Image, ImageDraw

    size = math.isqrt(len(grid))
    scale = max(16, SIDE // size // 2 * 2)  # even, as films want their sides
    margin, radius = scale // 8, scale // 4
    side = scale * size + 2 * EDGE
    picture = Image.new("P", (side, side), BACKGROUND)
    picture.putpalette(PALETTE)
    pen = ImageDraw.Draw(picture)
    pen.rectangle((EDGE, EDGE, side - EDGE - 1, side - EDGE - 1), fill=BOARD)
    places = {age: cell for cell, age in enumerate(grid) if age not in (0, FOOD)}
    for age in sorted(places):
        box = _box(places[age], size, scale, margin)
        if age - 1 in places:
            before = _box(places[age - 1], size, scale, margin)
            joint = (*map(min, box[:2], before[:2]), *map(max, box[2:], before[2:]))
            pen.rounded_rectangle(joint, radius=radius, fill=BODY if age > 2 else TAIL)
    if places:
        pen.rounded_rectangle(_box(places[len(places)], size, scale, margin), radius=radius, fill=HEAD)
    if FOOD in grid:
        pen.ellipse(_box(list(grid).index(FOOD), size, scale, margin + scale // 16), fill=FRUIT)
    return picture


def _letters(grid: Sequence[int], size: int, cell: int) -> str:
    """Two letters for a cell: what it is, and whether the path goes on to the right."""
    age = grid[cell]
    if age in (0, FOOD):
        return "· " if age == 0 else "● "
    length = max(each for each in grid if each != FOOD)
    row, column = divmod(cell, size)
    ends = [
        (up, right)
        for up, right in ((-1, 0), (0, 1), (1, 0), (0, -1))
        if 0 <= row + up < size and 0 <= column + right < size
        if grid[cell + up * size + right] in {age - 1, age + 1} - {0, FOOD, length + 1}
    ]
    onwards = "─" if (0, 1) in ends else " "
    if age == length:
        return f"█{onwards}"
    vertical, horizontal = [up for up, _ in ends if up], [right for _, right in ends if right]
    if len(vertical) == 1 and len(horizontal) == 1:
        return CORNERS[vertical[0], horizontal[0]] + onwards
    return STROKES[bool(horizontal), bool(vertical)] + onwards


def _box(cell: int, size: int, scale: int, margin: int) -> tuple[int, int, int, int]:
    """A cell's place in the picture: of ``scale`` pixels, its edges cut by ``margin``."""
    left, top = cell % size * scale + EDGE, cell // size * scale + EDGE
    return left + margin, top + margin, left + scale - 1 - margin, top + scale - 1 - margin
