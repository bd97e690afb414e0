"""``stageb boxes``: make data for detectors, by converting other annotation formats or by drawing
shapes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stageb.cli.parsing import WordParser
from stageb.errors import BadInputError, InputError, shown
from stageb.store import disk
from stageb.store.output import check_target
from stageb.two_channel.boxes import imports, sets
from stageb.two_channel.boxes.data import read
from stageb.two_channel.boxes.formats import read_label_studio, read_names, read_yolo
from stageb.two_channel.boxes.imports import ImportedData
from stageb.two_channel.boxes.sets import ImportedSet
from stageb.two_channel.boxes.shapes import MOST_OBJECTS, SIDES, Drawing, check_free, write_shapes
from stageb.untrusted.strict_json import FaultError

ELSEWHERE = "another --to"
Reader = Callable[[Any], ImportedSet]  # of the options
Asker = Callable[[Any], bool]
WRITES = "JSON Lines of images, width, height, objects (desc and bbox_2d)"


def main(words: Sequence[str]) -> int:
    """Run the command that the arguments after ``stageb boxes`` ask for. Returns the exit code.
    Raises ``InputError``."""
    given = make_parser().parse_args(words)
    code: int = given.run(given)
    return code


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    made = WordParser(
        prog="stageb boxes",
        description="Make data for detectors.",
        epilog="For the options of a command: stageb boxes COMMAND --help.",
    )
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(
        name: str, summary: str, read: Reader | None, is_set: Asker | None = None
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(
            name, help=summary, description=summary, epilog=splits if is_set else None
        )
        added.set_defaults(
            run=_convert if read else draw_shapes, read=read, is_set=is_set or (lambda given: False)
        )
        return added

    splits = (
        f"Of several splits, --to is a folder, for "
        f"{', '.join(f'{split}.jsonl' for split in sets.SPLITS)}."
    )
    voc = command(
        "voc", "Convert a Pascal VOC folder: Annotations/*.xml and JPEGImages.", _read_voc
    )
    voc.add_argument("source", type=Path, metavar="FOLDER", help="the folder that holds both")
    voc.add_argument(
        "--split",
        metavar="NAME",
        help="annotations that ImageSets/Main/NAME.txt lists (default: all)",
    )
    coco = command(
        "coco", "Convert a COCO JSON file, or a folder of several splits.", _read_coco, _is_coco_set
    )
    said = f"such as annotations/instances_val2017.json; or a folder that holds {sets.LAYOUT}"
    coco.add_argument("source", type=Path, metavar="FILE", help=said)
    coco.add_argument(
        "--images", type=Path, metavar="FOLDER", help="the folder of the images of one file"
    )
    summary = "Convert a folder of YOLO text files, or the splits that a data.yaml names."
    yolo = command("yolo", summary, _read_yolo, _is_yolo_set)
    yolo.add_argument(
        "source", type=Path, metavar="LABELS", help="the folder of the text files; or data.yaml"
    )
    said = (
        "the folder of the images; of a data.yaml: the folder that its paths are relative to "
        "(default: its path)"
    )
    yolo.add_argument("--images", type=Path, metavar="FOLDER", help=said)
    said = "of text files: classes.txt, one name per line, or data.yaml"
    yolo.add_argument("--names", type=Path, metavar="FILE", help=said)
    studio = command("label_studio", "Convert a JSON export of Label Studio.", _read_label_studio)
    studio.add_argument("source", type=Path, metavar="FILE", help="the export, in the format JSON")
    studio.add_argument(
        "--images", type=Path, required=True, metavar="FOLDER", help="the folder of its images"
    )
    for each in (coco, yolo, studio):
        each.add_argument(
            "--polygons",
            action="store_true",
            help="replace polygons and rotated boxes by the boxes around them",
        )
    for each in (voc, coco, yolo, studio):
        each.add_argument(
            "--to", type=Path, required=True, metavar="FILE", help=f"the file to write: {WRITES}"
        )
    drawn = command("shapes", "Draw circles, squares and triangles in three colours.", None)
    drawn.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the folder to write SPLIT.jsonl and images to",
    )
    for split, count in (("train", 2000), ("val", 200), ("test", 200)):
        drawn.add_argument(
            f"--{split}",
            type=int,
            default=count,
            metavar="N",
            help=f"images of {split} (default {count})",
        )
    most = MOST_OBJECTS
    drawn.add_argument(
        "--most",
        type=int,
        default=most,
        metavar="N",
        help=f"most objects per image (default {most})",
    )
    drawn.add_argument(
        "--side",
        type=int,
        choices=SIDES,
        help="width and height of every image, in pixels (default: drawn)",
    )
    drawn.add_argument("--seed", type=int, default=17, help="seed of the images (default 17)")
    return made


def draw_shapes(given: Any) -> int:
    """Draw images of shapes, and write them with their annotations. Raises ``InputError``."""
    if not 1 <= given.most <= MOST_OBJECTS:
        raise InputError(f"stageb boxes shapes: --most {given.most}: give 1 to {MOST_OBJECTS}")
    kind = Drawing(given.most, given.side)
    counts = {split: getattr(given, split) for split in ("train", "val", "test")}
    for split, count in counts.items():
        if not 0 <= count <= 100_000:
            raise InputError(f"stageb boxes shapes: --{split} {count}: give 0 to 100000")
    disk.check_place(given.to, ELSEWHERE)
    wanted = {split: count for split, count in counts.items() if count}
    with disk.reporting(given.to):
        for split, count in wanted.items():
            check_free(given.to, split, count, given.seed, kind)
        for split, count in wanted.items():
            print(f"{write_shapes(given.to, split, count, given.seed, kind)}: {count} images")
    return 0


def _read_voc(given: Any) -> ImportedSet:
    return ImportedSet(given.source, {"": imports.read_voc(given.source, given.split)})


def _read_coco(given: Any) -> ImportedSet:
    if not given.is_set(given):
        _require(given, "images")
        return ImportedSet(
            given.images, {"": imports.read_coco(given.source, given.images, given.polygons)}
        )
    if given.images:
        raise InputError(
            f"--images {given.images}: leave it out, since {given.source} is a folder that "
            f"holds its images"
        )
    return sets.read_coco_set(given.source, given.polygons)


def _read_yolo(given: Any) -> ImportedSet:
    if given.is_set(given):
        return sets.read_yolo_set(given.source, given.images, given.polygons)
    _require(given, "images", "names")
    known = read_names(given.names)
    return ImportedSet(
        given.images, {"": read_yolo(given.source, given.images, known, given.polygons)}
    )


def _read_label_studio(given: Any) -> ImportedSet:
    return ImportedSet(
        given.images, {"": read_label_studio(given.source, given.images, given.polygons)}
    )


def _require(given: Any, *options: str) -> None:
    """Raise ``InputError`` if options that one split needs are missing."""
    if missing := [f"--{name}" for name in options if getattr(given, name) is None]:
        raise InputError(
            f"{given.source}: one split needs {' and '.join(missing)}, and --to a file that "
            f"ends in .jsonl"
        )


def _is_coco_set(given: Any) -> bool:
    """Whether a folder of splits is named, where one split is a file."""
    return bool(given.source.is_dir())


def _is_yolo_set(given: Any) -> bool:
    """Whether a data.yaml is named, by itself or by its folder."""
    return given.names is None and sets.is_yolo_set(given.source)


def _check_to(given: Any) -> None:
    """Raise ``InputError`` if rows cannot be written to ``given.to``."""
    to, is_set = given.to, given.is_set(given)
    if is_set and (to.suffix == ".jsonl" or to.is_file()):
        raise InputError(f"--to {to}: name a folder, for a file of each split")
    if not is_set and (to.is_dir() or to.suffix != ".jsonl"):
        raise InputError(f"--to {to}: name a file that ends in .jsonl")
    disk.check_place(to if is_set else to.parent, ELSEWHERE)
    read = [str(each) for each in (given.source, getattr(given, "names", None)) if each]
    for each in [to / f"{split}.jsonl" for split in sets.SPLITS] if is_set else [to]:
        check_target(each, {"labels": read})


def _convert(given: Any) -> int:
    """Write the converted rows to ``given.to``, or a file for each split in there, and print a
    summary."""
    _check_to(given)
    found: ImportedSet = given.read(given)
    places = {split: given.to / f"{split}.jsonl" if split else given.to for split in found.splits}
    said = [_write_rows(places[split], made, found.images) for split, made in found.splits.items()]
    keys = "".join(f"--data.{split} {place} " for split, place in places.items() if split)
    if found.images.resolve() != next(iter(places.values())).parent.resolve():
        said.append(
            f"its images are in {found.images}: use it with {keys}--data.images {found.images}"
        )
        if not keys and (split := sets.name_split(given.to.stem)):
            said[-1] += (
                f", or --data.{split}_images {found.images} if other splits have theirs elsewhere"
            )
    elif keys:
        said.append(f"use it with {keys.rstrip()}")
    print("\n".join(map(shown, said)))
    return 0


def _write_rows(to: Path, made: ImportedData, images: Path) -> str:
    """Write the converted rows to ``to``, read them back as a fit would, and say what they hold."""
    data = disk.json_lines(made.rows)

    def write(beside: Path) -> None:
        beside.write_bytes(data)
        try:
            read([beside], images)
        # it names lines of a file that is not kept: report the annotations instead
        except BadInputError as error:
            for bad in error.bad:
                made.fault(
                    FaultError(bad.what, bad.remedy), made.places[bad.line - 1] if bad.line else ""
                )
            made.checked()

    if not disk.holds(to, data):  # it does if the command is repeated
        if os.path.lexists(to):
            raise InputError(f"--to {to}: has other content; move it, or name another file")
        disk.write(to, write)
    aside = "".join(f"; {count} {why}" for why, count in sorted(made.counts.items()) if count)
    return f"{to}: {len(made.rows)} images, {made.count_objects()} objects{aside}"
