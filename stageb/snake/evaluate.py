"""Whole games with the most probable action: how good an agent is, apart from what it explores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from stageb.snake.agent import Agent
from stageb.snake.config import GameConfig
from stageb.snake.game import Game
from stageb.snake.types import Played

LOOK = 32  # steps between two questions to the device whether all games are over


@torch.no_grad()
def play_out(agent: Agent, config: GameConfig, seed: int, numbers: Sequence[int], device: str) -> Tensor:
    """The first episode of each of the games that ``numbers`` name: int64 (games, 5), by the fields of ``Played``."""
    found = torch.zeros((len(numbers), 5), dtype=torch.int64, device=device)
    if not numbers:
        return found
    game = Game(config, seed, numbers, device)
    over = torch.zeros(len(numbers), dtype=torch.bool, device=device)
    step = 0
    while step % LOOK or not bool(over.all()):
        logits, _ = agent.decide(game.grids())
        outcome = game.move(logits.argmax(-1))
        done = outcome.terminated | outcome.truncated
        facts = [done, game.score, outcome.won, outcome.truncated, game.steps]
        found = torch.where((done & ~over)[:, None], torch.stack([each.to(torch.int64) for each in facts], dim=1), found)
        over |= done
        game.restart(done, outcome.ate)
        step += 1
    return found


def summed(found: Tensor) -> Played:
    """The games of ``play_out`` together."""
    return Played(*found.sum(0).tolist())
