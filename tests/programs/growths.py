"""Small runs of the growth loop."""

from __future__ import annotations

import json
from pathlib import Path

SMALL = {
    "task.name": "teacher",
    "task.fit_examples": 64,
    "task.validation_examples": 32,
    "host.kind": "mlp",
    "host.width": 4,
    "host.epochs": 4,
    "host.steps_per_epoch": 2,
    "host.batch_size": 16,
    "gates.training_epochs": 1,
    "gates.blending_epochs": 1,
    "gates.least_contribution": -0.5,
    "policy.hidden": 8,
    "policy.minibatches": 2,
    "ppo.epochs": 1,
    "growth.updates": 13,
    "growth.environments": 4,
    "growth.block": 2,
    "growth.commit_every": 1,
    "evaluation.environments": 2,
    "curves": False,
    "fabric.accelerator": "cpu",
}


def arguments(
    root: Path, world_size: int = 1, loop: str = "growth", /, **keys: object
) -> list[str]:
    """What follows ``stageb`` on the command line of a small run; ``keys`` win, with ``__`` for
    dots."""
    place = {"output.root": str(root), "fabric.devices": world_size}
    given = {**SMALL, **place, **{name.replace("__", "."): value for name, value in keys.items()}}
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
    }
    return ["fit", f"--loop={loop}", *(f"--{key}={text}" for key, text in texts.items())]
