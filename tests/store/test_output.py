"""A file of rows, at the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from stageb.store import disk
from stageb.store.output import Output


def test_rows_reach_the_disk_before_their_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(disk, "sync", lambda path: synced.append(path.name))
    output = Output(tmp_path / "out.jsonl", {}, {})
    assert synced[0] == tmp_path.name  # the names of what was made
    synced.clear()
    output.add([{"n": 1}], 1, {}, finished=True)
    output.close()
    assert synced == ["out.jsonl", ".unfinished-out.jsonl.commit.json", tmp_path.name]
