"""Whole games with the most probable action: how good an agent is, or the one that a run has kept."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from stageb import seeds
from stageb.config import FabricConfig, require
from stageb.errors import InputError
from stageb.job import world as worlds
from stageb.job.world import World, decode, encode
from stageb.runs.figures import wilson
from stageb.snake.agent import Agent, find_heads
from stageb.snake.config import START_LENGTH, GameConfig, SnakeConfig
from stageb.snake.game import ACTIONS, DOWN, LEFT, RIGHT, UP, Game, GameTotals
from stageb.snake.rollout import Autocast
from stageb.store.commits import read_commit
from stageb.store.trust import file_of
from stageb.training.step import check_finite

WEIGHTS = "weights/agent.safetensors"


@dataclass(frozen=True)
class StoredAgent:
    """What a run's folder holds."""

    folder: Path
    config: SnakeConfig
    agent: Agent  # on the CPU
    updates: int  # that it learnt from


def load_agent(folder: Path, config: SnakeConfig) -> StoredAgent:
    """The agent as last committed. Raises ``InputError`` where there is none, or one of another shape."""
    last = read_commit(folder)
    if WEIGHTS not in last["versions"]:
        raise InputError(f"{folder}: its run has committed no agent yet; wait for its first commit")
    path = file_of(folder, folder / last["versions"][WEIGHTS].name)
    agent = Agent(config.agent, config.game.size, config.seed)
    try:
        weights = load_file(path)
        agent.load_state_dict(weights)
        check_finite(weights)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise InputError(f"{path}: not the weights of the agent that config.yaml tells of: {error}") from error
    return StoredAgent(folder, config, agent, last["state"]["update"])


class Cycle(nn.Module):
    """A player that goes around the whole board again and again: it wins every game, slowly. Even sides alone have a way
    around; here it goes right in the row in which snakes start, and back in the first column."""

    def __init__(self, size: int) -> None:
        """Raises ``ConfigError`` for an odd side."""
        super().__init__()
        require(size % 2 == 0, "game.size", size, "an even side for --cycle, since no odd board can be gone around")
        middle = size // 2
        (first, onward), last = ((0, DOWN), size - 1) if middle % 2 == 0 else ((size - 1, UP), 0)
        way = []
        for row, column in itertools.product(range(size), repeat=2):
            ahead, turn = (RIGHT, size - 1) if (row - middle) % 2 == 0 else (LEFT, 1 if row != last else 0)
            way.append((RIGHT if row == first else onward ^ 2) if column == 0 else onward if column == turn else ahead)
        self.way = nn.Parameter(torch.tensor(way), requires_grad=False)  # the action at every cell

    def decide(self, grids: Tensor) -> tuple[Tensor, None]:
        """As ``Agent.decide``, without values."""
        return functional.one_hot(self.way[find_heads(grids)], ACTIONS), None


MOST_GAMES = 1_000_000
LOOK = 32  # steps between two questions to the device whether all games are over
Rows = list[list[int]]  # of games, by the fields of GameTotals


def main(folder: Path, config: SnakeConfig, arguments: Sequence[str]) -> int:
    """``stageb evaluate RUN``: how good the agent of a run is, on games that it did not learn from."""
    parser = argparse.ArgumentParser(prog="stageb evaluate RUN", description=main.__doc__)
    parser.add_argument("--episodes", type=int, default=1000, help="games to play (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the games (default 0)")
    parser.add_argument("--accelerator", default="auto", help="cpu, cuda or auto (default auto)")
    parser.add_argument("--devices", type=int, default=1, help="devices that share the games (default 1)")
    parser.add_argument("--cycle", action="store_true", help="play by going around the board, a reference that always wins")
    given = parser.parse_args(arguments)
    require(1 <= given.episodes <= MOST_GAMES, "--episodes", given.episodes, f"1 to {MOST_GAMES}")
    require(given.devices >= 1, "--devices", given.devices, "at least 1")
    stored = load_agent(folder, config)
    fabric = FabricConfig(accelerator=given.accelerator, devices=given.devices, precision=config.fabric.precision)
    player = Cycle(config.game.size) if given.cycle else stored.agent
    title = f"{folder}, {'around the board' if given.cycle else f'after {stored.updates:,} updates'}"
    return worlds.run(fabric, lambda world: _on_ranks(world, title, player, config.game, given.episodes, given.seed))


def _on_ranks(world: World, title: str, player: Agent | Cycle, game: GameConfig, episodes: int, seed: int) -> int:
    """Play the games on all ranks; rank 0 prints the results."""
    player = player.to(world.device)
    named = seeds.stream(seed, "snake", "stageb evaluate")
    with world.at("evaluation"):
        found = play_out(player, game, named, world.share(range(episodes)), world.fabric.autocast)
    rows: Rows = world.dealt([decode(part) for part in world.gather(encode(found.tolist()))])
    if world.is_global_zero:
        print(title)
        print("\n".join(format_table(rows, game)))
    return 0


def format_table(rows: Rows, config: GameConfig) -> list[str]:
    """The results of games, as lines of text; intervals are 95 %."""
    games, scores = len(rows), sorted(score for _, score, *_ in rows)
    mean = sum(scores) / games
    spread = math.sqrt(sum((score - mean) ** 2 for score in scores) / max(1, games - 1))
    total = GameTotals(*(sum(column) for column in zip(*rows, strict=True)))
    ends = (("won", total.won), ("died", total.died), ("cut off", total.cut))
    quarters = [scores[min(games - 1, games * quarter // 4)] for quarter in (1, 2, 3)]
    return [
        f"games    {games:,} with the most probable actions",
        f"foods    {mean:.2f} +- {1.96 * spread / math.sqrt(games):.2f} of {config.cells - START_LENGTH}",
        f"         quarters {quarters[0]}, {quarters[1]}, {quarters[2]}; {scores[0]} to {scores[-1]}",
        *("{:8} {:.1%} ({:.1%} to {:.1%})".format(name, count / games, *wilson(count, games)) for name, count in ends),
        f"steps    {total.steps / games:.1f} a game",
    ]


@torch.no_grad()
def play_out(player: Agent | Cycle, config: GameConfig, seed: int, numbers: Sequence[int], autocast: Autocast) -> Tensor:
    """The first episode of each of the games that ``numbers`` name: int64 (games, 5), by the fields of ``GameTotals``."""
    device = next(player.parameters()).device
    found = torch.zeros((len(numbers), 5), dtype=torch.int64, device=device)
    if not numbers:
        return found
    game = Game(config, seed, numbers, device)
    over = torch.zeros(len(numbers), dtype=torch.bool, device=device)
    step = 0
    while step % LOOK or not bool(over.all()):
        with autocast():
            logits, _ = player.decide(game.grids())
        outcome = game.move(logits.argmax(-1))
        done = outcome.terminated | outcome.truncated
        facts: list[Any] = [done, game.score, outcome.won, outcome.truncated, game.steps]
        found = torch.where((done & ~over)[:, None], torch.stack([each.to(torch.int64) for each in facts], dim=1), found)
        over |= done
        game.restart(done, outcome.ate)
        step += 1
    return found


def sum_games(found: Tensor) -> GameTotals:
    """The games of ``play_out`` together."""
    return GameTotals(*found.sum(0).tolist())
