"""The number in a key of a ticket's images."""

from __future__ import annotations

from stageb.guidance.rules.fields import parse_image
from stageb.untrusted.json_lines import FaultError, short


def parse_number(key: str, field: str) -> int:
    """The number of an image in a key of ``field``. Raises ``FaultError``."""
    try:
        return parse_image(key)
    except ValueError:
        raise FaultError(f"{field}: the key {short(key)}", 'write one number in it: "image_1"') from None
