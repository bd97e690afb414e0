"""``stageb predict RUN``: detect objects in the pictures of a folder, round by round, such that an
interrupted call resumes.

Pictures go through the model in groups that depend only on their order, and groups are distributed
over ranks, so every world size writes the same bytes. Rank 0 commits the rows of a round before the
next begins (``store/output.py``). At the end it writes exports for other programs
(``predictions.py``); a later call with another threshold writes them again from the same rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from stageb.cli.parsing import WordParser
from stageb.config import FabricConfig, require
from stageb.errors import InputError, shown
from stageb.job import world as worlds
from stageb.job.world import World
from stageb.store.output import check_file
from stageb.training.run import add_placement
from stageb.two_channel.boxes import predictions
from stageb.two_channel.boxes.data import compute_digest, find_pictures
from stageb.two_channel.boxes.predictions import FORMATS, BoxSelection
from stageb.two_channel.commands.answerer import Answerer
from stageb.two_channel.commands.rows import ROWS, RowWriter, write_exports
from stageb.two_channel.config import TwoChannelConfig
from stageb.two_channel.learning import rollout
from stageb.two_channel.model.stored import ModelMetadata, find_metadata, find_model
from stageb.untrusted.clean_text import text_fault

# the path at which Label Studio serves files of its own machine
LOCAL_FILES = "/data/local-files/?d="


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
    add_placement(made, "pictures")
    return made


def warn_of_nothing(folder: Path, metadata: ModelMetadata) -> None:
    """Say it if the detector of the run in ``folder`` found nothing where it was measured."""
    if metadata.f1 == 0:
        why = "this detector found nothing where it was measured (F1 0): its boxes mean nothing"
        print(f"{shown(str(folder))}: {why}; its README.md says what may help", file=sys.stderr)


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
