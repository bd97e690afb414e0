"""240 drawn seals, red ones torn, and a stand-in for a model that sees nothing but their colour.

``python drawn_seals.py FOLDER`` draws them and writes FOLDER/tickets.jsonl; ``drawn_seals:look`` is
for the scripted engine.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from PIL import Image

from stageb import Decode, Prompt
from stageb.guidance.judging.follower import respond


def look(prompt: Prompt, decode: Decode, key: int) -> str:
    """A summary where one is asked for, else a verdict on what the images show."""
    seen = [f"image_{n}: seal: {_state(path)}" for n, path in enumerate(prompt.images, 1)]
    if prompt.system.startswith("You look at images"):
        return seen[0].removeprefix("image_1: ")
    return respond(replace(prompt, user="\n".join([prompt.user, *seen])), decode, key)


def _state(path: str) -> str:
    with Image.open(path) as image:
        return "torn" if image.convert("RGB").tobytes()[0] > 128 else "whole"


def draw(folder: Path) -> None:
    """Draw the seals and write their tickets."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "tickets.jsonl").open("w", encoding="utf-8") as lines:
        for n in range(240):
            seal = Image.new("RGB", (64, 48), "red" if n % 3 == 0 else "gray")
            seal.putpixel((n % 64, 1 + n // 64), (255, 255, 255))  # no two photos are equal
            seal.save(folder / f"{n}.png")
            label = "pass" if n % 3 else "fail"
            ticket = {
                "mission": "seals",
                "group_id": f"seal-{n}",
                "label": label,
                "images": [f"{n}.png"],
            }
            lines.write(json.dumps(ticket) + "\n")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
