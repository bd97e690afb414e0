"""Whether views of training are like the images to be judged by: ``bin/bench views --config configs/two_channel/bccd.yaml``.

Told are, of the train file's views at the beginning, in the middle and at the end of a run, and of the val file's images as
they are: objects per image, the share of images with at least ``--many``, the spread of aspects (a standard deviation of
log2 of width / height), the share of boxes at an edge of the image (within ``EDGE`` of its side), and the median side of
a box, as a share of the image's. Images themselves are not opened.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence

from lab.bench.rows import Row, write
from lab.bench.two_channel import config_of
from stageb.config import require
from stageb.seeds import stream
from stageb.two_channel import inputs
from stageb.two_channel.augmentation import make_view, parse_name
from stageb.two_channel.config import AugmentationConfig
from stageb.two_channel.types import Box, Sample

EDGE = 1 / 400  # of a side


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bin/bench views", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="names data.train, data.val and augmentation")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key of the config")
    parser.add_argument("--many", type=int, default=12, help="objects from which on an image has many (default 12)")
    parser.add_argument("--views", type=int, default=20, help="of each image (default 20)")
    parser.add_argument("--json", metavar="FILE", help="write what was counted, as JSON")
    given = parser.parse_args(arguments)
    require(given.views >= 1, "--views", given.views, "at least 1")
    config = config_of(given.config, given.set)
    read = inputs.read(config)
    shown = {
        f"train, {when}": views_of(read.train, config.augmentation, done, given.views)
        for when, done in (("beginning", 0.0), ("middle", 0.5), ("end", 1.0))
    }
    parts = {**shown, **({"val": read.val} if read.val else {})}
    rows = [{"images": name, **figures(samples, given.many)} for name, samples in parts.items()]
    for row in rows:
        print(f"{row['images']:<16} " + ", ".join(f"{name} {row[name]:.3g}" for name in row if name != "images"))
    write(given.json, {"given": vars(given), "rows": rows})
    return 0


def views_of(samples: Sequence[Sample], views: AugmentationConfig, done: float, count: int) -> list[Sample]:
    """``count`` views of each of ``samples`` when the share ``done`` of a run lies behind."""
    return [
        make_view(sample, stream("views", number, sample.key), views, done, samples)
        for number in range(count)
        for sample in samples
    ]


def figures(samples: Sequence[Sample], many: int) -> Row:
    """What ``samples`` show."""
    boxes = [(each.box, sample) for sample in samples for each in sample.objects]
    return {
        "objects": statistics.fmean(len(sample.objects) for sample in samples),
        "many": statistics.fmean(len(sample.objects) >= many for sample in samples),
        "aspect spread": statistics.pstdev(math.log2((x2 - x1) / (y2 - y1)) for (x1, y1, x2, y2), _ in boxes),
        "at an edge": statistics.fmean(is_at_edge(box, sample) for box, sample in boxes),
        "side": statistics.median(
            math.sqrt((x2 - x1) * (y2 - y1) / sample.width / sample.height) for (x1, y1, x2, y2), sample in boxes
        ),
    }


def is_at_edge(box: Box, sample: Sample) -> bool:
    """Whether ``box`` reaches an edge of what ``sample`` shows of its image."""
    left, top, right, bottom = parse_name(sample.image)[1].pad or (0, 0, sample.width, sample.height)
    within = EDGE * sample.width, EDGE * sample.height
    return (
        box[0] - left <= within[0]
        or box[1] - top <= within[1]
        or right - box[2] <= within[0]
        or bottom - box[3] <= within[1]
    )
