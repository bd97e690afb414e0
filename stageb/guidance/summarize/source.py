"""Ticket lines that name images, as a stream: looked over once before any work starts, then read a round at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stageb.errors import BadInputError, BadLine, InputError
from stageb.guidance.files.images import image_files
from stageb.guidance.files.numbers import number_of
from stageb.guidance.files.tickets import KIND, SHAPE
from stageb.guidance.summarize.words import MISSION
from stageb.untrusted.json_lines import FaultError, filled_lines, object_on, short

MOST_FAULTS = 1000  # gathered before the first look gives up


@dataclass(frozen=True, slots=True)
class Line:
    """One ticket to summarize."""

    row: Mapping[str, Any]  # all that its line says
    summaries: Mapping[int, str]  # that it has already, by the image's number
    images: Mapping[int, str]  # the files of all its images, by number


@dataclass(frozen=True, slots=True)
class Source:
    """A ticket file; ``prompt`` is what is asked for each image."""

    file: str
    prompt: str

    def survey(self) -> int:
        """The number of lines, once each of them and its images were looked at.

        Raises ``BadInputError`` with everything that is wrong.
        """
        count = 0
        bad: list[BadLine] = []
        try:
            for number, raw in filled_lines(self.file, KIND):
                try:
                    self._line(raw)
                    count += 1
                except FaultError as fault:
                    bad.append(BadLine(self.file, number, fault.what, fault.remedy))
                if len(bad) >= MOST_FAULTS:
                    break
        except FaultError as fault:
            bad.append(BadLine(self.file, 0, fault.what, fault.remedy))
        if bad:
            raise BadInputError("places in the ticket file", bad)
        return count

    def lines(self, skip: int) -> Iterator[Line]:
        """The lines in order, but for the first ``skip``. Raises ``InputError`` where they are no longer as they were."""
        for number, raw in islice(filled_lines(self.file, KIND), skip, None):
            try:
                yield self._line(raw)
            except FaultError as fault:
                raise InputError(f"{self.file}:{number}: changed since it was looked at: {fault.what}") from None

    def _line(self, raw: bytes) -> Line:
        row = object_on(raw, SHAPE)
        if "images" not in row:
            raise FaultError("no images", 'name its image files: "images": ["photo.jpg"]')
        if MISSION in self.prompt and not isinstance(row.get("mission"), str):
            raise FaultError("no mission", f"give it one, or take {MISSION} out of the prompt")
        there = row.get("per_image", {})
        if not isinstance(there, dict) or not all(isinstance(summary, str) for summary in there.values()):
            raise FaultError(f"per_image {short(there)}", "leave it out, or write an object of summaries")
        summaries = {number_of(key, "per_image"): summary for key, summary in there.items() if summary.strip()}
        images = image_files(row["images"], self.file)
        if extra := sorted(summaries.keys() - images.keys()):
            raise FaultError(f"per_image: image_{extra[0]} has a summary and no image", "name its image, or take it out")
        return Line(row, summaries, images)
