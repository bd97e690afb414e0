"""The tickets that a run read, found again by its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stageb.errors import StagebError
from stageb.guidance.config import LoopConfig
from stageb.guidance.files import tickets as ticket_files
from stageb.guidance.types import Ticket


def read_same_tickets(
    folder: Path, config: LoopConfig, digest: str, naming: str, named: Sequence[str] = ()
) -> tuple[Sequence[Ticket], str]:
    """The run's tickets, if its files still hold what the run read; otherwise none, and why. ``naming`` is the option
    by which a user names them.

    A config that somebody else wrote names no files but those in or below the folder of the run, or the one that the user is
    in; others the user names.
    """
    files = named or config.tickets
    if not named and not all(_is_near(Path(path), folder) for path in files):
        return [], f"the run's ticket files lie elsewhere; name them: {naming}"
    skips = config.on_bad_record == "skip"
    use_images = skips and config.sampler.use_images  # texts need no images, but for lines that were set aside for theirs
    try:
        tickets, _ = ticket_files.read_tickets(files, config.on_bad_record, config.columns, use_images)
    except StagebError:
        return [], "the run's ticket files are not found from here; run this command where the run was started"
    if not digest.startswith(ticket_files.fingerprint(tickets)):  # that of images stands behind it
        return [], "the ticket files have changed since the run"
    return tickets, ""


def _is_near(path: Path, folder: Path) -> bool:
    try:
        real, places = path.resolve(), (Path.cwd(), folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
    return any(map(real.is_relative_to, places)) and (real.is_file() or not real.exists())
