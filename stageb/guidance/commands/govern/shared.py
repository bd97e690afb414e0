"""A guidance file that is kept for many runs: changed one mission at a time, by agreement, and
never without a way back.

Nobody holds the file while a person reads what is about to change. If another process has changed
the mission's guidance meanwhile, what would change now is shown, and asked about, anew.
"""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from stageb.errors import InputError, shown
from stageb.guidance.rules import history_file
from stageb.guidance.rules.edits import compare_marks, compare_order, compare_rules
from stageb.guidance.rules.guidance_json import format_file, to_json
from stageb.guidance.rules.read_guidance import carry_seen, load_seed, read_past
from stageb.guidance.words.types import Guidance
from stageb.store import disk
from stageb.store.output import check_plain

Confirm = Callable[[Guidance | None, Guidance], bool]
"""Whether what is in use (None: nothing) may become what is proposed."""


@dataclass(frozen=True, slots=True)
class GuidanceChange:
    """A change of one mission's guidance in a shared file."""

    action: str  # for the history: "promoted from", "rolled back"
    source: str  # where the guidance comes from
    guidance: Guidance
    new: bool  # whether it is a step that the file has never held, and so is numbered by it


def resolve_target(name: str) -> Path:
    """The path of the file to change, links followed. Raises ``InputError`` for one that no command
    may change."""
    try:
        path = Path(name).resolve()  # what a link points to is replaced, and not the link
    except (OSError, RuntimeError) as error:  # links in a circle
        raise InputError(
            shown(f"{name}: cannot be read: {error}; name a guidance.json of your own")
        ) from None
    if path.is_dir() or path.suffix == ".txt":
        what = "a folder" if path.is_dir() else "a text file, which holds no history"
        raise InputError(
            shown(f"{name}: {what}; name a guidance.json of your own, such as shared.json")
        )
    check_plain(path)
    if any((parent / "commit.json").exists() for parent in list(path.parents)[:3]):
        remedy = "name a file of your own: stageb guidance promote RUN@STEP --to shared.json"
        raise InputError(
            shown(f"{name}: belongs to a run, whose files say what it learnt; {remedy}")
        )
    return path


def apply_change(path: Path, change: GuidanceChange, confirm: Confirm) -> Guidance | None:
    """Make ``change`` if ``confirm`` agrees. Returns the guidance then in use, or None if it did
    not agree.

    ``confirm`` is not asked where the rules are in use already, and no more was spent on them: then
    nothing is changed. Raises ``InputError`` where the file, or its history, cannot be read,
    ``JournalError`` where the disk refuses.
    """
    while True:
        before = load(path).get(change.guidance.mission)
        # what was spent on tickets stays spent, whatever takes the place of what it taught, and no
        # number of a rule is given twice
        if before is not None:
            spent = before.spent.most(change.guidance.spent)
            number = max(before.next_number, change.guidance.next_number)
            kept = replace(change.guidance, spent=spent, next_number=number)
            change = replace(change, guidance=carry_seen(before, kept))
            if (
                not compare_rules(before, change.guidance)
                and not compare_marks(before, change.guidance)
                and not compare_order(before, change.guidance)
                and before.spent == spent
                and before.automation == change.guidance.automation
                and (change.new or before == change.guidance)
            ):
                return before
        if not confirm(before, _number_versions(path, before, change)[-1]):
            return None
        with disk.reporting(path, "the guidance in use"), history_file.hold_history(path):
            history_file.clear_interrupted(path)
            if load(path).get(change.guidance.mission) == before:
                return _write(path, before, change)


def _number_versions(path: Path, before: Guidance | None, change: GuidanceChange) -> list[Guidance]:
    """The versions to note: what is in use, where nothing has noted it yet, and what comes. No step
    is given twice."""
    kept = read_past(path, change.guidance.mission)
    found = [before] if before is not None and before not in kept.values() else []
    newest = max([*kept, *(guidance.step for guidance in found)], default=-1)
    if found and found[0].step in kept:  # edited by hand
        newest += 1
        found = [replace(found[0], step=newest)]
    after = (
        replace(change.guidance, step=max(change.guidance.step, newest + 1))
        if change.new
        else change.guidance
    )
    return [*found, after]


def _write(path: Path, before: Guidance | None, change: GuidanceChange) -> Guidance:
    """Note what is to be noted, and put what comes in its place: see ``history_file.py``. The file is
    held."""
    *found, after = _number_versions(path, before, change)
    for guidance in found:
        _note(path, "found there", "", guidance)
    data = disk.encode(format_file({**load(path), after.mission: after}.values()))
    mode = path.stat().st_mode if path.exists() else None
    noted: list[int] = []  # where the row of what comes begins

    def write(beside: Path) -> None:
        beside.write_bytes(data)
        if mode is not None:
            beside.chmod(mode & 0o777)
        disk.sync(beside)
        noted.append(_note(path, change.action, change.source, after))

    try:
        disk.place(path, write)
    except BaseException:
        if noted and load(path).get(after.mission) != after:
            disk.quietly(lambda: history_file.cut_rows(path, noted[0]))
        raise
    return after


def _note(path: Path, action: str, source: str, guidance: Guidance) -> int:
    """Add a row to the history; where it begins."""
    try:
        by = getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for its user
        by = f"user {os.getuid()}"
    at = datetime.now(UTC).isoformat(timespec="seconds")
    row = {
        "mission": guidance.mission,
        "step": guidance.step,
        "action": action,
        "source": source,
        "at": at,
        "by": shown(by),
    }
    return history_file.append_row(path, {**row, "guidance": to_json(guidance)})


def load(path: Path) -> dict[str, Guidance]:
    """Load the guidance in use, by mission; none where there is no such file. Raises
    ``BadInputError``."""
    return load_seed(path) if path.exists() else {}
