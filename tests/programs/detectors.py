"""Small runs of the two-channel loop, on drawn images."""

from __future__ import annotations

import json
from pathlib import Path

from stageb.two_channel.boxes.shapes import write_shapes

SMALL = {
    "model.small.hidden_size": 32,
    "model.small.intermediate_size": 48,
    "model.small.num_hidden_layers": 2,
    "model.small.num_attention_heads": 2,
    "model.small.num_key_value_heads": 1,
    "model.small.vision_hidden_size": 32,
    "model.small.vision_depth": 1,
    "model.small.vision_num_heads": 2,
    "model.small.patch_size": 16,
    "schedule.steps": 6,
    "schedule.warmup_steps": 2,
    "schedule.learning_rate_end": 0.0005,
    "schedule.commit_every": 2,
    "channel_a.samples_per_step": 6,
    "augmentation.mirror": True,
    "channel_b.rollouts_per_step": 5,
    "channel_b.max_new_tokens": 16,
    "packing.global_max_length": 256,
    "packing.max_length": 192,
    "evaluation.pictures": 2,
    "curves": False,
    "fabric.accelerator": "cpu",
}


def write(folder: Path, train: int = 12, test: int = 3) -> None:
    """The images, once."""
    if not (folder / "test.jsonl").exists():
        write_shapes(folder, "train", train, seed=1)
        write_shapes(folder, "test", test, seed=1)


def brief(
    root: Path, world_size: int = 1, loop: str = "two_channel", /, **keys: object
) -> list[str]:
    """``arguments`` of a run of short steps, with a commit after every one."""
    few = {
        "schedule__pattern": ["A", "B"],
        "schedule__steps": 12,
        "schedule__commit_every": 1,
        "evaluation__pictures": 0,
    }
    few |= {"channel_a__samples_per_step": 3, "channel_b__rollouts_per_step": 3}
    return arguments(root, world_size, loop, **{**few, **keys})


def arguments(
    root: Path, world_size: int = 1, loop: str = "two_channel", /, **keys: object
) -> list[str]:
    """What follows ``stageb`` on the command line of a small run in ``root/run``; ``keys`` win,
    with ``__`` for dots."""
    data = root.parent / "shapes"  # for all runs of a test
    write(data)
    place = {"output.root": str(root), "fabric.devices": world_size}
    place |= {f"data.{split}": str(data / f"{split}.jsonl") for split in ("train", "test")}
    given = {**SMALL, **place, **{name.replace("__", "."): value for name, value in keys.items()}}
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
    }
    return ["fit", f"--loop={loop}", *(f"--{key}={text}" for key, text in texts.items())]
