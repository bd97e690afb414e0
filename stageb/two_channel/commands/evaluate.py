"""``stageb evaluate RUN``: how well a run's detector finds the objects of images that it was not
trained on, as figures and as pictures."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from stageb.config import FabricConfig, require
from stageb.errors import InputError, shown
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.settings import READ
from stageb.store import trust
from stageb.store.output import check_target
from stageb.training.run import add_placement
from stageb.two_channel.boxes import data, metrics, predictions
from stageb.two_channel.boxes.drawing import draw_all
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning.detect import detect_on_ranks
from stageb.two_channel.learning.rollout import Writer, replace_views
from stageb.two_channel.model import model
from stageb.two_channel.model.stored import find_metadata, find_model
from stageb.two_channel.types import Sample


def main(folder: Path, config: TwoChannelConfig, arguments: Sequence[str]) -> int:
    """Evaluate the detector of a run on images that it was not trained on."""
    parser = argparse.ArgumentParser(prog="stageb evaluate RUN", description=main.__doc__)
    parser.add_argument("--data", help="JSON Lines of images, such as the run's data.test")
    parser.add_argument("--images", help="folder of the images (default: the folder of --data)")
    parser.add_argument(
        "--pictures", type=int, default=8, help="images to draw with their boxes (default 8)"
    )
    parser.add_argument("--to", help="PNG file for these drawings (default: RUN/boxes.png)")
    parser.add_argument("--told", help="JSON Lines file to write the predictions to")
    parser.add_argument(
        "--views",
        type=int,
        help="views of each image to fuse (default: the run's evaluation.views)",
    )
    parser.add_argument(
        "--last",
        action="store_true",
        help="use the last checkpoint, not the one that was best on val",
    )
    add_placement(parser, "images")
    given = parser.parse_args(arguments)
    # the folder may be somebody else's: it must not choose which files are read and drawn
    if not given.data:
        images = config.data.images_of("test")
        options = [
            ("data.test", READ, "--data", config.data.test),
            ("data.images", READ, "--images", images),
        ]
        trust.refuse(folder, [each for each in options if each[-1]])
    require(
        bool(given.data),
        "--data",
        given.data,
        "name a JSON Lines file of images; the run's config names none",
    )
    require(given.devices >= 1, "--devices", given.devices, "at least 1")
    require(given.pictures >= 0, "--pictures", given.pictures, "0 or more")
    samples = read_samples(given.data, given.images, config)
    require(bool(samples), "--data", given.data, "a file with images; this one has none")
    for target in filter(None, (given.told, given.to)):
        check_target(Path(target), {"images' rows": [given.data]})
    alike = (
        given.told
        and given.pictures
        and Path(given.told).resolve() == Path(given.to or folder / "boxes.png").resolve()
    )
    require(not alike, "--told", given.told, "a file other than that of the pictures")
    place, steps = find_model(folder, given.last)
    config, metadata = replace_views(config, find_metadata(folder), given.views)
    fabric = FabricConfig(
        accelerator=given.accelerator, devices=given.devices, precision=config.fabric.precision
    )

    def on_ranks(world: World) -> int:
        writer = Writer(
            model.load(str(place), config, metadata.categories, world.device, answers=True)
        )
        detections = detect_on_ranks(world, writer, samples, config)
        if world.is_global_zero:
            print(f"{folder}, after {steps:,} steps")
            print("\n".join(format_table(samples, detections, metadata.threshold)))
            if given.told:
                predictions.write(samples, detections, Path(given.told))
            if given.pictures:
                path = Path(given.to or folder / "boxes.png")
                draw_all(samples[: given.pictures], detections, config.channel_b.min_iou, path)
                print(f"pictures {path}: left the truth, right the predictions; errors in red")
        return 0

    return worlds.run(fabric, on_ranks)


def read_samples(file: str, folder: str | None, config: TwoChannelConfig) -> list[Sample]:
    """The images that ``file`` lists, in ``folder``, or beside it. Raises ``InputError``; of images
    that are not there, with the folder that the run had."""
    try:
        return data.read([file], folder, config.data.polygons)
    except InputError as error:
        images = config.data.images_of("test")
        if folder or not images:
            raise
        remedy = f"--images {shlex.quote(shown(images, 200))}"
        raise InputError(
            f"{error}\nThe run had its images in a folder of their own; for that, add: {remedy}"
        ) from None


def format_table(
    samples: Sequence[Sample], detections: Sequence[Detections], threshold: float | None
) -> list[str]:
    """The figures of ``detections`` in ``samples``, as lines of text; ``threshold`` is the score
    chosen on val, if any."""
    figures = metrics.compute_figures(samples, detections)
    both = f"precision {figures['precision_50']:.3f}, recall {figures['recall_50']:.3f}"
    each = [
        f"{name.removeprefix('AP50/')} {value:.3f}"
        for name, value in figures.items()
        if name.startswith("AP50/")
    ]
    recalls = [f"{figures[f'AR{most}']:.3f} with {most}" for most in metrics.MOST_OBJECTS]
    return [
        f"images   {len(samples):,}, greedy decoding",
        f"mAP      {figures['mAP']:.3f} (COCO), at IoU .50 {figures['mAP50']:.3f}, at .75 "
        f"{figures['mAP75']:.3f}",
        f"at .50   {', '.join(each)}",
        f"by size  mAP {_format_by_size(figures, 'mAP')}; AR {_format_by_size(figures, 'AR')}",
        f"AR       {', '.join(recalls)} objects per image at most",
        f"F1       {figures['f1_50']:.3f} at IoU .50 ({both}), mean over IoUs "
        f"{figures['miou_f1']:.3f}",
        *([] if threshold is None else [_format_kept(samples, detections, threshold)]),
        f"objects  {figures['predicted_per_true']:.2f} predicted per true one, "
        f"{figures['duplicates']:.0f} pairs of duplicates",
        "scores   the probability of an object's words times the geometric mean of those of its "
        "four coordinates",
    ]


def _format_kept(
    samples: Sequence[Sample], detections: Sequence[Detections], threshold: float
) -> str:
    """F1 of the objects with scores of at least ``threshold``, as a line of text."""
    scored = [zip(each.objects, each.scores, strict=True) for each in detections]
    kept = [[one for one, score in each if score >= threshold] for each in scored]
    found = metrics.measure_f1(samples, kept)
    of = f"precision {found['precision_50']:.3f}, recall {found['recall_50']:.3f}"
    return (
        f"         {found['f1_50']:.3f} with scores of at least {threshold:.4g}, chosen on "
        f"val ({of})"
    )


def _format_by_size(found: Mapping[str, float], name: str) -> str:
    sizes = [(size, found[f"{name}_{size}"]) for size in metrics.SIZES if f"{name}_{size}" in found]
    return ", ".join(f"{size} {value:.3f}" for size, value in sizes) or "none"
