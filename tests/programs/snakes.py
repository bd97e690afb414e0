"""Small runs of the Snake loop, and one of which a rank raises amid the work.

python -m programs.snakes fit --loop falling ...   the ``stageb`` command with that one registered
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stageb.__main__ import main as stageb
from stageb.loops import LOOPS, Loop
from stageb.snake.config import SnakeConfig

LOOPS["falling"] = Loop("Play Snake, and fall.", "programs.snakes:FallingConfig", "programs.snakes:fit")

GAMES = 24  # over all ranks: 1, 2, 3, 4 or 8 of them
SMALL = {
    "game.size": 5,
    "agent.channels": 4,
    "agent.blocks": 1,
    "agent.hidden": 16,
    "runner.rollout_steps": 4,
    "runner.global_batch": GAMES * 2,
    "runner.total_steps": GAMES * 4 * 24,
    "runner.commit_every": 1,
    "runner.divergence_every": 8,
    "evaluation.every": 12,
    "evaluation.episodes": 9,
    "log.tensorboard": False,
    "log.curves": False,
    "fabric.accelerator": "cpu",
}


@dataclass(frozen=True)
class FallingConfig(SnakeConfig):
    """A run of which a rank raises."""

    loop: Literal["falling"] = "falling"  # type: ignore[assignment]
    """The loop that these keys are of."""
    raises_on: int = -1
    """The rank."""


def fit(config: FallingConfig, resolved_yaml: str, fresh: bool) -> int:
    """A run that breaks on one rank."""
    from stageb.snake import loop, rollout
    from stageb.world import World

    play = rollout.Player.play

    def falling(player: rollout.Player, first_step: int) -> Any:
        if (player.rank, first_step) == (config.raises_on, 12):  # type: ignore[attr-defined]
            raise ValueError("the snake is gone")
        return play(player, first_step)

    def main(world: World) -> int:
        rollout.Player.rank = world.rank  # type: ignore[attr-defined]
        rollout.Player.play = falling  # type: ignore[method-assign]
        return loop.main(world, config, resolved_yaml, fresh)

    return loop.worlds.run(config.fabric, main)


def arguments(root: Path, world_size: int = 1, loop: str = "snake", **keys: object) -> list[str]:
    """What follows ``stageb`` on the command line of a small run; ``keys`` win, with ``__`` for dots."""
    place = {"output.root": str(root), "fabric.devices": world_size, "runner.per_rank_num_envs": GAMES // world_size}
    given = {**SMALL, **place, **{name.replace("__", "."): value for name, value in keys.items()}}
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()}
    return ["fit", f"--loop={loop}", *(f"--{key}={text}" for key, text in texts.items())]


if __name__ == "__main__":
    sys.exit(stageb())
