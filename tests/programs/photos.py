"""Tickets with drawn images, whose colour says what state a part is in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image
from programs import small

COLOURS = {"new": "lime", "worn": "blue", "torn": "red"}
SEEING = [
    "--model.engine=scripted",
    "--model.model_name_or_path=programs.models:seeing",
    "--fabric.accelerator=cpu",
]


def write(folder: Path, groups: int) -> Path:
    """A ticket file without summaries, and beside it an image for each in ``photos``, none like
    another one."""
    lines: list[dict[str, Any]] = []
    for number, row in enumerate(small.rows(groups=groups)):
        state = row.pop("per_image")["image_2"].split(": ")[1].split(";")[0]
        name = f"photos/{number}/{state}.png"
        (folder / name).parent.mkdir(parents=True)
        image = Image.new("RGB", (40, 30), COLOURS[state])
        image.putpixel((39, 29), (number % 256, 0, 0))
        image.save(folder / name)
        lines.append({**row, "images": [name], "taken by": "drone"})
    (folder / "tickets.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder / "tickets.jsonl"


def summarize(tickets: Path, output: Path, *options: str, world_size: int = 1) -> list[str]:
    """What follows ``stageb`` on the command line."""
    files = [f"--tickets={tickets}", f"--output={output}"]
    return ["summarize", *files, f"--fabric.devices={world_size}", *SEEING, *options]
