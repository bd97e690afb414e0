"""Every file operation of a Python process that changes something, told as it is about to happen
(``sys.addaudithook``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
DEVICES = Path("/dev")
CHANGES = {
    "os.chmod",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
}


def watch(tell: Callable[[str, str], None]) -> None:
    """From now on ``tell(what, path)`` before each operation; where a file is renamed, ``path`` is
    its new name."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, int) and flags & WRITES:
                place = Path(os.fsdecode(path)).absolute()
                if place.parent != DEVICES:
                    tell(event, str(place))
        elif event in CHANGES:
            path = arguments[1] if event in ("os.rename", "os.link", "os.symlink") else arguments[0]
            tell(
                event,
                f"descriptor {path}"
                if isinstance(path, int)
                else str(Path(os.fsdecode(path)).absolute()),
            )

    sys.addaudithook(hook)
