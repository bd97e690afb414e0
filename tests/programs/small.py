"""Small runs of the guidance loop: tickets with a hidden rule, and a config under which the fake
model soon finds it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stageb.seeds import stream, uniform

ROUND = 24  # tickets of one round, at every world size
PARTS, STATES, COLOURS = ("hose", "valve", "seal"), ("new", "worn", "torn"), ("red", "blue")
SMALL = {
    "model.engine": "scripted",
    "split.train": 0.7,  # of 160: enough for a sound gate to accept something
    "split.val": 0.15,
    "split.test": 0.15,
    "sampler.micro_batch_size": 2,
    "sampler.samples_per_decode": 2,
    "runner.epochs": 2,
    "reflection.batch_size": 18,
    "reflection.num_proposals": 4,
    "fabric.accelerator": "cpu",
    # costs more than such a run; what it shows is tested in tests/guidance/commands/report
    "report": False,
}


def rows(mission: str = "valves", groups: int = 160) -> Iterator[dict[str, Any]]:
    """Lines of a ticket file: a ticket fails if its state is torn."""
    for n in range(groups):
        part, state, colour = (
            values[int(uniform(stream(mission, n), k) * len(values))]
            for k, values in enumerate((PARTS, STATES, COLOURS))
        )
        yield {
            "mission": mission,
            "group_id": f"g-{n}",
            "label": "fail" if state == "torn" else "pass",
            # No two say the same: they would be one group.
            "per_image": {
                "image_1": f"part: {part}; number: {n}",
                "image_2": f"state: {state}; colour: {colour}",
            },
        }


def write(path: Path, *missions: str, groups: int = 160) -> Path:
    """A ticket file of ``groups`` tickets for each mission."""
    lines = (
        json.dumps(row, ensure_ascii=False) for mission in missions for row in rows(mission, groups)
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def arguments(
    tickets: Path, root: Path, world_size: int = 1, keys: Mapping[str, Any] | None = None
) -> list[str]:
    """What follows ``stageb`` on the command line of a small run; ``keys`` win."""
    given = {
        **SMALL,
        "tickets": [str(tickets)],
        "output.root": str(root),
        "fabric.devices": world_size,
        "runner.per_rank_rollout_batch_size": ROUND // world_size,
        **(keys or {}),
    }
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in given.items()
    }
    return ["fit", *(f"--{key}={text}" for key, text in texts.items())]
