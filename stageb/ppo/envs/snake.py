"""The game of Snake, many boards at once, as a few tensor operations a step on any device; as text
and as a picture.

A board is a row of cells that hold the time at which they become free. Time is a clock of the
game's own that stands still while the snake eats, so the whole body ages without being touched: a
cell is part of the snake if it becomes free later than now, and the head, which was entered last,
does so after as many ticks as the snake is long. A step writes one cell a game.

What an agent sees is a *grid*: 0 for a free cell, the ticks after which it becomes free for the
body (1 at the tail, the snake's length at the head), and for the food one more than the board has
cells. So the order of the body is seen, without which the game is not Markov.

Rules: the snake starts with length 3 in the middle, heading right. The tail's cell is free unless
the snake eats. A reverse move is ignored: the snake goes on straight. A wall or the body ends the
game; the full board wins it; a game that takes too long, or in which nothing is eaten for too long,
is cut off, which is no death. Food falls on any free cell alike, drawn from a stream named by seed,
the game's global number, the episode and the food's number, so it depends on no batch or rank.

Nothing here waits for the device: what only few games need is done for all and masked, except on a
CPU, where picking them is cheaper.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from stageb import draws, seeds
from stageb.ppo.config import START_LENGTH, GameConfig
from stageb.ppo.environment import Actions, Discrete, Environment, Frame, Transition

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The outcome of one step of N games, before those that ended begin anew."""

    rewards: Tensor  # float32 (N,)
    ate: Tensor  # bool (N,)
    terminated: Tensor  # bool (N,): died or won
    truncated: Tensor  # bool (N,): cut off, as nothing was eaten for too long; neither died nor won
    won: Tensor  # bool (N,): the board is full


UP, RIGHT, DOWN, LEFT = range(4)  # actions, and headings; the reverse of d is d ^ 2
ACTIONS = 4
# what a state is made of, for ``state`` and ``load``
KEPT = ("grids", "heading", "idle", "steps", "episode")


class Game:
    """N games under way."""

    def __init__(
        self,
        config: GameConfig,
        seed: int,
        numbers: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> None:
        """Games whose global ``numbers`` name their streams, each at the start of its first
        episode."""
        self.config = config
        self.device = torch.device(device)
        self.count, self.cells = len(numbers), config.cells
        # of a grid, the food's mark included
        self.dtype = torch.uint8 if self.cells < 255 else torch.int16
        self._next = _list_neighbours(config.size).to(self.device)
        # the head's cell at first: the middle, or the one after it
        self._start = config.size // 2 * (config.size + 1)
        self._ages = torch.arange(1, START_LENGTH + 1, dtype=torch.int32, device=self.device)
        key = seeds.stream(seed, "snake", "food")
        self._keys = draws.bits(
            torch.full((self.count,), draws.signed(key)), torch.tensor(numbers, dtype=torch.int64)
        )
        self._keys = self._keys.to(self.device)

        def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
            return torch.zeros((self.count, *shape), dtype=dtype, device=self.device)

        self.free_at = zeros(torch.int32, self.cells)  # the tick at which a cell becomes free
        self.clock = zeros(torch.int32)  # now
        self.head, self.food, self.heading = (
            zeros(torch.int64),
            zeros(torch.int64),
            zeros(torch.int64),
        )
        self.length = zeros(torch.int64)
        # since the last food, since the episode's start
        self.idle, self.steps = zeros(torch.int64), zeros(torch.int64)
        self.episode = zeros(torch.int64) - 1
        self.episode_keys = zeros(torch.int64)
        everyone = torch.ones(self.count, dtype=torch.bool, device=self.device)
        self.renew(everyone, everyone)

    @property
    def score(self) -> Tensor:
        """Foods eaten in this episode: int64 (N,)."""
        return self.length - START_LENGTH

    def move(self, actions: Tensor) -> MoveResult:
        """Take one step in every game; ``actions`` int64 (N,). ``renew`` must follow, for what
        ended and what ate."""
        heading = torch.where(actions == self.heading ^ 2, self.heading, actions)
        # a wall leads to the head itself, where the snake is
        target = self._next[self.head * ACTIONS + heading]
        ate = target == self.food
        died = self.free_at.gather(1, target[:, None])[:, 0] > self.clock + 1
        self.heading.copy_(heading)
        self.head.copy_(torch.where(died, self.head, target))
        self.length += ate
        self.clock += ~(ate | died)
        self.free_at.scatter_(
            1, self.head[:, None], (self.clock + self.length).to(torch.int32)[:, None]
        )
        self.idle += 1
        self.idle.masked_fill_(ate, 0)
        self.steps += 1
        won = self.length == self.cells
        terminated = died | won
        config = self.config
        rewards = ate * config.food + died * config.death + won * config.win + config.step
        spent = self.idle >= config.hunger
        if config.limit is not None:
            spent |= self.steps >= config.limit
        return MoveResult(rewards, ate, terminated, spent & ~terminated, won)

    def renew(self, done: Tensor, ate: Tensor) -> None:
        """Begin a new episode where ``done``, bool (N,), and lay food there and where the last step
        ``ate``."""
        self.episode += done
        self.episode_keys.copy_(
            torch.where(done, draws.bits(self._keys, self.episode), self.episode_keys)
        )
        self.clock += done * (self.cells + 1)  # by now every cell of the old board is free
        self.length.masked_fill_(done, START_LENGTH)
        self.head.masked_fill_(done, self._start)
        self.heading.masked_fill_(done, RIGHT)
        self.idle.masked_fill_(done, 0)
        self.steps.masked_fill_(done, 0)
        body = self.free_at[:, self._start - START_LENGTH + 1 : self._start + 1]
        body.copy_(torch.where(done[:, None], self.clock[:, None] + self._ages, body))
        hungry = done | ate
        if self.device.type == "cpu":
            rows = hungry.nonzero()[:, 0]
            if len(rows):
                self.food[rows] = self._find_food(rows)
        else:
            self.food.copy_(torch.where(hungry, self._find_food(slice(None)), self.food))

    def grids(self) -> Tensor:
        """Return the agent's observations: (N, cells), of the game's ``dtype``."""
        grids = (self.free_at - self.clock[:, None]).clamp_(min=0).to(self.dtype)
        # at the head: just eaten, nothing laid yet
        mark = self.length.masked_fill(self.food != self.head, self.cells + 1)
        return grids.scatter_(1, self.food[:, None], mark.to(self.dtype)[:, None])

    def settle(self) -> None:
        """Set all clocks to 0, so that they never come to their end: at least every 2**31 / (cells
        + 1) steps."""
        self.free_at.sub_(self.clock[:, None]).clamp_(min=0)
        self.clock.zero_()

    def state(self) -> dict[str, Tensor]:
        """All that the games' future depends on, on the CPU; for ``load`` of a game with the same
        numbers."""
        return {
            name: (self.grids() if name == "grids" else getattr(self, name)).cpu() for name in KEPT
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore the result of ``state``, which must have been taken after ``renew``."""
        grids = state["grids"].to(self.device)
        for name in KEPT[1:]:
            getattr(self, name).copy_(state[name])
        self.episode_keys.copy_(draws.bits(self._keys, self.episode))
        self.clock.zero_()
        is_food = grids > self.cells
        self.food.copy_(is_food.to(torch.uint8).argmax(1))
        self.free_at.copy_(grids.masked_fill(is_food, 0))
        self.head.copy_(self.free_at.argmax(1))
        self.length.copy_(self.free_at.amax(1))

    def _find_food(self, rows: Tensor | slice) -> Tensor:
        """Where the next food of these games falls: the k-th free cell, any k alike."""
        length = self.length[rows]
        k = draws.below(self.episode_keys[rows], length - START_LENGTH, self.cells - length)
        free = self.free_at[rows] <= self.clock[rows][:, None]
        return (free.cumsum(1, dtype=self.dtype) <= k[:, None]).sum(1).clamp_(max=self.cells - 1)


def _list_neighbours(size: int) -> Tensor:
    """The cell after every step: int64 (cells * 4,), by cell and then by action; a wall leads back
    to the cell."""
    moves = {UP: (-1, 0), RIGHT: (0, 1), DOWN: (1, 0), LEFT: (0, -1)}
    table = []
    for cell in range(size**2):
        for action in range(ACTIONS):
            row, column = (cell // size + moves[action][0], cell % size + moves[action][1])
            table.append(row * size + column if 0 <= row < size and 0 <= column < size else cell)
    return torch.tensor(table)


# A board as text and as a picture.
#
# A grid is a list of cells, marked as an agent sees them.

SIDE = 320  # pixels of a board, about: whole cells, of 16 at the least
EDGE = 8  # around the board
BACKGROUND, BOARD, FRUIT, TAIL, BODY, HEAD = range(6)  # places in the palette
PALETTE = bytes((24, 26, 27, 38, 41, 43, 232, 73, 66, 24, 92, 66, 74, 201, 126, 240, 240, 210))
STROKES = {(False, True): "│", (True, False): "─"}
# (up or down, right or left) of the two ends
CORNERS = {(-1, 1): "└", (-1, -1): "┘", (1, 1): "┌", (1, -1): "┐"}


def write_text(grid: Sequence[int]) -> str:
    """The board in a frame, a line a row; the body is drawn as the path that it is."""
    size = math.isqrt(len(grid))
    rows = [
        "".join(_draw_letters(grid, size, row * size + column) for column in range(size))
        for row in range(size)
    ]
    edge = "─" * (2 * size + 1)
    return "\n".join([f"┌{edge}┐", *(f"│ {row}│" for row in rows), f"└{edge}┘"])


def draw_image(grid: Sequence[int]) -> Image.Image:
    """The board in the colours of ``PALETTE``; the body is joined as the path that it is.

    Cells of one body look alike, so that from step to step little changes: that keeps a picture
    that moves small.
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
    places = {age: cell for cell, age in enumerate(grid) if 0 < age <= size**2}
    for age in sorted(places):
        box = _place_box(places[age], size, scale, margin)
        if age - 1 in places:
            before = _place_box(places[age - 1], size, scale, margin)
            joint = (*map(min, box[:2], before[:2]), *map(max, box[2:], before[2:]))
            pen.rounded_rectangle(joint, radius=radius, fill=BODY if age > 2 else TAIL)
    if places:
        pen.rounded_rectangle(
            _place_box(places[len(places)], size, scale, margin), radius=radius, fill=HEAD
        )
    if size**2 < max(grid):
        pen.ellipse(
            _place_box(list(grid).index(max(grid)), size, scale, margin + scale // 16), fill=FRUIT
        )
    return picture


def _draw_letters(grid: Sequence[int], size: int, cell: int) -> str:
    """Two letters for a cell: what it is, and whether the path goes on to the right."""
    age = grid[cell]
    if not 0 < age <= size**2:
        return "· " if age == 0 else "● "
    length = max(each for each in grid if each <= size**2)
    row, column = divmod(cell, size)
    ends = [
        (up, right)
        for up, right in ((-1, 0), (0, 1), (1, 0), (0, -1))
        if 0 <= row + up < size and 0 <= column + right < size
        if grid[cell + up * size + right] in {age - 1, age + 1} - {0, length + 1}
    ]
    onwards = "─" if (0, 1) in ends else " "
    if age == length:
        return f"█{onwards}"
    vertical, horizontal = [up for up, _ in ends if up], [right for _, right in ends if right]
    if len(vertical) == 1 and len(horizontal) == 1:
        return CORNERS[vertical[0], horizontal[0]] + onwards
    return STROKES[bool(horizontal), bool(vertical)] + onwards


def _place_box(cell: int, size: int, scale: int, margin: int) -> tuple[int, int, int, int]:
    """A cell's place in the picture: of ``scale`` pixels, its edges cut by ``margin``."""
    left, top = cell % size * scale + EDGE, cell // size * scale + EDGE
    return left + margin, top + margin, left + scale - 1 - margin, top + scale - 1 - margin


# Snake as an environment of the loop's.


class SnakeEnvironment(Game, Environment):
    """Many boards."""

    actions: Actions = Discrete(ACTIONS)
    recordable: bool = True
    measures: Mapping[str, str] = {
        "score": "foods a game",
        "fill": "",
        "win_rate": "games won",
        "death_rate": "",
        "cut_rate": "",
        "length": "steps a game",
    }

    def observe(self) -> Tensor:
        """Grids: (N, cells)."""
        return self.grids()

    def step(self, actions: Tensor) -> Transition:
        """See ``Environment``."""
        moved = self.move(actions)
        self._ate = moved.ate
        died = moved.terminated & ~moved.won
        measures = (
            self.score,
            self.length / self.cells,
            moved.won,
            died,
            moved.truncated,
            self.steps,
        )
        return Transition(moved.rewards, moved.terminated, moved.truncated, measures)

    def restart(self, done: Tensor) -> None:
        """See ``Environment``."""
        self.renew(done, self._ate)

    def tell(self, means: Mapping[str, float]) -> str:
        """See ``Environment``."""
        foods = (
            f"{means['score']:.2f} of {self.cells - START_LENGTH} foods in "
            f"{means['length']:,.0f} steps"
        )
        return (
            f"{foods}, {means['win_rate']:.1%} won, {means['death_rate']:.1%} died, "
            f"{means['cut_rate']:.1%} cut off"
        )

    def frame(self) -> Frame:
        """See ``Environment``."""
        grid = self.grids()[0].tolist()
        return Frame(write_text(grid), partial(draw_image, grid))

    def tell_one(self, measures: Mapping[str, float]) -> str:
        """See ``Environment``; to die takes no step."""
        steps = measures["length"] - measures["death_rate"]
        how = (
            "won: the board is full"
            if measures["win_rate"]
            else "cut off"
            if measures["cut_rate"]
            else "died"
        )
        return (
            f"{measures['score']:.0f} of {self.cells - START_LENGTH} foods in {steps:.0f} "
            f"steps; {how}"
        )
