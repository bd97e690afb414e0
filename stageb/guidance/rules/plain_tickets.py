"""Tickets as plain dicts, read as ``files/tickets.py`` and ``files/tables.py`` read them.

``export.py`` writes this file into the modules that it makes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stageb.guidance.rules.reading import Reading, join_cells, read_summaries

NAMES = ("mission", "group_id", "label")  # what is no field of a row
_HEADER = re.compile(r"\A\s*<DOMAIN=[^>\n]*>,[ \t]*<TASK=SUMMARY>[ \t\r]*(\n|\Z)")
_IMAGE = re.compile(r"\D*(\d{1,9})\D*")
_IMAGE_COLUMN = re.compile(r"image_[1-9][0-9]{0,8}")


def read_ticket(ticket: Mapping[str, object]) -> Reading:
    """A ticket with summaries in ``per_image``, or a row of a table by the names of its columns, read. Raises ``ValueError``
    for an image without a number."""
    images = ticket.get("per_image")
    if isinstance(images, Mapping):
        numbered = sorted((_parse_image(str(key)), _HEADER.sub("", str(text))) for key, text in images.items())
        return read_summaries(tuple(text for _, text in numbered))
    cells = {name: "" if value is None else str(value).strip() for name, value in ticket.items() if name not in NAMES}
    images = {name: text for name, text in cells.items() if _IMAGE_COLUMN.fullmatch(name)}
    fields = join_cells({name: text for name, text in cells.items() if name not in images})
    summaries = sorted((_parse_image(name), text) for name, text in images.items())
    return read_summaries((*(text for _, text in summaries), fields))


def _parse_image(key: str) -> int:
    found = _IMAGE.fullmatch(key)
    if found is None:
        raise ValueError(f"per_image: no number in the key {key!r}")
    return int(found[1])
