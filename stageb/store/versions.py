"""The versions of a run's files: what they are called, and how a commit lists them. No disk is touched here.

A version is named by the commit that it belongs to: ``weights/policy.safetensors`` of the 12th commit lies in
``weights/policy-00000012.safetensors``. Two files never share a version, since a name tells its file and its commit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any


@dataclass(frozen=True, slots=True)
class Version:
    """A file's content as of one commit."""

    file: str  # as the caller calls it
    commit: int
    size: int  # bytes

    @property
    def name(self) -> str:
        """Where it lies in the run's folder."""
        return name(self.file, self.commit)


Table = dict[str, Version]
"""By file, the version that a commit lists."""


def name(file: str, commit: int) -> str:
    """What the version of ``file`` is called that belongs to ``commit``."""
    path = PurePosixPath(file)
    return str(path.with_name(f"{path.stem}-{commit:08d}{path.suffix}"))


def is_name(file: str) -> bool:
    """Whether ``file`` is called as versions are, and so can be nothing else."""
    return re.search("-[0-9]{8,}$", PurePosixPath(file).stem) is not None


def by_name(table: Table) -> dict[str, Version]:
    """The versions by where they lie."""
    return {version.name: version for version in table.values()}


def to_plain(table: Table) -> dict[str, list[list[int]]]:
    """As ``commit.json`` lists them: file -> [[commit, bytes]]."""
    return {file: [[table[file].commit, table[file].size]] for file in sorted(table)}


def from_plain(plain: Mapping[str, Any]) -> Table:
    """What ``to_plain`` wrote. Raises ``ValueError``, ``TypeError`` or ``AttributeError`` for what it never writes."""
    table = {file: Version(file, commit, size) for file, [[commit, size]] in plain.items()}
    if any(type(number) is not int for version in table.values() for number in (version.commit, version.size)):
        raise ValueError
    return table
