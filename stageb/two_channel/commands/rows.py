"""Rank 0's share of ``stageb predict``: the rows of all pictures, committed round by round, and the
exports that are made of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stageb.errors import BadInputError, BadLine, InputError, shown
from stageb.job import lifetime
from stageb.runs.progress import ItemProgress
from stageb.store import disk
from stageb.store.output import Output, read_rows, set_aside
from stageb.two_channel.boxes.data import LEAVE_OUT, PictureFile, compute_digest
from stageb.two_channel.boxes.predictions import FORMATS, BoxSelection, ExportFolder
from stageb.two_channel.model.stored import ModelMetadata

ROWS = "predictions.jsonl"
TOLD = 5  # most files that a summary line names


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
