"""The images of tickets: what is said of each, which files a line names, in which order, and
whether they can be shown.

``images`` is a list of files, whose places are their numbers, or an object with a number in each
key as ``per_image`` has them. Names are relative to the folder that the ticket file lies in and
never lead out of it (``json_lines.file_named``).

Files are looked at twice. As lines are read, on every rank, by name, size and header: a tenth of a
millisecond each, on a local disk. Once the ranks are there, each of them reads and decodes a share
to the end, which finds what is broken inside and gives the digest by which a changed image is
noticed: on one busy core 60 ms for a JPEG of 12 million pixels (3 MB), 80 for a PNG of one million
(2 MB).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stageb.errors import BadInputError, BadLine
from stageb.guidance.config import UseImages
from stageb.guidance.rules.fields import HEADER, Summary, parse_image
from stageb.guidance.words.types import Images, Ticket
from stageb.job import heartbeat
from stageb.store import disk
from stageb.untrusted import pictures
from stageb.untrusted.strict_json import FaultError, resolve_picture, short

if TYPE_CHECKING:
    # torch: tickets are read, and refused, before it is imported
    from stageb.job.world import World


def parse_number(key: str, field: str) -> int:
    """The number of an image in a key of ``field``. Raises ``FaultError``."""
    try:
        return parse_image(key)
    except ValueError:
        raise FaultError(
            f"{field}: the key {short(key)}", 'write one number in it: "image_1"'
        ) from None


def parse_summaries(value: Any, labelled: bool) -> list[Summary]:
    """Parse the summaries that the key ``per_image`` of a line holds, in the order of their
    numbers, headers dropped. Of a ``labelled`` ticket, none may be empty. Raises ``FaultError``."""
    if not isinstance(value, dict) or not value:
        raise FaultError(
            f"per_image {short(value)}", 'write an object of summaries: {"image_1": "..."}'
        )
    summaries: dict[int, str] = {}
    for key, summary in value.items():
        number = parse_number(key, "per_image")
        if number in summaries:
            raise FaultError(f"per_image: two keys for image {number}", "number every image once")
        if not isinstance(summary, str):
            raise FaultError(f"per_image: {key}: {short(summary)}", "write the summary as a text")
        summaries[number] = HEADER.sub("", summary)
        if labelled and not summaries[number].strip():
            raise FaultError(
                f"per_image: {key}: an empty summary",
                "write what the image shows, or leave the image out",
            )
    return [Summary(f"image_{number}", summaries[number]) for number in sorted(summaries)]


THREADS = 8  # of a rank, that look at images


def attach_images(ticket: Ticket, file: str, use_images: UseImages) -> Ticket:
    """``ticket``, of the ticket file ``file``, with the images that its line names; one that names
    none stays as it is.

    Raises ``FaultError``.
    """
    if not use_images or "images" not in ticket.extra:
        return ticket
    found = find_images(ticket.extra["images"], file)
    here, there = {f"image_{number}" for number in found}, {name for name, _ in ticket.per_image}
    if here != there:
        name = min(here ^ there)
        what = f"{name} is in {'images' if name in here else 'per_image'} alone"
        raise FaultError(
            what,
            "give every image a summary (stageb summarize makes them), and every summary its image",
        )
    named = tuple((f"image_{number}", path) for number, path in found.items())
    return replace(ticket, images=Images(named, instead=use_images == "instead"))


def find_images(value: Any, file: str) -> dict[int, str]:
    """The image files that the key ``images`` of a line of ``file`` names, by number, in numeric
    order; looked at.

    Raises ``FaultError``.
    """
    if isinstance(value, dict):
        numbered = [(parse_number(key, "images"), name) for key, name in value.items()]
    elif isinstance(value, list):
        numbered = list(enumerate(value, 1))
    else:
        numbered = []
    if not numbered:
        raise FaultError(
            f"images {short(value)}",
            'write a list of files: ["photos/front.jpg"], or {"image_1": ...}',
        )
    found: dict[int, str] = {}
    for number, name in numbered:
        if number in found:
            raise FaultError(f"images: two keys for image {number}", "number every image once")
        found[number] = resolve_picture(name, Path(file).parent)
    return dict(sorted(found.items()))


def check_images(world: World, tickets: Iterable[Ticket]) -> str:
    """A digest of what the images of ``tickets`` hold, each decoded to its end on one rank; empty
    where there are none.

    Raises ``BadInputError``, the same on every rank, with all that are broken.
    """
    shown = {
        path: f"ticket {ticket.key} of mission {ticket.mission}"
        for ticket in tickets
        for path in list_image_files(ticket)
    }
    with (
        world.at("looking at images"),
        ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool,
    ):
        mine = list(map(_tick, pool.map(_check_image, world.share(list(shown)))))
    found = world.join_shares(
        [json.loads(part) for part in world.gather(json.dumps(mine).encode())]
    )
    bad = [
        BadLine(path, 0, f"{each['what']} (of {ticket})", each["remedy"])
        for (path, ticket), each in zip(shown.items(), found, strict=True)
        if "what" in each
    ]
    if bad:
        raise BadInputError("images", bad)
    whole = "\n".join(each["digest"] for each in found)
    return disk.digest(whole) if found else ""


def list_image_files(ticket: Ticket) -> tuple[str, ...]:
    """The image files that a model is shown of ``ticket``, in numeric order."""
    return tuple(path for _, path in ticket.images.files) if ticket.images else ()


def _check_image(path: str) -> dict[str, str]:
    try:
        return {"digest": pictures.examine(path)}
    except pictures.PictureError as error:
        return {"what": error.what, "remedy": error.remedy}


def _tick(found: Mapping[str, str]) -> dict[str, str]:
    heartbeat.tick()
    return dict(found)
