"""``stageb boxes``: make data for detectors, by converting other annotation formats or by drawing
shapes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stageb.cli.parsing import WordParser
from stageb.errors import BadInputError, InputError, shown
from stageb.seeds import stream, uniform
from stageb.store import disk
from stageb.store.output import check_target
from stageb.two_channel.boxes import imports, sets
from stageb.two_channel.boxes.data import read
from stageb.two_channel.boxes.formats import YAML, read_label_studio, read_names, read_yolo
from stageb.two_channel.boxes.imports import ImportedData
from stageb.two_channel.boxes.sets import ImportedSet
from stageb.untrusted.pictures import encode_png, pillow
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
    most = MOST
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
    if not 1 <= given.most <= MOST:
        raise InputError(f"stageb boxes shapes: --most {given.most}: give 1 to {MOST}")
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
    return given.names is None and (
        given.source.suffix in YAML or (given.source / sets.DATA_YAML).is_file()
    )


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
    objects = sum(len(row["objects"]) for row in made.rows) - made.counts[imports.CROWD]
    aside = "".join(f"; {count} {why}" for why, count in sorted(made.counts.items()) if count)
    return f"{to}: {len(made.rows)} images, {objects} objects{aside}"


# Synthetic images for trying out a detector: coloured shapes on a noisy background, with their
# boxes.
#
# Every image is a function of (seed, split, number) alone. Objects overlap little, and are named by
# colour and shape: "red circle".

SIDES = (64, 96)  # of an image, in pixels, in multiples of ``STEP``
STEP = 32
MOST = 6  # objects of an image
SMALLEST, LARGEST = 12, 32  # side of an object, in pixels
OVERLAP = 0.1  # largest IoU of two objects
TRIES = 40  # to find a place for an object
FORMS = ("circle", "square", "triangle")
COLOURS = {"red": (214, 48, 49), "green": (46, 160, 67), "blue": (52, 101, 214)}
NOISE = 24  # levels by which colours vary

Edges = tuple[int, int, int, int]
Draw = Callable[[], float]  # the next uniform number of a stream


@dataclass(frozen=True)
class Drawing:
    """How images are drawn."""

    most: int = MOST  # objects of an image
    # of every image, in pixels, a multiple of ``STEP``; None: drawn within ``SIDES``
    side: int | None = None


MIXED = Drawing()


def write_shapes(folder: Path, split: str, count: int, seed: int, kind: Drawing = MIXED) -> Path:
    """Draw ``count`` images of ``split`` into ``folder``, and write their annotations. Returns the
    path of the annotations.

    Images are ``{split}/{number:05d}.png``, annotations ``{split}.jsonl``. Raises ``OSError``.
    """
    (folder / split).mkdir(parents=True, exist_ok=True)
    path = folder / f"{split}.jsonl"
    for each, data in _make_files(folder, split, count, seed, kind):
        if each == path:
            disk.replace(path, data)
        elif not disk.holds(each, data):
            disk.replace_unsynced(each, data)  # atomically: a reader never sees half an image
    return path


def check_free(folder: Path, split: str, count: int, seed: int, kind: Drawing = MIXED) -> None:
    """Raise ``InputError`` if ``write_shapes`` would replace a file of other content, or mix its
    images with others.

    Files that an equal call has written are accepted. Hidden files are ignored.
    """
    remedy = "move it, or name another folder"
    there = {each for each in (folder / split).glob("*") if not each.name.startswith(".")}
    if not there and not os.path.lexists(folder / f"{split}.jsonl"):
        return
    for each, data in _make_files(folder, split, count, seed, kind):
        if os.path.lexists(each) and not disk.holds(each, data):
            raise InputError(f"--to {each}: has other content; {remedy}")
        there.discard(each)
    if there:
        raise InputError(f"--to {min(there)}: is in the folder to draw images into; {remedy}")


def _make_files(
    folder: Path, split: str, count: int, seed: int, kind: Drawing
) -> Iterator[tuple[Path, bytes]]:
    """The files that ``write`` writes: each image and, last, the annotations."""
    rows = []
    for number in range(count):
        image, objects = draw_image(seed, split, number, kind)
        name = f"{split}/{number:05d}.png"
        yield folder / name, encode_png(image)
        named_boxes = [{"desc": desc, "bbox_2d": list(box)} for desc, box in objects]
        rows.append(
            {"images": [name], "width": image.width, "height": image.height, "objects": named_boxes}
        )
    yield folder / f"{split}.jsonl", disk.json_lines(rows)


def draw_image(
    seed: int, split: str, number: int, kind: Drawing = MIXED
) -> tuple[Any, list[tuple[str, Edges]]]:
    """One image, as a ``PIL.Image``, and its objects: name and box (x1, y1, x2, y2) in whole
    pixels."""
    draw = _make_draw(stream(seed, "shapes", split, number))
    low, high = (side // STEP for side in (SIDES if kind.side is None else (kind.side, kind.side)))
    width, height = (STEP * _draw_integer(draw, low, high) for _ in range(2))
    image = _draw_ground(draw, width, height)
    objects: list[tuple[str, Edges]] = []
    for _ in range(_draw_integer(draw, 1, kind.most)):
        form, colour = (
            names[_draw_integer(draw, 0, len(names) - 1)] for names in (FORMS, list(COLOURS))
        )
        place = _find_place(draw, (width, height), [box for _, box in objects])
        if place is not None:
            _paint(image, form, _vary_colour(draw, COLOURS[colour]), place)
            objects.append((f"{colour} {form}", place))
    return image, objects


def _find_place(draw: Draw, size: tuple[int, int], taken: list[Edges]) -> Edges | None:
    """The box of another object that overlaps few of ``taken``; None if none is found in
    ``TRIES``."""
    for _ in range(TRIES):
        side = _draw_integer(draw, SMALLEST, LARGEST)
        x, y = _draw_integer(draw, 0, size[0] - side), _draw_integer(draw, 0, size[1] - side)
        box = (x, y, x + side, y + side)
        if all(_compute_iou(box, other) <= OVERLAP for other in taken):
            return box
    return None


def _paint(image: Any, form: str, colour: tuple[int, int, int], box: Edges) -> None:
    """Draw a shape that touches all four edges of ``box``. Pillow's boxes include their last
    pixel."""
    from PIL import ImageDraw

    pen = ImageDraw.Draw(image)
    left, top, right, bottom = box[0], box[1], box[2] - 1, box[3] - 1
    if form == "circle":
        pen.ellipse((left, top, right, bottom), fill=colour)
    elif form == "square":
        pen.rectangle((left, top, right, bottom), fill=colour)
    else:
        pen.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill=colour)


def _draw_ground(draw: Draw, width: int, height: int) -> Any:
    """A grey background of coarse noise."""
    grey = _draw_integer(draw, 96, 200)
    cells = (width // 8, height // 8)
    levels = bytes(
        max(0, min(255, grey + _draw_integer(draw, -NOISE, NOISE)))
        for _ in range(cells[0] * cells[1])
    )
    image = pillow().frombytes("L", cells, levels)
    return image.resize((width, height), pillow().Resampling.NEAREST).convert("RGB")


def _vary_colour(draw: Draw, colour: tuple[int, int, int]) -> tuple[int, int, int]:
    red, green, blue = (
        max(0, min(255, level + _draw_integer(draw, -NOISE, NOISE))) for level in colour
    )
    return red, green, blue


def _compute_iou(one: Edges, other: Edges) -> float:
    wide = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    high = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = ((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return wide * high / (sum(areas) - wide * high)


def _make_draw(key: int) -> Draw:
    position = iter(range(1 << 30))
    return lambda: uniform(key, next(position))


def _draw_integer(draw: Draw, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``, both included."""
    return low + int(draw() * (high - low + 1))
