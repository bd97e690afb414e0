"""Every image in its eight views, flips and quarter turns, with the boxes turned alike.

More to learn from, where a picture may lie any way round, as under a microscope.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stageb import disk
from stageb.pictures import as_png, opened, pillow, read
from stageb.two_channel.types import Box, Sample

Turn = Callable[[float, float, float, float], tuple[float, float]]  # (x, y, width, height) to where that point comes to lie

# By Pillow's name of it; quarter turns are counterclockwise.
TURNS: dict[str, Turn] = {
    "": lambda x, y, w, h: (x, y),
    "FLIP_LEFT_RIGHT": lambda x, y, w, h: (w - x, y),
    "FLIP_TOP_BOTTOM": lambda x, y, w, h: (x, h - y),
    "ROTATE_180": lambda x, y, w, h: (w - x, h - y),
    "TRANSPOSE": lambda x, y, w, h: (y, x),
    "TRANSVERSE": lambda x, y, w, h: (h - y, w - x),
    "ROTATE_90": lambda x, y, w, h: (y, w - x),
    "ROTATE_270": lambda x, y, w, h: (h - y, x),
}


def write(samples: Sequence[Sample], folder: Path, name: str) -> Path:
    """Write eight views of each sample as ``{name}/{number}-{view}.png``, and ``{name}.jsonl`` that names them; its path."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    rows = []
    for number, sample in enumerate(samples):
        image = opened(sample.image, read(sample.image), pixels=1 << 26)
        for view, (turn, moved) in enumerate(TURNS.items()):
            turned = image.transpose(pillow().Transpose[turn]) if turn else image
            file = f"{name}/{number:05d}-{view}.png"
            (folder / file).write_bytes(as_png(turned))
            boxes = [(each.desc, _moved(each.box, moved, image.size)) for each in sample.objects]
            told = [{"desc": desc, "bbox_2d": list(box)} for desc, box in boxes]
            rows.append({"images": [file], "width": turned.width, "height": turned.height, "objects": told})
    path = folder / f"{name}.jsonl"
    disk.replace(path, disk.json_lines(rows))
    return path


def _moved(box: Box, moved: Turn, size: tuple[int, int]) -> Box:
    (x1, y1), (x2, y2) = moved(box[0], box[1], *size), moved(box[2], box[3], *size)
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
