"""The versions of a run's files: what they are called, and which of them a commit keeps. No disk is touched here.

A version is named by the commit that it belongs to: ``weights/policy.safetensors`` of the 12th commit lies in
``weights/policy-00000012.safetensors``. Two files never share a version, since a name tells its file and its commit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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


Table = dict[str, tuple[Version, ...]]  # file -> its versions, newest first; at least one each


def name(file: str, commit: int) -> str:
    """What the version of ``file`` is called that belongs to ``commit``."""
    path = PurePosixPath(file)
    return str(path.with_name(f"{path.stem}-{commit:08d}{path.suffix}"))


def is_name(file: str) -> bool:
    """Whether ``file`` is called as versions are, and so can be nothing else."""
    return re.search("-[0-9]{8,}$", PurePosixPath(file).stem) is not None


def after(table: Table, new: Mapping[Version, int], dropped: Iterable[str]) -> Table:
    """The table that a commit leaves: ``new`` versions (-> how many of the file's are kept) in, ``dropped`` files out."""
    kept = {version.file: (version, *table.get(version.file, ()))[:keep] for version, keep in new.items()}
    left_out = set(dropped)
    return {file: versions for file, versions in {**table, **kept}.items() if file not in left_out}


def listed(table: Table) -> dict[str, Version]:
    """All versions, by name."""
    return {version.name: version for versions in table.values() for version in versions}


def to_plain(table: Table) -> dict[str, list[list[int]]]:
    """As ``commit.json`` lists them: file -> [commit, bytes] of each version, newest first."""
    return {file: [[version.commit, version.size] for version in table[file]] for file in sorted(table)}


def from_plain(plain: Mapping[str, Any]) -> Table:
    """What ``to_plain`` wrote. Raises ``ValueError``, ``TypeError`` or ``AttributeError`` for what it never writes."""
    table = {file: tuple(Version(file, commit, size) for commit, size in pairs) for file, pairs in plain.items()}
    for versions in table.values():
        if not versions or any(type(number) is not int for each in versions for number in (each.commit, each.size)):
            raise ValueError
    return table
