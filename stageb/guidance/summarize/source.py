"""Ticket lines that name images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stageb.guidance.files.images import find_images
from stageb.guidance.files.numbers import parse_number
from stageb.guidance.files.stream import TicketStream
from stageb.guidance.files.tickets import SHAPE, Entry
from stageb.guidance.summarize.words import MISSION
from stageb.untrusted.json_lines import FaultError, object_on, short


@dataclass(frozen=True, slots=True)
class ImageLine:
    """One ticket whose images are to be summarized."""

    row: Mapping[str, Any]  # all that its line says
    summaries: Mapping[int, str]  # that it has already, by the image's number
    images: Mapping[int, str]  # the files of all its images, by number


def stream_images(file: str, prompt: str) -> TicketStream[ImageLine]:
    """The tickets of a file; ``prompt`` is what is asked for each image."""

    def read(file: str, entry: Entry) -> ImageLine:
        row = object_on(entry.raw, SHAPE)
        if "images" not in row:
            raise FaultError("no images", 'name its image files: "images": ["photo.jpg"]')
        if MISSION in prompt and not isinstance(row.get("mission"), str):
            raise FaultError("no mission", f"give it one, or take {MISSION} out of the prompt")
        there = row.get("per_image", {})
        if not isinstance(there, dict) or not all(isinstance(summary, str) for summary in there.values()):
            raise FaultError(f"per_image {short(there)}", "leave it out, or write an object of summaries")
        summaries = {parse_number(key, "per_image"): summary for key, summary in there.items() if summary.strip()}
        images = find_images(row["images"], file)
        if extra := sorted(summaries.keys() - images.keys()):
            raise FaultError(f"per_image: image_{extra[0]} has a summary and no image", "name its image, or take it out")
        return ImageLine(row, summaries, images)

    return TicketStream([file], read)


def find_missing(line: ImageLine) -> list[int]:
    """The numbers of a line's images that have no summary yet."""
    return [number for number in line.images if number not in line.summaries]
