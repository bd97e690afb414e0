"""Outputs that name no file to write: refused before any work, with nothing left behind."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from stageb.__main__ import main

COLUMNS = "mission_name=rc,group_id=Rack,label=Checked,passes=OK,fails=NG"
RULES = {"rc": {"experiences": {"G0": "A ticket passes unless a rule fails it.", "G1": "Fail if Seal is worn."}}}
TABLE = "Rack,Seal,Remarks,Checked\nr-1,worn,,NG\nr-3,new,fine,OK\n"
OF_TICKETS = ["--tickets", "t.csv", "--columns", COLUMNS]
EXPORT = ["guidance", "export", "rules.json", "--format", "python", *OF_TICKETS]
PREDICT = ["predict", "--guidance", "rules.json", "--by", "rules", *OF_TICKETS]
EVALUATE = ["evaluate", "--guidance", "rules.json", "--by", "rules", *OF_TICKETS]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with guidance and tickets, and this process in it."""
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    (tmp_path / "t.csv").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def content_of(folder: Path) -> dict[str, bytes | None]:
    """Every name below a folder, with the bytes of files."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def check_refused(words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = content_of(Path())
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert content_of(Path()) == before


@pytest.mark.parametrize("command", [EXPORT, PREDICT, [*PREDICT, "--fresh"]])
def test_what_is_no_plain_file_is_not_written_to(
    command: Sequence[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("ff")
    Path("gone").symlink_to("nowhere")
    Path("nothing").symlink_to("/dev/null")
    Path("folder").mkdir()
    for name in ("ff", "gone", "nothing", "/dev/null", "/dev/stdout", "/proc/self/fd/1"):
        check_refused([*command, "--output", name], f"{name}: not a file; name a file to write", capsys)
    check_refused([*command, "--output", "folder"], "folder: a folder; name a file to write", capsys)
    for name in ("n" * 250, f"{'n' * 300}/q.jsonl"):
        check_refused([*command, "--output", name], "too long; name a file to write", capsys)
    assert not Path("/dev/null.commit.json").exists()


def test_evaluate_writes_over_no_pipe(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("e").mkdir()
    os.mkfifo("e/wrong.jsonl")
    check_refused([*EVALUATE, "--output", "e"], "e/wrong.jsonl: not a file; name a file to write", capsys)


def test_guidance_is_promoted_into_no_pipe(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("ff.json")
    check_refused(["guidance", "promote", "rules.json", "--to", "ff.json", "--yes"], "ff.json: not a file", capsys)


def test_a_link_to_a_file_may_be_written(place: Path) -> None:
    Path("rules.py").write_text("")
    Path("link.py").symlink_to("rules.py")
    assert main([*EXPORT, "--output", "link.py"]) == 0
