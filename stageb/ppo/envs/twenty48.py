"""2048, many boards at once, as a few tensor operations a step on any device.

A board is 16 cells, each the exponent of its tile: 0 for a free cell, 1 for a 2, 11 for a 2048. A
move slides every row of four towards a side, and a table of all 65,536 rows knows what becomes of
each and what it scores. Exponents end at 15: two tiles of 32,768 do not merge.

A tile appears on any free cell alike, a 2 nine times of ten and else a 4, drawn from a stream named
by seed, the game's global number, the episode and the number of the tile. A move that changes
nothing is not allowed; where it is made all the same, nothing happens. The game ends where no move
is left.

The reward is the score in thousands: so what is learnt is what is measured, and discounted sums are
of the size that a value is learnt well at. Logarithms of merged tiles would make many small merges
worth more than one large one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.ppo.environment import Actions, Discrete, Environment, Frame, Transition

SIDE, CELLS = 4, 16
EXPONENTS = 16  # of a tile, that of a free cell included
GOAL = 2048
POINTS = 1000  # for a reward of 1
PIXELS = 80  # along a cell of a picture
TWO = 0.9  # how probable a 2 is, rather than a 4
KEPT = ("board", "score", "moves", "episode")  # what a state is made of


class Twenty48(Environment):
    """Many boards. Moves are left, right, up and down."""

    actions: Actions = Discrete(4)
    recordable: bool = True
    measures: Mapping[str, str] = {
        "score": "points a game",
        "highest": "highest tile",
        "reached_2048_rate": "games that reached 2048",
        "length": "moves a game",
    }

    def __init__(self, seed: int, numbers: Sequence[int], device: torch.device | str) -> None:
        """See ``Environment``."""
        self.device, count = torch.device(device), len(numbers)
        key = draws.signed(seeds.stream(seed, "2048", "tiles"))
        self._keys = draws.bits(
            torch.full((count,), key), torch.tensor(numbers, dtype=torch.int64)
        ).to(self.device)
        self._slid, self._points = (each.to(self.device) for each in _make_table())
        self._places = _places().to(self.device)
        self._weights = EXPONENTS ** torch.arange(SIDE, device=self.device)
        self.board = torch.zeros((count, CELLS), dtype=torch.uint8, device=self.device)
        self.score, self.moves, self.episode = torch.zeros(
            (3, count), dtype=torch.int64, device=self.device
        )
        self.episode -= 1
        self.restart(torch.ones(count, dtype=torch.bool, device=self.device))

    def observe(self) -> Tensor:
        """Which exponent stands on which cell: bool (N, cells, exponents)."""
        return self.board[:, :, None] == torch.arange(EXPONENTS, device=self.device)

    def masks(self) -> Tensor:
        """See ``Environment``."""
        rows = self.board[:, self._places].view(-1, 4, SIDE, SIDE)
        return (self._slid[self._numbers(rows)] != rows).flatten(2).any(2)

    def step(self, actions: Tensor) -> Transition:
        """See ``Environment``."""
        places = self._places[actions]
        rows = self._numbers(self.board.gather(1, places).view(-1, SIDE, SIDE))
        after = self.board.scatter(1, places, self._slid[rows].flatten(1))
        moved = (after != self.board).any(1)
        points = self._points[rows].sum(1)
        self.board.copy_(after)
        self.score += points
        self.moves += moved
        self._lay(moved, self.moves + 1)
        over, highest = ~self.masks().any(1), torch.ones_like(self.moves) << self.board.amax(1)
        measures = (self.score, highest, highest >= GOAL, self.moves)
        return Transition(points / POINTS, over, torch.zeros_like(over), measures)

    def restart(self, done: Tensor) -> None:
        """See ``Environment``."""
        self.episode += done
        for each in (self.score, self.moves):
            each.masked_fill_(done, 0)
        self.board.masked_fill_(done[:, None], 0)
        for tile in (0, 1):
            self._lay(done, tile)

    def state(self) -> dict[str, Tensor]:
        """See ``Environment``."""
        return {name: getattr(self, name).cpu() for name in KEPT}

    def load(self, state: dict[str, Tensor]) -> None:
        """See ``Environment``."""
        for name in KEPT:
            getattr(self, name).copy_(state[name])

    def frame(self) -> Frame:
        """See ``Environment``."""
        exponents = self.board[0].tolist()
        tiles = [f"{1 << each if each else '·':>7}" for each in exponents]
        rows = ("".join(tiles[start : start + SIDE]) for start in range(0, CELLS, SIDE))
        return Frame("\n".join(rows), partial(draw_image, exponents))

    def _numbers(self, rows: Tensor) -> Tensor:
        """The places of rows, uint8 (..., 4), in the table."""
        return (rows * self._weights).sum(-1)

    def _lay(self, where: Tensor, tile: int | Tensor) -> None:
        """Lay a tile on the boards ``where``, bool (N,); ``tile`` is its number in the episode."""
        keys, free = draws.bits(self._keys, self.episode), self.board == 0
        k = draws.below(keys, 2 * tile, free.sum(1))
        # the k-th free cell; any on a full board
        place = (free.cumsum(1) <= k[:, None]).sum(1).clamp_(max=CELLS - 1)
        exponent = 1 + (draws.uniforms(keys, 2 * tile + 1) >= TWO).to(torch.uint8)
        laid = self.board.scatter(1, place[:, None], exponent[:, None])
        self.board.copy_(torch.where(where[:, None], laid, self.board))


def draw_image(exponents: Sequence[int]) -> Any:
    """A board as a picture; the larger a tile, the darker."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (SIDE * PIXELS, SIDE * PIXELS), "#bbada0")
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(PIXELS // 4)
    for cell, exponent in enumerate(exponents):
        x, y, half = (cell % SIDE + 0.5) * PIXELS, (cell // SIDE + 0.5) * PIXELS, PIXELS // 2 - 3
        shade = (240 - 8 * exponent, 232 - 14 * exponent, 220 - 14 * exponent)
        pen.rounded_rectangle((x - half, y - half, x + half, y + half), radius=6, fill=shade)
        if exponent:
            pen.text(
                (x, y),
                str(1 << exponent),
                fill="black" if exponent < 7 else "white",
                font=font,
                anchor="mm",
            )
    return picture


def _places() -> Tensor:
    """The cells of each move, row for row, the side moved to first: int64 (4, cells)."""
    cells = torch.arange(CELLS).view(SIDE, SIDE)
    return torch.stack([cells, cells.flip(1), cells.T, cells.T.flip(1)]).flatten(1)


def _make_table() -> tuple[Tensor, Tensor]:
    """All rows slid to their beginning, uint8 (65536, 4), and the points that this scores, int64
    (65536,)."""
    rows = torch.arange(EXPONENTS**SIDE)[:, None] // EXPONENTS ** torch.arange(SIDE) % EXPONENTS
    rows, points = _close(rows), torch.zeros(len(rows), dtype=torch.int64)
    for one, other in ((0, 1), (1, 2), (2, 3)):
        tile = rows[:, one]
        merge = (tile > 0) & (tile < EXPONENTS - 1) & (tile == rows[:, other])
        rows[:, one] += merge
        rows[:, other].masked_fill_(merge, 0)
        points += merge << rows[:, one]
    return _close(rows).to(torch.uint8), points


def _close(rows: Tensor) -> Tensor:
    """Rows whose free cells stand at their end."""
    return rows.gather(1, (rows == 0).to(torch.uint8).argsort(dim=1, stable=True))
