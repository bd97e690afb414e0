"""``stageb predict RUN``: detect objects in the pictures of a folder, round by round, such that an
interrupted call resumes.

Pictures go through the model in groups that depend only on their order, and groups are distributed
over ranks, so every world size writes the same bytes. Rank 0 commits the rows of a round before the
next begins (``store/output.py``). At the end it writes exports for other programs
(``predictions.py``); a later call with another threshold writes them again from the same rows.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from stageb.cli.parsing import WordParser
from stageb.config import FabricConfig, require
from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.job import lifetime
from stageb.job import world as worlds
from stageb.job.world import Json, World
from stageb.runs.progress import ItemProgress
from stageb.store import disk
from stageb.store.output import Output, check_file, read_rows, set_aside
from stageb.two_channel.boxes import predictions
from stageb.two_channel.boxes.data import LEAVE_OUT, PictureFile, compute_digest, find_pictures
from stageb.two_channel.boxes.metrics import Detections
from stageb.two_channel.boxes.predictions import FORMATS, BoxSelection, ExportFolder
from stageb.two_channel.boxes.text import to_pixels
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning import rollout
from stageb.two_channel.learning.evaluate import answer_images
from stageb.two_channel.learning.rollout import Writer
from stageb.two_channel.model import model
from stageb.two_channel.model.stored import ModelMetadata, find_metadata, find_model
from stageb.two_channel.types import Box, Sample
from stageb.untrusted.clean_text import text_fault
from stageb.untrusted.pictures import PictureError, examine

ROWS = "predictions.jsonl"
# the path at which Label Studio serves files of its own machine
LOCAL_FILES = "/data/local-files/?d="
TOLD = 5  # most files that a summary line names


def main(folder: Path, config: TwoChannelConfig, arguments: Sequence[str]) -> int:
    """The command. Raises ``InputError``, before the model sees any picture, if an input cannot be
    used."""
    given = make_parser().parse_args(arguments)
    require(given.devices >= 1, "--devices", given.devices, "at least 1")
    require(given.batch >= 1, "--batch", given.batch, "at least 1")
    require(
        given.threshold is None or 0 <= given.threshold <= 1,
        "--threshold",
        given.threshold,
        "from 0 to 1",
    )
    for each in given.formats:
        require(each in FORMATS, "--formats", each, f"some of {','.join(FORMATS)}")
    place, steps = find_model(folder, given.last)
    config, metadata = rollout.replace_views(config, find_metadata(folder), given.views)
    selection = BoxSelection(
        _find_categories(folder, metadata, given.categories),
        metadata.threshold or 0.0 if given.threshold is None else given.threshold,
        given.image_url,
        f"{folder.name}, after {steps} steps",
    )
    pictures = find_pictures(given.images, given.skip_broken)
    if "yolo" in given.formats:
        predictions.check_names([each.name for each in pictures])
    check_file(given.to / ROWS, {}, given.fresh)
    fabric = FabricConfig(
        accelerator=given.accelerator, devices=given.devices, precision=config.fabric.precision
    )

    def on_ranks(world: World) -> int:
        world.agree("the pictures", compute_digest(pictures))
        answering = Answerer(config, place, metadata, world.device)
        with closing(RowWriter(given, pictures)) as rows:
            done = world.lead(rows.begin, lambda: {**answering.fingerprint, "batch": given.batch})
            if done < len(pictures):
                world.lead(warn_of_nothing, folder, metadata)
            while done < len(pictures):
                part = pictures[done : done + given.batch * world.world_size]
                groups = [
                    part[start : start + given.batch] for start in range(0, len(part), given.batch)
                ]
                done = world.lead(rows.commit, world.map("group", answering.answer, groups))
            world.lead(write_exports, given, selection, metadata)
            world.lead(warn_of_nothing, folder, metadata)  # again: the first may be hours ago
        return 0

    return worlds.run(fabric, on_ranks)


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command's arguments."""
    made = WordParser(
        prog="stageb predict RUN",
        description="Detect objects in the pictures of a folder with a run's detector.",
    )
    made.add_argument(
        "--images",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder of the pictures, with its subfolders",
    )
    made.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder to write to; an interrupted call resumes there",
    )
    made.add_argument(
        "--threshold",
        type=float,
        help="smallest score of a box (default: as chosen on val with as many views, or 0)",
    )
    made.add_argument(
        "--formats",
        type=_split_names,
        default=tuple(FORMATS),
        help=f"exports besides {ROWS} (default {','.join(FORMATS)})",
    )
    made.add_argument(
        "--categories",
        type=_split_names,
        metavar="A,B",
        help="in the order of their ids (default: all of the run)",
    )
    made.add_argument(
        "--image-url",
        default=LOCAL_FILES,
        metavar="URL",
        help=f"URL prefix for Label Studio (default {LOCAL_FILES})",
    )
    made.add_argument(
        "--skip-broken", action="store_true", help="leave out pictures that cannot be used"
    )
    made.add_argument(
        "--views",
        type=int,
        help="views of each picture to fuse (default: the run's evaluation.views)",
    )
    made.add_argument(
        "--last",
        action="store_true",
        help="use the last checkpoint, not the one that was best on val",
    )
    made.add_argument("--batch", type=int, default=16, help="pictures per batch (default 16)")
    made.add_argument(
        "--fresh", action="store_true", help="start over; the rows of an earlier call are renamed"
    )
    made.add_argument("--accelerator", default="auto", help="cpu, cuda or auto (default auto)")
    made.add_argument(
        "--devices", type=int, default=1, help="devices that share the pictures (default 1)"
    )
    return made


class Answerer:
    """A rank's model, which answers its share of the pictures."""

    def __init__(
        self, config: TwoChannelConfig, place: Path, metadata: ModelMetadata, device: str
    ) -> None:
        """``place`` is the folder of the checkpoint."""
        self._config, self._place = config, place
        self._writer = Writer(
            model.load(str(place), config, metadata.categories, device, answers=True)
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All that rows depend on besides the pictures."""
        weights = hashlib.blake2b(digest_size=16)
        for path in sorted(self._place.glob("*.safetensors")):
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    weights.update(block)
        return {
            "weights": weights.hexdigest(),
            "dtype": str(self._writer.detector.model.dtype),
            "prompt": self._writer.detector.words,
            "image_pixels": self._config.model.image_pixels,
            "max_new_tokens": self._config.channel_b.max_new_tokens,
            "views": self._config.evaluation.views,
        }

    def answer(self, group: Sequence[PictureFile]) -> Json:
        """A row for each picture of a group; the row of a broken picture has its error."""
        errors = {each.name: each.fault for each in group if each.sample is None}
        samples = [each.sample for each in group if each.sample]
        try:
            detections = self._answer(samples)
        except PictureError:
            broken = {sample.key: fault for sample in samples if (fault := find_fault(sample))}
            if not broken:
                raise
            errors |= broken
            samples = [sample for sample in samples if sample.key not in broken]
            detections = self._answer(samples)
        rows = {
            sample.key: make_row(sample, each)
            for sample, each in zip(samples, detections, strict=True)
        }
        rows |= {name: {"images": [name], "error": what} for name, what in errors.items()}
        return [rows[each.name] for each in group]

    def _answer(self, samples: Sequence[Sample]) -> list[Detections]:
        return answer_images(self._writer, samples, self._config) if samples else []


class RowWriter:
    """Writes the rows of all pictures, on rank 0."""

    def __init__(self, given: argparse.Namespace, pictures: Sequence[PictureFile]) -> None:
        self._path, self._fresh, self._skips = given.to / ROWS, given.fresh, given.skip_broken
        self._images, self._pictures = given.images, pictures
        self._output: Output | None = None
        self._progress: ItemProgress | None = None

    def close(self) -> None:
        """Release the output and the progress display."""
        for held in (self._progress, self._output):
            if held:
                held.close()

    def begin(self, fingerprint: Callable[[], Mapping[str, Any]]) -> int:
        """Resume from the last commit. Returns how many pictures are done. Raises ``InputError`` if
        these pictures have changed."""
        if self._fresh:
            set_aside(self._path)
        self._output = Output(self._path, fingerprint(), {"pictures": compute_digest([])})
        done = self._output.done
        if self._output.state["pictures"] != compute_digest(self._pictures[:done]):
            what = (
                f"{self._path}: the first {done} pictures by name, which it is about, have changed"
            )
            raise InputError(
                f"{what}; give --fresh to set it aside and start over, or another --to"
            )
        if done < len(self._pictures):
            if done:
                lifetime.set_resume()
            self._progress = ItemProgress(str(self._path), "pictures", len(self._pictures), done)
        return done

    def commit(self, groups: Sequence[Sequence[Mapping[str, Any]]]) -> int:
        """Commit the rows of a round. Returns how many pictures are done. Raises ``BadInputError``
        if pictures are broken and ``--skip-broken`` was not given."""
        assert self._output
        rows = [row for group in groups for row in group]
        bad = [
            BadLine(str(self._images / row["images"][0]), 0, row["error"], LEAVE_OUT)
            for row in rows
            if "error" in row
        ]
        if bad and not self._skips:
            raise BadInputError("pictures", bad)
        done = self._output.done + len(rows)
        state = {"pictures": compute_digest(self._pictures[:done])}
        self._output.add(rows, len(rows), state, finished=done == len(self._pictures))
        lifetime.set_resume()
        if self._progress:
            self._progress.advance(len(rows))
        return done


def make_row(sample: Sample, detections: Detections) -> dict[str, Any]:
    """The row of ``detections`` in a picture, in its pixels, without boxes of no area; of equal
    boxes the higher score counts."""
    boxes: dict[tuple[str, Box], float] = {}
    for each, score in zip(
        to_pixels(detections.objects, sample.width, sample.height), detections.scores, strict=True
    ):
        x1, y1, x2, y2 = (round(at, 2) for at in each.box)
        if x1 < x2 and y1 < y2:
            key = each.desc, (x1, y1, x2, y2)
            boxes[key] = max(score, boxes.get(key, 0.0))
    objects = [
        {"desc": desc, "bbox_2d": box, "score": float(f"{score:.6g}")}
        for (desc, box), score in boxes.items()
    ]
    return {
        "images": [sample.key],
        "width": sample.width,
        "height": sample.height,
        "objects": objects,
    }


def warn_of_nothing(folder: Path, metadata: ModelMetadata) -> None:
    """Say it if the detector of the run in ``folder`` found nothing where it was measured."""
    if metadata.f1 == 0:
        why = "this detector found nothing where it was measured (F1 0): its boxes mean nothing"
        print(f"{shown(str(folder))}: {why}; its README.md says what may help", file=sys.stderr)


def find_fault(sample: Sample) -> str:
    """Why a picture cannot be opened; empty if it can."""
    try:
        examine(sample.image)
    except PictureError as error:
        return error.what
    return ""


def write_exports(
    given: argparse.Namespace, selection: BoxSelection, metadata: ModelMetadata
) -> None:
    """Write the exports for other programs, and print a summary."""
    path = given.to / ROWS
    rows = list(read_rows(path))
    into = ExportFolder(given.to)
    with disk.reporting(given.to):
        for each in given.formats:
            FORMATS[each](rows, selection, into)
        into.note()
    broken = [row["images"][0] for row in rows if "error" in row]
    boxes = [each for row in rows for each in row.get("objects", ())]
    strange = sorted({each["desc"] for each in boxes} - {*selection.categories})
    kept = sum(len(list(selection.kept(row))) for row in rows)
    chosen = "chosen on val" if metadata.threshold is not None else "none was chosen on val"
    by = chosen if given.threshold is None else "as given"
    print(shown(f"{path}: {len(rows) - len(broken):,} pictures, {len(boxes):,} boxes with scores"))
    if given.formats:
        of = f"{kept:,} of them, with a score of at least {selection.threshold:.4g} ({by})"
        print(shown(f"{', '.join(f'{given.to}/{each}' for each in given.formats)}: {of}"))
    if into.aside:
        more = f" and {len(into.aside) - TOLD} more" if len(into.aside) > TOLD else ""
        print(
            shown(
                f"renamed to NAME.1, since they were changed: {', '.join(into.aside[:TOLD])}{more}"
            )
        )
    if strange:
        print(
            shown(
                f"left out there: boxes with names that are not among the categories, such as "
                f"{strange[0]!r}",
                200,
            )
        )
    if broken:
        more = f" and {len(broken) - TOLD} more" if len(broken) > TOLD else ""
        print(
            shown(
                f"left out: {len(broken)} broken pictures: {', '.join(broken[:TOLD])}{more}; "
                f"the rows say why"
            )
        )


def _find_categories(
    folder: Path, metadata: ModelMetadata, given: Sequence[str] | None
) -> tuple[str, ...]:
    """The category names in the order of their ids: those ``given``, or the run's. Raises
    ``InputError``, ``ConfigError``."""
    names = metadata.categories if given is None else tuple(given)
    require(
        given is None or bool(names),
        "--categories",
        "",
        "names, with commas between, or leave it out",
    )
    if not names:
        raise InputError(
            f"{folder}: it is from before runs stored the names of their categories; give "
            f"--categories A,B"
        )
    for each in names:
        require(
            not text_fault(each) and names.count(each) == 1,
            "--categories",
            each,
            "each name once, in plain letters",
        )
    return names


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
