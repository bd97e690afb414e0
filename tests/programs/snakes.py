"""Small runs of the Snake loop."""

from __future__ import annotations

import json
from pathlib import Path

GAMES = 24  # over all ranks: 1, 2, 3, 4 or 8 of them
SMALL = {
    "game.size": 5,
    "agent.channels": 4,
    "agent.blocks": 1,
    "agent.hidden": 16,
    "runner.envs": GAMES,
    "runner.rollout_steps": 4,
    "runner.global_batch": GAMES * 2,
    "runner.total_steps": GAMES * 4 * 24,
    "runner.commit_every": 1,
    "runner.divergence_every": 8,
    "evaluation.every": 12,
    "evaluation.episodes": 9,
    "curves": False,
    "loggers": [],
    "fabric.accelerator": "cpu",
}


BRIEF = {
    "runner.total_steps": GAMES * 4 * 12,
    "runner.log_every": 5,
    "runner.divergence_every": 4,
    "evaluation.every": 6,
}


def brief(root: Path, world_size: int = 1, loop: str = "ppo", /, **keys: object) -> list[str]:
    """``arguments`` of a run half as long, for eight ranks on a machine with few cores.
    Every update is committed; rows and evaluations are due more rarely, so that it may be stopped
    between two of either."""
    return arguments(
        root,
        world_size,
        loop,
        **{name.replace(".", "__"): value for name, value in BRIEF.items()} | keys,
    )


def arguments(root: Path, world_size: int = 1, loop: str = "ppo", /, **keys: object) -> list[str]:
    """What follows ``stageb`` on the command line of a small run; ``keys`` win, with ``__`` for
    dots."""
    place = {"output.root": str(root), "fabric.devices": world_size}
    given = {**SMALL, **place, **{name.replace("__", "."): value for name, value in keys.items()}}
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
    }
    return ["fit", f"--loop={loop}", *(f"--{key}={text}" for key, text in texts.items())]
