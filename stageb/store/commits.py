"""Commits: the versions of a run's files, how the last one is read, how the folder is cut back to
it, and whether a run may be resumed under a changed config."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from stageb.errors import InputError, JournalError, shown, write_option
from stageb.store import disk
from stageb.store.trust import file_of

# The versions of a run's files: what they are called, and how a commit lists them. No disk is
# touched here.
#
# A version is named by the commit that it belongs to: ``weights/policy.safetensors`` of the 12th
# commit lies in ``weights/policy-00000012.safetensors``. Two files never share a version, since a
# name tells its file and its commit.


@dataclass(frozen=True, slots=True)
class Version:
    """A file's content as of one commit."""

    file: str  # as the caller calls it
    commit: int
    size: int  # bytes

    @property
    def name(self) -> str:
        """Where it lies in the run's folder."""
        path = PurePosixPath(self.file)
        return str(path.with_name(f"{path.stem}-{self.commit:08d}{path.suffix}"))


class Versions(dict[str, Version]):
    """By file, the version that a commit lists."""

    def by_name(self) -> dict[str, Version]:
        """The versions by where they lie."""
        return {version.name: version for version in self.values()}

    def to_plain(self) -> dict[str, list[list[int]]]:
        """As ``commit.json`` lists them: file -> [[commit, bytes]]."""
        return {file: [[self[file].commit, self[file].size]] for file in sorted(self)}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Versions:
        """Read the versions that ``to_plain`` wrote. Raises ``ValueError``, ``TypeError`` or
        ``AttributeError`` for what it never writes."""
        found = cls({file: Version(file, commit, size) for file, [[commit, size]] in plain.items()})
        numbers = (number for each in found.values() for number in (each.commit, each.size))
        if any(type(number) is not int for number in numbers):
            raise ValueError
        return found


def is_name(file: str) -> bool:
    """Whether ``file`` is called as versions are, and so can be nothing else."""
    return re.search("-[0-9]{8,}$", PurePosixPath(file).stem) is not None


COMMIT = "commit.json"
ELSEWHERE = "another output.run_name"
LOCK = ".lock"
# the folder that parts lie in; no safe name has a dot, so a folder named after anything is another
PARTS = "commit.d"
_KEPT = "kept."  # begins the names of the files there that hold commits to go back to
BEGUN = ".begun"  # names the files that the next commit brings or removes, a line each
ANOTHER = "another folder"
REMEDY = "set the run's folder aside and start anew"


def read_commit(folder: Path) -> dict[str, Any]:
    """The content of commit.json, with its versions read; before the first commit, an empty one.

    Raises ``JournalError`` if another program changed it, ``InputError`` if it was removed.
    """
    content = read_checked(file_of(folder, folder / COMMIT), _check, REMEDY)
    if content is None and (left := _find_version(folder)):
        raise InputError(
            f"{folder / COMMIT}: another program removed it, {left} is of that commit; {REMEDY}"
        )
    return content or {
        "number": 0,
        "state": None,
        "config": {},
        "lengths": {},
        "versions": Versions(),
    }


def _find_version(folder: Path) -> str:
    """The name of a version that no unfinished commit has begun, so that some commit must have
    listed it; empty if none."""
    begun = folder / BEGUN
    known = set(begun.read_text("utf-8", "replace").splitlines()) if begun.exists() else set()
    files = (
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if is_name(path.name)
    )
    return next((file for file in sorted(files) if file not in known and is_inside(file)), "")


def _check(content: Any) -> dict[str, Any]:
    if set(content) == {"number", "state", "config", "lengths", "versions"}:
        versions, lengths = Versions.of(content["versions"]), content["lengths"]
        plain = isinstance(content["config"], dict) and all(
            type(length) is int for length in lengths.values()
        )
        if plain and type(content["number"]) is int and all(map(is_inside, (*lengths, *versions))):
            return {**content, "versions": versions}
    raise ValueError


def read_checked(
    path: Path, check: Callable[[Any], dict[str, Any]], remedy: str
) -> dict[str, Any] | None:
    """Return the result of ``check`` for the parsed content of ``path``; None if there is no such
    file.

    ``check`` raises ``ValueError``, ``TypeError`` or ``AttributeError`` for content that no commit
    writes, which becomes a ``JournalError`` with the ``remedy``.
    """
    if not path.exists():
        return None
    try:
        return check(json.loads(path.read_bytes()))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise JournalError(f"{path}: another program changed it; {remedy}") from None


def advise_fresh() -> str:
    """The remedy for what cannot be resumed."""
    return f"give {write_option('fresh')} to set it aside and begin anew"


def check_folder(
    folder: Path,
    config: Mapping[str, Any],
    fresh: bool,
    limits: tuple[str, ...] = (),
    told: Mapping[str, str] | None = None,
) -> None:
    """Check, without creating or locking anything, that ``Journal.open`` could take the folder.
    ``config`` holds those keys, flat, of the config that shapes results which are known already;
    ``told`` is as in ``check_config``.

    Raises ``InputError`` if it could not; ``JournalError`` if the last commit cannot be read.
    """
    with disk.reporting(folder):
        check_place(folder)
        committed = read_commit(folder) if folder.is_dir() and not fresh else None
    if committed and committed["number"]:
        known = {key: value for key, value in committed["config"].items() if key in config}
        check_config(folder, known, config, ELSEWHERE, limits, told)


def check_place(folder: Path) -> None:
    """Raise ``InputError`` if the folder cannot be made, or exists and was not made by a run."""
    disk.check_place(folder, ANOTHER)
    # a copy may have left hidden files out
    known = any((folder / file).exists() for file in (LOCK, COMMIT))
    if folder.is_dir() and not known and any(folder.iterdir()):
        raise InputError(f"{folder}: holds files but no run; give {ELSEWHERE}")


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested config as dotted keys and plain JSON values."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = json.loads(disk.json_text(value))
    return flat


LONGEST = 160  # characters of a value, as it is told


def check_config(
    folder: Path,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    elsewhere: str,
    limits: tuple[str, ...] = (),
    told: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Raise ``InputError`` if the run cannot resume under the ``new`` config, which would give
    other results.

    ``limits`` are keys of numbers that may be higher than before (null: no limit). Returns those
    that are higher. ``told`` says of keys what differs where their values, such as a digest, would
    say nothing to people.
    """
    differ = [
        key
        for key in sorted(old.keys() | new.keys())
        if _format_value(old, key) != _format_value(new, key)
    ]
    raised = tuple(
        key for key in differ if key in limits and key in old and _is_higher(old[key], new.get(key))
    )
    refused = [key for key in differ if key not in raised]
    if refused:
        said = {
            key: [shown(_format_value(each, key), LONGEST) for each in (old, new)]
            for key in refused
        }
        differing = {key: f"{there} there, {now} now" for key, (there, now) in said.items()}
        listed = [
            shown(f"  {key}: {(told or {}).get(key, what)}", 2 * LONGEST)
            for key, what in differing.items()
        ]
        also = f" (higher values are allowed for {', '.join(limits)})" if limits else ""
        remedy = f"run it as it was{also}, or {advise_fresh()}, or {elsewhere}"
        raise InputError(
            "\n".join([f"{folder}: holds a run with another config:", *listed, remedy])
        )
    return raised


def _is_higher(before: float | None, now: float | None) -> bool:
    return before is not None and (now is None or now > before)


def _format_value(config: Mapping[str, Any], key: str) -> str:
    return disk.json_text(config[key]) if key in config else "absent"


def kept_file(name: str) -> str:
    """The file of the commit that is kept under ``name``. No part of a state has this name, since
    safe names have no dot."""
    return f"{PARTS}/{_KEPT}{name}.json"


def read_held(folder: Path, versions: Versions) -> set[str]:
    """The paths of the versions that kept commits list; ``versions`` is the last commit's."""
    held: set[str] = set()
    for file, version in versions.items():
        if file.startswith(f"{PARTS}/{_KEPT}"):
            held.update(read_kept(folder, folder / version.name)["versions"].by_name())
    return held


def read_kept(folder: Path, path: Path) -> dict[str, Any]:
    """The content of a commit that is kept in ``path``. Raises ``JournalError`` where it cannot be
    read."""
    content = read_checked(file_of(folder, path), _check, REMEDY)
    if content is None:
        raise JournalError(f"{path}: another program removed it; {REMEDY}")
    return content


def cut_back(folder: Path, lengths: Mapping[str, int], versions: Versions) -> None:
    """Cut the folder back to its last commit: appended files to their lengths, versions to those
    that it or a kept commit lists, and no unfinished files. Raises ``JournalError`` if another
    program cut or changed a file."""
    listed = versions.by_name()
    for file, version in listed.items():
        check_size(folder / file, version.size, exactly=True)
    for file, length in lengths.items():
        check_size(folder / file, length)
    for file, length in lengths.items():
        (folder / file).touch()
        os.truncate(folder / file, length)
    settle(folder, lengths.keys() | listed.keys() | read_held(folder, versions))
    for unfinished in folder.rglob(f"{disk.UNFINISHED}*"):
        unfinished.unlink()


def check_size(path: Path, committed: int, remedy: str = REMEDY, exactly: bool = False) -> None:
    """Raise ``JournalError`` for a file that another program cut, removed or, with ``exactly``,
    appended to."""
    size = path.stat().st_size if path.exists() else 0
    if size < committed or (exactly and (size > committed or not path.exists())):
        did = "cut" if size < committed else "changed"
        raise JournalError(
            f"{path}: another program {did} it: {size} bytes, {committed} were committed; {remedy}"
        )


def settle(folder: Path, listed: Container[str]) -> None:
    """Remove the files that .begun names and no commit lists: an interrupted commit began them, or
    they are kept no longer."""
    begun = folder / BEGUN
    if begun.exists():
        for name in begun.read_bytes().split(b"\n")[:-1]:
            file = name.decode("utf-8", "replace")
            if file not in listed and is_inside(file):
                (folder / file).unlink(missing_ok=True)
        begun.unlink()


def is_inside(file: str) -> bool:
    """Whether a file name stays inside the folder and is not one of the journal's own."""
    parts = file.split("/")
    return file != COMMIT and not any(
        not part or not part.isprintable() or part.startswith(".") or "\\" in part for part in parts
    )
