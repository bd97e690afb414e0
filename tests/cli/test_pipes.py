"""Commands whose reader goes away, as ``head`` does: they end as other programs do, without a word."""

from __future__ import annotations

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

ROOT = Path(__file__).parent.parent
UNREAD = 128 + signal.SIGPIPE


def run_unread(words: Sequence[str], with_errors: bool = False) -> tuple[int, str]:
    """The exit code of a command of whose output nothing is read, with standard error where that is asked for; and what
    it says there otherwise."""
    reads, writes = os.pipe()
    os.close(reads)
    line = [sys.executable, "-m", "stageb", *words]
    environment = clean_environment() | {"PYTHONPATH": str(ROOT)}
    errors = subprocess.STDOUT if with_errors else subprocess.PIPE
    ended = subprocess.run(line, stdout=writes, stderr=errors, env=environment, text=True, timeout=120, check=False)
    os.close(writes)
    return ended.returncode, ended.stderr or ""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["fit", "--help"], ["fit", "--print_config"]])
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


@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_run_whose_table_nobody_reads_ends_without_a_word_and_whole(tmp_path: Path, world_size: int) -> None:
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
