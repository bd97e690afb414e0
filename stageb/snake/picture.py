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

SCALE = 24  # pixels a cell
BACKGROUND, BOARD, RED = (24, 26, 27), (38, 41, 43), (232, 73, 66)
TAIL, NECK, HEAD = (24, 92, 66), (74, 201, 126), (240, 240, 210)
STROKES = {(False, True): "│", (True, False): "─"}
CORNERS = {(-1, 1): "└", (-1, -1): "┘", (1, 1): "┌", (1, -1): "┐"}  # (up or down, right or left) of the two ends


def text(grid: Sequence[int]) -> str:
    """The board in a frame, a line a row; the body is drawn as the path that it is."""
    size = math.isqrt(len(grid))
    rows = ["".join(_letters(grid, size, row * size + column) for column in range(size)) for row in range(size)]
    edge = "─" * (2 * size + 1)
    return "\n".join([f"┌{edge}┐", *(f"│ {row}│" for row in rows), f"└{edge}┘"])


def image(grid: Sequence[int]) -> Image.Image:
    """The board as an RGB picture; the body pales towards the head and is joined as the path that it is."""
    from PIL import Image, ImageDraw

    size = math.isqrt(len(grid))
    picture = Image.new("RGB", (SCALE * size + 8, SCALE * size + 8), BACKGROUND)
    pen = ImageDraw.Draw(picture)
    pen.rectangle((4, 4, SCALE * size + 3, SCALE * size + 3), fill=BOARD)
    places = {age: cell for cell, age in enumerate(grid) if age not in (0, FOOD)}
    for age in sorted(places):
        share = age / len(places)
        colour = _mixed(TAIL, NECK, share) if age < len(places) else HEAD
        box = _box(places[age], size, 3)
        pen.rounded_rectangle(box, radius=5, fill=colour)
        if age - 1 in places:
            joint, before = _mixed(TAIL, NECK, share), _box(places[age - 1], size, 3)
            left, top = min(box[0], before[0]), min(box[1], before[1])
            right, bottom = max(box[2], before[2]), max(box[3], before[3])
            middle = ((left + right) // 2, (top + bottom) // 2)
            if box[1] == before[1]:
                pen.rectangle((middle[0] - 6, top, middle[0] + 6, bottom), fill=joint)
            else:
                pen.rectangle((left, middle[1] - 6, right, middle[1] + 6), fill=joint)
    if FOOD in grid:
        pen.ellipse(_box(list(grid).index(FOOD), size, 5), fill=RED)
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


def _box(cell: int, size: int, margin: int) -> tuple[int, int, int, int]:
    """A cell's place in the picture, its edges cut by ``margin`` pixels."""
    left, top = cell % size * SCALE + 4, cell // size * SCALE + 4
    return left + margin, top + margin, left + SCALE - 1 - margin, top + SCALE - 1 - margin


def _mixed(one: tuple[int, int, int], other: tuple[int, int, int], share: float) -> tuple[int, int, int]:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue
