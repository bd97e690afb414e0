"""Promotions that a full disk or a kill interrupts: the history never says that something was in
use that was not."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from programs.processes import child

from stageb.__main__ import main
from stageb.guidance.rules import history_file
from stageb.guidance.rules.read_guidance import load_seed
from stageb.store import disk

Said = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def promote(number: int) -> int:
    """Promote a rule of a number; the exit code."""
    Path("p.txt").write_text(f"[m]\nFail if a is {number}.\n")
    return main(["guidance", "promote", "p.txt", "--to", "shared.json", "--yes"])


def history(said: Said) -> str:
    """What the history lists, but for when and by whom."""
    said.readouterr()
    assert main(["guidance", "history", "shared.json"]) == 0
    return "\n".join(line for line in said.readouterr().out.splitlines() if "+00:00" not in line)


TWO = """\
m, step 1 in use:
  step 0: promoted from p.txt (step 0)
      + G0. A ticket passes unless a rule fails it.
      + G1. Fail if a is 1.
* step 1: promoted from p.txt (step 0)
      ~ G1. Fail if a is [-1-]{+3+}."""


@pytest.mark.parametrize(
    "where", ["the new file", "its sync", "the row", "the row's sync", "its place"]
)
def test_what_did_not_come_into_use_is_not_in_the_history(
    monkeypatch: pytest.MonkeyPatch, capsys: Said, where: str
) -> None:
    """Wherever the disk refuses."""
    assert promote(1) == 0
    before = history(capsys)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "shared.json")

    def refuse_rows(path: Path) -> None:
        if path.suffix == ".jsonl":
            refuse()

    with monkeypatch.context() as full:
        full.setattr(
            *{
                "the new file": (Path, "write_bytes", refuse),
                "its sync": (disk, "sync", refuse),
                "the row": (disk, "write_at", refuse),
                "the row's sync": (disk, "sync", refuse_rows),
                "its place": (Path, "replace", refuse),
            }[where]
        )
        assert promote(2) == 1
    assert (
        "No space left on device; free some space and run again; the guidance in use is intact"
        in capsys.readouterr().err
    )
    assert history(capsys) == before
    assert main(["guidance", "show", "shared.json@1"]) == 2
    assert promote(3) == 0
    assert history(capsys) == TWO


def test_what_came_into_use_is_in_the_history_though_the_disk_complains(
    monkeypatch: pytest.MonkeyPatch, capsys: Said
) -> None:
    """Of the folder, once the new file is in its place."""
    assert promote(1) == 0

    def refuse_folders(path: Path) -> None:
        if path.is_dir():
            raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as broken:
        broken.setattr(disk, "sync", refuse_folders)
        assert promote(3) == 1
    assert load_seed("shared.json")["m"].rules[1].text == "Fail if a is 3."
    assert history(capsys) == TWO


@pytest.mark.parametrize("where", [(disk, "write_at"), (disk, "sync"), (Path, "replace")])
def test_so_it_is_after_a_kill(
    monkeypatch: pytest.MonkeyPatch, capsys: Said, where: tuple[object, str]
) -> None:
    """Also before the next promotion, which clears away what the kill left."""
    assert promote(1) == 0
    before = history(capsys)

    def killed() -> None:
        monkeypatch.setattr(*where, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        promote(2)

    assert os.waitpid(child(killed), 0)[1] == signal.SIGKILL
    assert list(Path().glob(f"{disk.UNFINISHED}*"))
    assert history(capsys) == before
    assert main(["guidance", "show", "shared.json@1"]) == 2
    assert promote(3) == 0
    assert history(capsys) == TWO
    assert not list(Path().glob(f"{disk.UNFINISHED}*"))


def test_a_file_that_was_put_back_by_hand_takes_nothing_out_of_its_history(capsys: Said) -> None:
    """Only what a kill leaves beside it tells that a version never came into use."""
    assert promote(1) == 0
    kept = Path("shared.json").read_bytes()
    assert promote(3) == 0
    Path("shared.json").write_bytes(kept)
    assert len(history_file.read_history(Path("shared.json"))) == 2
    assert "~ G1. Fail if a is [-1-]{+3+}." in history(capsys)
