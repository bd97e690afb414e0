"""What runs of all loops owe alike: they let go of what they took however they end, and say what
they run on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lightning_fabric.loggers.csv_logs import CSVLogger
from programs import detectors, growths, small, snakes

import stageb
from stageb.__main__ import main
from stageb.errors import JournalError
from stageb.store.journal import Journal

COUNTS = {"guidance": "rounds", "ppo": "updates", "growth": "updates", "two_channel": "steps"}
LOGGER = [f"{__name__}.Telling"]
MACHINE = ["stageb", "python", "platform", "packages"]


class Telling(CSVLogger):
    """Leaves beside its files how it was told that the run ended."""

    def finalize(self, status: str) -> None:
        super().finalize(status)
        with Path(self.root_dir, "told").open("a") as file:
            file.write(f"{status}\n")


def arguments(loop: str, root: Path) -> list[str]:
    """Of a small run of any loop."""
    if loop == "guidance":
        tickets = small.write(root.parent / "tickets.jsonl", "valves", groups=24)
        return small.arguments(tickets, root, keys={"runner.epochs": 1, "loggers": LOGGER})
    if loop == "ppo":
        return snakes.arguments(
            root, runner__total_steps=snakes.GAMES * 4 * 4, evaluation__every=0, loggers=LOGGER
        )
    if loop == "growth":
        return growths.arguments(
            root, growth__updates=2, evaluation__environments=2, loggers=LOGGER
        )
    return detectors.brief(root, schedule__steps=4, loggers=LOGGER)


@pytest.mark.parametrize("loop", COUNTS)
def test_a_run_lets_go_of_its_folder_and_its_loggers_however_it_ends(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, run, commit = arguments(loop, tmp_path / "out"), tmp_path / "out" / "run", Journal.commit
    mishap: BaseException

    def disturbed(journal: Journal, *given: Any, **named: Any) -> None:
        if journal.number == 1:
            raise mishap
        commit(journal, *given, **named)

    monkeypatch.setattr(Journal, "commit", disturbed)
    mishap = KeyboardInterrupt()
    assert main(line) == 130
    mishap = JournalError("the disk is full")
    assert main(line) == 1
    err = capsys.readouterr().err
    assert "the disk is full" in err
    assert f"{run}: resuming after 1 of " in err
    assert (run / ".lock").read_bytes() == b""  # nobody holds the folder
    monkeypatch.undo()
    assert main(line) == 0
    assert (run / "logs.d" / "told").read_text() == "failed\nfailed\nsuccess\n"
    machine: Mapping[str, Any] = json.loads((run / "run.json").read_text())
    assert list(machine)[:4] == MACHINE
    assert machine["stageb"] == stageb.__version__
    assert {"torch", "lightning"} <= machine["packages"].keys()
    assert machine["world_size"] == 1


def test_other_programs_see_the_rows_of_every_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, seen = Journal.commit, list[int]()
    view = tmp_path / "out" / "run" / "logs.d/lightning_logs/version_0/metrics.csv"

    def looking(journal: Journal, *given: Any, **named: Any) -> None:
        seen.append(len(view.read_text().splitlines()) - 1)  # without the line of names
        commit(journal, *given, **named)

    monkeypatch.setattr(Journal, "commit", looking)
    assert main(arguments("ppo", tmp_path / "out")) == 0
    assert seen == [1, 2, 3, 4, 4]  # at the last, the run is over
