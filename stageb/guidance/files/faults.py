"""What is wrong with a line of a ticket file, and the remedy."""

from __future__ import annotations

import json
import re
from typing import Any

_IMAGE = re.compile(r"\D*(\d{1,9})\D*")


class FaultError(Exception):
    """What is wrong, what to do about it, and at which line where that is not the one being read."""

    def __init__(self, what: str, remedy: str, line: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.line = line


def short(value: Any) -> str:
    """A value for a message."""
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def number_of(key: str, field: str) -> int:
    """The number of an image in a key of ``field``. Raises ``FaultError``."""
    match = _IMAGE.fullmatch(key)
    if match is None:
        raise FaultError(f"{field}: the key {short(key)}", 'write one number in it: "image_1"')
    return int(match[1])
