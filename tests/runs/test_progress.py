"""What a person is told while a run of many updates goes on: lines elsewhere, a bar on a
terminal."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from stageb.config import OutputConfig
from stageb.runs import progress
from stageb.runs.progress import Progress

PLAN = ("step", 12, 2)  # what is counted, of so many, those done before


class Clock(SimpleNamespace):
    """In place of ``time``: stands still unless it is told to go on."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Of the module, away from any terminal."""
    for name in ("TTY_COMPATIBLE", "TTY_INTERACTIVE", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def told(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_lines_come_for_what_is_worth_one_and_else_now_and_then(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress("out/run: 12 steps", *PLAN, "info")
    clock.now += 40.0
    shown.show_row(3, "loss 3", worth_a_line=False)  # the first
    shown.show_row(4, "loss 4", worth_a_line=False)  # just after it
    shown.show_row(5, "loss 5", worth_a_line=True, line="evaluated: 5, 1.00 s")
    clock.now += progress.PAUSE_S
    shown.show_row(6, "loss 6", worth_a_line=False, line="loss 6, 1.00 s")
    shown.close()
    assert told(capsys) == [
        "out/run: 12 steps",
        "step 3/12: loss 3, 0:06:00 left",
        "step 5/12: evaluated: 5, 1.00 s, 0:01:33 left",
        "step 6/12: loss 6, 1.00 s, 0:01:15 left",
    ]


def test_a_level_above_info_leaves_the_lines_of_rows_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = Progress("opening", *PLAN, "warning")
    shown.show_row(3, "loss 3", worth_a_line=True)
    shown.tells("a logger is left out")
    shown.close()
    assert told(capsys) == ["opening", "a logger is left out"]


def test_a_terminal_shows_a_bar_with_the_figures_and_lines_for_what_is_worth_one(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = Progress("opening", *PLAN, "info")
    clock.now += 2 * progress.PAUSE_S
    shown.show_row(3, "loss 3", worth_a_line=False, line="loss 3, 1.00 s")
    shown.show_row(4, "loss 4", worth_a_line=True, line="evaluated: 4, 1.00 s")
    shown.close()
    seen = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert "2/12 steps" in seen
    assert re.search(r"4/12 steps .*loss 4", seen)
    assert "step 4/12: evaluated: 4, 1.00 s, " in seen
    assert "step 3/12" not in seen


def test_a_run_that_is_over_shows_its_result_again(capsys: pytest.CaptureFixture[str]) -> None:
    progress.say_finished(OutputConfig("out", "mine"), "12 steps")
    progress.say_finished(OutputConfig("out", "other"))
    assert told(capsys) == ["out/mine: already finished", "12 steps", "out/other: already finished"]
