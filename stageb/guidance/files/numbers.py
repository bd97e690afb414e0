"""The number in a key of a ticket's images."""

from __future__ import annotations

import re

from stageb.untrusted.json_lines import FaultError, short

_IMAGE = re.compile(r"\D*(\d{1,9})\D*")


def parse_number(key: str, field: str) -> int:
    """The number of an image in a key of ``field``. Raises ``FaultError``."""
    match = _IMAGE.fullmatch(key)
    if match is None:
        raise FaultError(f"{field}: the key {short(key)}", 'write one number in it: "image_1"')
    return int(match[1])
