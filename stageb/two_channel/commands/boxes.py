"""``stageb boxes``: make data for detectors, by converting other annotation formats or by drawing shapes."""

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
from stageb.two_channel.boxes import imports, shapes
from stageb.two_channel.boxes.data import read
from stageb.two_channel.boxes.formats import read_label_studio, read_yolo
from stageb.two_channel.boxes.imports import ImportedData
from stageb.untrusted.strict_json import FaultError

ELSEWHERE = "another --to"
WRITES = "JSON Lines of images, width, height, objects (desc and bbox_2d)"


def main(words: Sequence[str]) -> int:
    """Run the command that the arguments after ``stageb boxes`` ask for. Returns the exit code. Raises ``InputError``."""
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

    def command(name: str, summary: str, read: Callable[[Any], ImportedData] | None) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(run=_convert if read else draw_shapes, read=read)
        return added

    summary = "Convert a Pascal VOC folder: Annotations/*.xml and JPEGImages."
    voc = command("voc", summary, lambda given: imports.read_voc(given.folder, given.split))
    voc.add_argument("folder", type=Path, metavar="FOLDER", help="the folder that holds both")
    voc.add_argument("--split", metavar="NAME", help="annotations that ImageSets/Main/NAME.txt lists (default: all)")
    summary = "Convert a COCO JSON file."
    coco = command("coco", summary, lambda given: imports.read_coco(given.file, given.images, given.polygons))
    coco.add_argument("file", type=Path, metavar="FILE", help="such as annotations/instances_val2017.json")
    coco.add_argument("--images", type=Path, required=True, metavar="FOLDER", help="the folder of its images")
    summary = "Convert a folder of YOLO text files."
    yolo = command("yolo", summary, lambda given: read_yolo(given.folder, given.images, given.names, given.polygons))
    yolo.add_argument("folder", type=Path, metavar="LABELS", help="the folder of the text files")
    yolo.add_argument(
        "--names", type=Path, required=True, metavar="FILE", help="classes.txt, one name per line, or data.yaml"
    )
    summary = "Convert a JSON export of Label Studio."
    studio = command("label_studio", summary, lambda given: read_label_studio(given.file, given.images, given.polygons))
    studio.add_argument("file", type=Path, metavar="FILE", help="the export, in the format JSON")
    for each in (yolo, studio):
        each.add_argument("--images", type=Path, required=True, metavar="FOLDER", help="the folder of its images")
    for each in (coco, yolo, studio):
        each.add_argument(
            "--polygons", action="store_true", help="replace polygons and rotated boxes by the boxes around them"
        )
    for each in (voc, coco, yolo, studio):
        each.add_argument("--to", type=Path, required=True, metavar="FILE", help=f"the file to write: {WRITES}")
    drawn = command("shapes", "Draw circles, squares and triangles in three colours.", None)
    drawn.add_argument(
        "--to", type=Path, required=True, metavar="FOLDER", help="the folder to write SPLIT.jsonl and images to"
    )
    for split, count in (("train", 2000), ("val", 200), ("test", 200)):
        drawn.add_argument(f"--{split}", type=int, default=count, metavar="N", help=f"images of {split} (default {count})")
    most = shapes.MOST
    drawn.add_argument("--most", type=int, default=most, metavar="N", help=f"most objects per image (default {most})")
    drawn.add_argument(
        "--side", type=int, choices=shapes.SIDES, help="width and height of every image, in pixels (default: drawn)"
    )
    drawn.add_argument("--seed", type=int, default=17, help="seed of the images (default 17)")
    return made


def draw_shapes(given: Any) -> int:
    """Draw images of shapes, and write them with their annotations. Raises ``InputError``."""
    if not 1 <= given.most <= shapes.MOST:
        raise InputError(f"stageb boxes shapes: --most {given.most}: give 1 to {shapes.MOST}")
    kind = shapes.Drawing(given.most, given.side)
    counts = {split: getattr(given, split) for split in ("train", "val", "test")}
    for split, count in counts.items():
        if not 0 <= count <= 100_000:
            raise InputError(f"stageb boxes shapes: --{split} {count}: give 0 to 100000")
    disk.check_place(given.to, ELSEWHERE)
    wanted = {split: count for split, count in counts.items() if count}
    with disk.reporting(given.to):
        for split, count in wanted.items():
            shapes.check_free(given.to, split, count, given.seed, kind)
        for split, count in wanted.items():
            print(f"{shapes.write(given.to, split, count, given.seed, kind)}: {count} images")
    return 0


def _check_to(given: Any) -> None:
    """Raise ``InputError`` if rows cannot be written to ``given.to``."""
    to = given.to
    if to.is_dir() or to.suffix != ".jsonl":
        raise InputError(f"--to {to}: name a file that ends in .jsonl")
    disk.check_place(to.parent, ELSEWHERE)
    check_target(to, {"labels": [str(each) for name in ("file", "names") if (each := getattr(given, name, None))]})


def _convert(given: Any) -> int:
    """Write the converted rows to ``given.to``, read them back as a fit would, and print a summary."""
    _check_to(given)
    to, made, images = given.to, given.read(given), getattr(given, "images", None) or given.folder
    data = disk.json_lines(made.rows)

    def write(beside: Path) -> None:
        beside.write_bytes(data)
        try:
            read([beside], images)
        except BadInputError as error:  # it names lines of a file that is not kept: report the annotations instead
            for bad in error.bad:
                made.fault(FaultError(bad.what, bad.remedy), made.places[bad.line - 1] if bad.line else "")
            made.checked()

    if not disk.holds(to, data):  # it does if the command is repeated
        if os.path.lexists(to):
            raise InputError(f"--to {to}: has other content; move it, or name another file")
        with disk.reporting(to):
            disk.place(to, write)
    objects = sum(len(row["objects"]) for row in made.rows) - made.counts[imports.CROWD]
    aside = "".join(f"; {count} {why}" for why, count in sorted(made.counts.items()) if count)
    said = [shown(f"{to}: {len(made.rows)} images, {objects} objects{aside}")]
    if images.resolve() != to.parent.resolve():
        said.append(shown(f"its images are in {images}: use it with --data.images {images}"))
    print("\n".join(said))
    return 0
