"""Find the pictures in a folder and check that they can be read, before any work starts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stageb.errors import BadInputError, BadLine, InputError
from stageb.two_channel.types import Sample
from stageb.untrusted.json_lines import FaultError, upright_picture_named

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
LEAVE_OUT = "--skip-broken leaves such files out"


@dataclass(frozen=True, slots=True)
class Picture:
    """A file with a picture's suffix."""

    name: str  # relative to the folder, with ``/``
    sample: Sample | None  # without objects; None if it cannot be used
    fault: str = ""  # why it cannot be used


def find_pictures(folder: Path, skip_broken: bool) -> list[Picture]:
    """The pictures in ``folder`` and its subfolders, by name; hidden files and linked folders are ignored.

    Raises ``InputError`` if there are none and, unless ``skip_broken``, ``BadInputError`` with all that cannot be used.
    """
    if not folder.is_dir():
        raise InputError(f"--images {folder}: no such folder; name the folder of the pictures")
    names = sorted(list_files(folder, lambda name: name.lower().endswith(SUFFIXES)))
    if not names:
        raise InputError(f"--images {folder}: holds no pictures ({', '.join(each[1:] for each in SUFFIXES)})")
    found, bad = list[Picture](), list[BadLine]()
    for name in names:
        try:
            path, (width, height) = upright_picture_named(name, folder)
            found.append(Picture(name, Sample(name, path, width, height, ())))
        except FaultError as fault:
            what = fault.what.removeprefix("images: ").removeprefix(f"{name}: ")
            found.append(Picture(name, None, what))
            bad.append(BadLine(str(folder / name), 0, what, f"{fault.remedy}; {LEAVE_OUT}"))
    if bad and not skip_broken:
        raise BadInputError("pictures", bad)
    return found


def compute_digest(pictures: Sequence[Picture]) -> str:
    """A digest of the names of ``pictures`` and the sizes of their files."""
    sizes = (f"{each.name}\0{Path(each.sample.image).stat().st_size if each.sample else 0}\0" for each in pictures)
    return hashlib.blake2b("".join(sizes).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def list_files(folder: Path, keeps: Callable[[str], bool]) -> list[str]:
    """The files in ``folder`` and its subfolders whose names ``keeps`` accepts, relative to it, with ``/``; without hidden
    ones and those in hidden or linked folders."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not each.startswith(".")]
        beneath = Path(place).relative_to(folder)
        found += [(beneath / each).as_posix() for each in files if keeps(each) and not each.startswith(".")]
    return found
