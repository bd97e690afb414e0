"""Standard streams that are closed, or full: a command does its work, says what it can, and its
code tells."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from guidance.commands.use import made
from programs import forks, small
from programs.processes import clean_environment

ROOT = Path(__file__).parent.parent.parent
COLUMNS = "mission_name=rc,group_id=Rack,label=Checked,passes=OK,fails=NG"
RULES = {
    "rc": {
        "experiences": {
            "G0": "A ticket passes unless a rule fails it.",
            "G1": "Fail if Seal is worn.",
        }
    }
}
PREDICT = [
    "predict",
    "--guidance",
    "rules.json",
    "--tickets",
    "t.csv",
    "--columns",
    COLUMNS,
    "--by",
    "rules",
]
EXPORT = [
    "guidance",
    "export",
    "rules.json",
    "--format",
    "python",
    "--tickets",
    "t.csv",
    "--columns",
    COLUMNS,
]
FULL = "stageb: standard output: No space left on device; "


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with guidance and tickets."""
    (tmp_path / "rules.json").write_text(json.dumps(RULES))
    (tmp_path / "t.csv").write_text("Rack,Seal,Remarks,Checked\nr-1,worn,,NG\nr-3,new,fine,OK\n")
    return tmp_path


def run(words: Sequence[str], place: Path, streams: str) -> subprocess.CompletedProcess[str]:
    """What becomes of a command whose streams a shell has redirected so."""
    line = ["sh", "-c", f'exec "$@" {streams}', "sh", sys.executable, "-m", "stageb", *words]
    environment = clean_environment() | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        line, cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_where_there_is_no_input_nobody_is_asked(place: Path) -> None:
    ended = run(["guidance", "promote", "rules.json", "--to", "shared.json"], place, "<&-")
    assert ended.returncode == 2
    assert ended.stderr.startswith("stageb: cannot ask for confirmation")
    assert not (place / "shared.json").exists()


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_without_streams_does_its_work(streams: str, place: Path) -> None:
    ended = run([*PREDICT, "--output", "q.jsonl"], place, streams)
    assert (ended.returncode, "Error" in ended.stderr) == (0, False)
    rows = [json.loads(line) for line in (place / "q.jsonl").read_text().splitlines()]
    assert [row["verdict"] for row in rows] == ["fail", "pass"]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["fit", "--help"],
        ["fit", "--print_config"],
        ["guidance", "show", "rules.json"],
        ["guidance", "--help"],
        EXPORT,
    ],
)
def test_what_cannot_be_printed_is_told_in_one_line(words: Sequence[str], place: Path) -> None:
    ended = run(words, place, "> /dev/full")
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith(FULL)


def test_letters_that_a_terminal_lacks_are_escaped_and_code_is_utf_8(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    rules = {"rc": {"experiences": {**RULES["rc"]["experiences"], "G1": "Fail if Seal is 断裂."}}}
    (place / "rules.json").write_text(json.dumps(rules))
    (place / "t.csv").write_text(
        "Rack,Seal,Remarks,Checked\nr-1,断裂,,NG\nr-3,new,fine,OK\n", encoding="utf-8"
    )
    shown = run(["guidance", "show", "rules.json"], place, "")
    assert (shown.returncode, shown.stderr) == (
        0,
        "",
    ) and "Fail if Seal is \\u65ad\\u88c2." in shown.stdout
    exported = run(EXPORT, place, "> rules.py")
    assert (exported.returncode, exported.stderr) == (0, "")
    script = "import rules; print(rules.judge({'Seal': '\u65ad\u88c2'}).verdict)"
    assert (
        subprocess.run(
            [sys.executable, "-c", script], cwd=place, capture_output=True, text=True
        ).stdout
        == "fail\n"
    )


def test_predictions_are_whole_where_the_table_cannot_be_printed(place: Path) -> None:
    ended = run([*PREDICT, "--vocabulary", "t.csv", "--output", "q.jsonl"], place, "> /dev/full")
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(FULL)
    assert "Traceback" not in ended.stderr
    assert (place / "q.jsonl").read_text().count("\n") == 2


def test_other_codes_stand_where_nothing_can_be_said(place: Path) -> None:
    ended = run(["guidance", "show", "nowhere"], place, "> /dev/full 2> /dev/full")
    assert ended.returncode == 2
    assert (
        run(["guidance", "show", "rules.json"], place, "> /dev/full 2> /dev/full").returncode == 1
    )


def test_nobody_is_asked_about_a_change_that_could_not_be_shown(place: Path) -> None:
    ended = run(
        ["guidance", "promote", "rules.json", "--to", "shared.json", "--yes"], place, "> /dev/full"
    )
    assert ended.returncode == 1
    assert (place / "shared.json").exists()  # it was agreed to beforehand
    ours, terminal = os.openpty()
    ended = run(
        ["guidance", "promote", "rules.json", "--to", "other.json"],
        place,
        f"< {os.ttyname(terminal)} > /dev/full",
    )
    os.close(ours)
    os.close(terminal)
    assert (ended.returncode, (place / "other.json").exists()) == (2, False)
    assert "what would change cannot be shown" in ended.stderr


@pytest.mark.parametrize(("streams", "code"), [("2> /dev/full", 0), ("> /dev/full", 1)])
@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_run_goes_on_whatever_cannot_be_told(
    streams: str, code: int, world_size: int, tmp_path: Path
) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    words = small.arguments(tickets, tmp_path / "out", world_size, {"runner.epochs": 1})
    ended = run(words, tmp_path, streams)
    assert ended.returncode == code
    assert "Traceback" not in ended.stderr
    again = forks.run(words, world_size, tmp_path / "again")
    assert (set(again.codes), "already finished" in again.err) == ({0}, True)


# Readers that go away, as ``head`` does


UNREAD = 128 + signal.SIGPIPE


def run_unread(words: Sequence[str], with_errors: bool = False) -> tuple[int, str]:
    """The exit code of a command of whose output nothing is read, with standard error where that is
    asked for; and what it says there otherwise."""
    reads, writes = os.pipe()
    os.close(reads)
    line = [sys.executable, "-m", "stageb", *words]
    environment = clean_environment() | {"PYTHONPATH": str(ROOT)}
    errors = subprocess.STDOUT if with_errors else subprocess.PIPE
    ended = subprocess.run(
        line, stdout=writes, stderr=errors, env=environment, text=True, timeout=120, check=False
    )
    os.close(writes)
    return ended.returncode, ended.stderr or ""


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["fit", "--help"], ["fit", "--print_config"]]
)
def test_what_says_how_it_is_used_ends_without_a_word(words: list[str]) -> None:
    code, said = run_unread(words)
    assert (code in (UNREAD, 0), said) == (True, "")  # argparse overlooks what it cannot write


def test_what_looks_at_guidance_and_tickets_ends_without_a_word(tmp_path: Path) -> None:
    rules = str(made.guidance(tmp_path / "g.json", {"valves": "Fail if state is torn."}))
    assert run_unread(["guidance", "show", rules]) == (UNREAD, "")
    tickets = small.write(tmp_path / "tickets.jsonl", "valves")
    words = ["validate", *small.arguments(tickets, tmp_path / "out")[1:]]
    assert run_unread(words) == (UNREAD, "")
    assert run_unread(words, with_errors=True) == (UNREAD, "")


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_run_whose_table_nobody_reads_ends_without_a_word_and_whole(
    tmp_path: Path, world_size: int
) -> None:
    tickets = small.write(tmp_path / "tickets.jsonl", "valves", groups=48)
    words = small.arguments(tickets, tmp_path / "out", world_size, {"runner.epochs": 1})
    code, said = run_unread(words)
    assert code == UNREAD
    assert "Error" not in said
    again = forks.run(words, world_size, tmp_path / "again")
    assert set(again.codes) == {0}
    assert "already finished" in again.err


def test_an_error_is_told_whoever_reads_what_else_is_printed() -> None:
    code, said = run_unread(["guidance", "show", "nowhere"])
    assert code == 2
    assert "nowhere: No such file" in said
