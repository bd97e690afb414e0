"""Boards written by hand, and a plain game to compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from stageb.ppo.config import GameConfig
from stageb.ppo.envs.snake import Game, MoveResult

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def game_of(board: str, heading: int, **keys: Any) -> Game:
    """The game that a drawing shows: ``.`` free, ``*`` food, ``a`` the tail and so on up to the
    head."""
    letters = board.split()
    marks = {".": 0, "*": len(letters) + 1}
    cells = [marks.get(letter, ord(letter) - ord("a") + 1) for letter in letters]
    game = Game(GameConfig(size=math.isqrt(len(cells)), **keys), 0, [0])
    state = game.state()
    state["grids"] = torch.tensor([cells], dtype=torch.uint8)
    state["heading"] = torch.tensor([heading])
    game.load(state)
    return game


def drawn(game: Game) -> str:
    """The board of the first game, as ``game_of`` reads it."""
    grid = game.grids()[0].tolist()
    letters = [
        "." if age == 0 else "*" if age > len(grid) else chr(ord("a") + age - 1) for age in grid
    ]
    size = game.config.size
    return "\n".join(" ".join(letters[row : row + size]) for row in range(0, len(letters), size))


def same(board: str, game: Game) -> bool:
    """Whether the first game stands as drawn."""
    return board.split() == drawn(game).split()


def advance(game: Game, *actions: int) -> MoveResult:
    """Steps of one game, none of which but the last may end it; ``restart`` is not called after
    that."""
    for turn, action in enumerate(actions):
        outcome = game.move(torch.tensor([action]))
        if turn + 1 < len(actions):
            assert not bool(outcome.terminated | outcome.truncated)
            game.renew(outcome.terminated, outcome.ate)
    return outcome


class Plain:
    """A game as one would write it down, its food given."""

    def __init__(self, size: int, food: int, hunger: int) -> None:
        middle = size // 2
        self.size, self.food, self.hunger = size, food, hunger
        self.body = [(middle, middle - back) for back in range(3)]
        self.heading, self.idle = 1, 0

    def step(self, action: int) -> tuple[bool, bool, bool, bool]:
        """Whether the snake ate, died, won, was cut off."""
        if action != (self.heading + 2) % 4:
            self.heading = action
        row, column = self.body[0]
        head = (row + MOVES[self.heading][0], column + MOVES[self.heading][1])
        ate = head == divmod(self.food, self.size)
        obstacles = self.body if ate else self.body[:-1]
        if not (0 <= head[0] < self.size and 0 <= head[1] < self.size) or head in obstacles:
            return False, True, False, False
        self.body = [head, *obstacles]
        self.idle = 0 if ate else self.idle + 1
        won = len(self.body) == self.size**2
        return ate, False, won, not won and self.idle >= self.hunger

    def grid(self) -> Sequence[int]:
        """As ``Game.grids`` gives it."""
        cells = [0] * self.size**2
        cells[self.food] = self.size**2 + 1
        for back, (row, column) in enumerate(self.body):
            cells[row * self.size + column] = len(self.body) - back
        return cells
