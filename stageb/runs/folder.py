"""A run's folder, as commands read it that look at runs. Nothing is locked and nothing is written: the run may go on
meanwhile, and another program may have changed any file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from stageb.errors import BadInputError, BadLine, JournalError
from stageb.store import disk
from stageb.store.commits import REMEDY, read_commit
from stageb.store.trust import file_of
from stageb.untrusted import strict_json

RunRow = Mapping[str, Any]


class RunFolder:
    """The files of a run. Methods raise ``InputError`` where a link leads out of the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def commit(self) -> Mapping[str, Any]:
        """The content of commit.json, as of the first look. Raises ``JournalError``."""
        return read_commit(self.path)

    def read_committed(self, file: str) -> Iterator[RunRow]:
        """The rows of a file of JSON Lines that the last commit covers; none of one that was never written. Rows after it
        will be written again. Raises ``JournalError`` where the file is cut or no JSON."""
        left, path = self.commit["lengths"].get(file, 0), self._place(file)
        try:
            if left:
                with path.open("rb") as opened:
                    while left > 0:
                        line = opened.readline()
                        left -= len(line) or left
                        yield json.loads(line)
        except (OSError, ValueError, RecursionError) as error:
            raise JournalError(f"{path}: {error}; {REMEDY}") from error

    def read_whole(self, file: str, having: str = "") -> Iterator[tuple[int, dict[str, Any]]]:
        """The rows of a file that hold a text, each with its line, committed or not; one that is being written is left out.

        Raises ``BadInputError`` where one is no JSON object.
        """
        path = self._place(file)
        if not path.exists():
            return
        with path.open(encoding="utf-8", errors="replace") as opened:
            for number, line in enumerate(opened, 1):
                if having in line and line.endswith("\n"):
                    try:
                        row = strict_json.loads(line)
                    except ValueError as error:
                        raise self.fault(file, number, f"not JSON: {error}") from None
                    if not isinstance(row, dict):
                        raise self.fault(file, number, "not an object")
                    yield number, row

    def fault(self, file: str, line: int, what: str) -> BadInputError:
        """The error for a row that no run writes."""
        bad = BadLine(str(self.path / file), line, what, "another program changed it; take the row out")
        return BadInputError("rows of a run", [bad])

    def read_notes(self, file: str) -> list[Any]:
        """The whole rows of a file that stands outside of commits. Raises ``JournalError`` where one is no object."""
        path = self._place(file)
        return disk.whole_rows(path, path.read_bytes(), disk.TAKE_OUT) if path.is_file() else []

    def read_machine(self) -> RunRow:
        """What run.json says; nothing where there is none. Raises ``JournalError`` where it is no object."""
        path = self._place("run.json")
        return disk.parse_object(path.read_bytes(), str(path), "take it out of the folder") if path.is_file() else {}

    def _place(self, file: str) -> Path:
        return file_of(self.path, self.path / file)
