"""The agent that reads boards: a small residual CNN with a policy and a value.

A board is turned until the snake heads up, and mirrored where its food lies on the left: what is
learnt of one board holds for all eight that it can be turned and mirrored into. Moves into a wall
or the body, the reverse move among them, have no probability while there is another: the snake dies
where it has trapped itself, and never by a slip.

The board is read whole: planes of the grid, and a plane of ones that shows where it ends, since
convolutions pad with zeros. What the network knows of the head's own cell and of the whole board
goes to both outputs.
"""

from __future__ import annotations

import itertools
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from stageb import seeds
from stageb.config import require
from stageb.ppo.agents import ActorCritic
from stageb.ppo.config import AgentConfig
from stageb.ppo.environment import NEVER, Discrete
from stageb.ppo.envs.snake import ACTIONS, DOWN, LEFT, RIGHT, UP
from stageb.training.ppo import draw_weights

PLANES = 5
SQUEEZED = 8  # channels of the board that the layer over all cells sees


def find_ages(grids: Tensor) -> Tensor:
    """Grids (B, cells) without their food."""
    return grids.masked_fill(grids > grids.shape[1], 0)


def find_heads(grids: Tensor) -> Tensor:
    """The cell of the head: int64 (B,), of grids (B, cells)."""
    return find_ages(grids).argmax(1)


def look_around(grids: Tensor, size: int) -> Tensor:
    """The ages of the cells that the actions lead to: (B, 4); a wall's is the number of cells."""
    walled = functional.pad(find_ages(grids).view(-1, size, size), (1, 1, 1, 1), value=size**2)
    # by action
    near = (walled[:, :-2, 1:-1], walled[:, 1:-1, 2:], walled[:, 2:, 1:-1], walled[:, 1:-1, :-2])
    heads = find_heads(grids)[:, None, None].expand(-1, ACTIONS, 1)
    return torch.stack([each.flatten(1) for each in near], 1).gather(2, heads)[:, :, 0]


def turn_upright(grids: Tensor, headings: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Grids (B, cells) turned and mirrored, and which action there is each action here: int64 (B,
    4)."""
    boards = grids.view(-1, size, size)
    ways = torch.stack([boards.rot90(turns, (1, 2)).flatten(1) for turns in range(4)], 1)
    turned = ways.gather(1, headings[:, None, None].expand(-1, 1, size**2))[:, 0]
    is_left = (turned > size**2).to(torch.uint8).argmax(1, keepdim=True) % size < size // 2
    mirrored = torch.where(is_left, turned.view(-1, size, size).flip(2).flatten(1), turned)
    turns = torch.arange(ACTIONS, device=grids.device) - headings[:, None]
    return mirrored, torch.where(is_left, -turns, turns) % ACTIONS


def make_planes(grids: Tensor, size: int) -> Tensor:
    """Convert grids (B, cells) to the network's input: float32 (B, 5, size, size), in channels-last
    order.

    Age over length, age over cells (the time until a cell is free), food, head, and ones.
    """
    cells = grids.shape[1]
    age = find_ages(grids).to(torch.float32)
    length = age.amax(1, keepdim=True)
    read = [
        age / length,
        age / cells,
        (grids > cells).float(),
        (age == length).float(),
        torch.ones_like(age),
    ]
    stacked = torch.stack(read, dim=-1)
    return stacked.view(-1, size, size, PLANES).permute(0, 3, 1, 2)


def cut_patches(board: Tensor, patch: int) -> Tensor:
    """Planes (B, P, size, size) with every square of ``patch`` x ``patch`` cells as the channels of
    one place."""
    if patch == 1:
        return board
    short = -board.shape[2] % patch
    return functional.pixel_unshuffle(functional.pad(board, (0, short, 0, short)), patch)


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))"""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, size, size) to the same."""
        inner = functional.relu_(self.first(functional.relu(x)))
        return cast(Tensor, self.second(inner).add_(x))


class Agent(ActorCritic):
    """From grids to a distribution over actions and a value."""

    def __init__(self, config: AgentConfig, size: int, seed: int) -> None:
        """Weights are drawn from the stream that ``seed`` names."""
        super().__init__(Discrete(ACTIONS))
        self.size, self.patch = size, config.patch
        self.side = -(-size // config.patch)  # places along a side
        channels, hidden = config.channels, config.hidden
        self.stem = nn.Conv2d(PLANES * config.patch**2, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(ResidualBlock(channels) for _ in range(config.blocks)))
        self.squeeze = nn.Conv2d(channels, SQUEEZED, 1)
        self.whole = nn.Linear(SQUEEZED * self.side**2, hidden)
        self.joint = nn.Linear(channels + hidden, hidden)
        self.policy = nn.Linear(hidden, ACTIONS)
        self.value = nn.Linear(hidden, 1)
        small: dict[nn.Module, float] = {
            cast(ResidualBlock, block).second: 0.5 for block in self.blocks
        }
        draw_weights(
            self,
            seeds.stream(seed, "snake", "weights"),
            {self.policy: 0.01, self.value: 1.0, **small},
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def decide(self, grids: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the actions, float32 (B, 4), and values, float32 (B,)."""
        around = look_around(grids, self.size)
        deadly = around > 1  # the tail leaves its cell in time
        neck = around == find_ages(grids).amax(1, keepdim=True) - 1
        grids, actions = turn_upright(grids, neck.to(torch.uint8).argmax(1) ^ 2, self.size)
        board = cut_patches(make_planes(grids, self.size), self.patch)
        x = functional.relu_(
            self.blocks(self.stem(board.contiguous(memory_format=torch.channels_last)))
        )
        places = x.permute(0, 2, 3, 1).flatten(1, 2)  # (B, places, channels)
        head = find_heads(grids)
        head = head // self.size // self.patch * self.side + head % self.size // self.patch
        at_head = places.gather(1, head[:, None, None].expand(-1, 1, places.shape[2]))[:, 0]
        whole = functional.relu_(self.whole(functional.relu_(self.squeeze(x)).flatten(1)))
        joint = functional.relu_(self.joint(torch.cat([at_head, whole], dim=1)))
        logits = self.policy(joint).float().gather(1, actions)
        return logits.masked_fill(deadly & ~deadly.all(1, keepdim=True), NEVER), self.value(
            joint
        ).float()[:, 0]


class Cycle(ActorCritic):
    """A player that goes around the whole board again and again: it wins every game, slowly. Even
    sides alone have a way around; here it goes right in the row in which snakes start, and back in
    the first column."""

    def __init__(self, size: int) -> None:
        """Raises ``ConfigError`` for an odd side."""
        super().__init__(Discrete(ACTIONS))
        require(
            size % 2 == 0,
            "game.size",
            size,
            "an even side for --cycle, since no odd board can be gone around",
        )
        middle = size // 2
        (first, onward), last = ((0, DOWN), size - 1) if middle % 2 == 0 else ((size - 1, UP), 0)
        way = []
        for row, column in itertools.product(range(size), repeat=2):
            ahead, turn = (
                (RIGHT, size - 1) if (row - middle) % 2 == 0 else (LEFT, 1 if row != last else 0)
            )
            way.append(
                (RIGHT if row == first else onward ^ 2)
                if column == 0
                else onward
                if column == turn
                else ahead
            )
        self.way = nn.Parameter(torch.tensor(way), requires_grad=False)  # the action at every cell

    def decide(self, grids: Tensor) -> tuple[Tensor, Tensor]:
        """As any agent; its values say nothing."""
        return functional.one_hot(self.way[find_heads(grids)], ACTIONS), torch.zeros(
            len(grids), device=grids.device
        )
