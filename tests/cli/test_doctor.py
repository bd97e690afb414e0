"""``stageb doctor``: what it says of an environment that lacks something."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from stageb.__main__ import main
from stageb.cli import commands, doctor
from stageb.engines import ENGINES


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """Versions that are installed, in place of those that are; None: it is missing."""
    changed: dict[str, str | None] = {}
    read = metadata.version

    def version(name: str) -> str:
        if name in changed and changed[name] is None:
            raise metadata.PackageNotFoundError(name)
        return changed.get(name) or read(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(doctor, "probe_torch", lambda: ("torch", True))
    return changed


def lines_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What is printed, by what it is about."""
    return {
        line[5:25].strip(): line
        for line in capsys.readouterr().out.splitlines()
        if line[:3] in ("yes", "no ")
    }


def test_every_loop_and_engine_has_a_line(
    versions: dict[str, str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor"]) == 0
    names = {f"loop {name}" for name in commands.loops()} | {f"engine {name}" for name in ENGINES}
    assert names <= lines_of(capsys).keys()


def test_a_missing_package_is_named_with_what_to_install(
    versions: dict[str, str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    versions["scipy"] = None
    assert main(["doctor"]) == 0
    lines = lines_of(capsys)
    assert lines["loop two_channel"].endswith(
        "scipy is missing: python -m pip install 'stageb[two-channel]'"
    )
    assert lines["loop guidance"].startswith("yes")


def test_an_old_package_that_all_need_stops_all(
    versions: dict[str, str | None], capsys: pytest.CaptureFixture[str]
) -> None:
    versions["lightning"] = "2.5.9"
    assert main(["doctor"]) == 1
    lines = lines_of(capsys)
    assert "lightning 2.5.9 is older than 2.6" in lines["loop guidance"]
    assert all(line.startswith("no") for line in lines.values())


def test_a_torch_that_ends_its_process_is_no_end_of_the_doctor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "PROBE", "import os; os.abort()")
    text, is_there = doctor.probe_torch()
    assert not is_there
    assert "torch cannot be imported: its process ended with -6" in text


def test_a_torch_that_cannot_be_imported_stops_all_but_the_doctor(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text('raise ImportError("a library of it is missing")')
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    run = [sys.executable, "-m", "stageb", "doctor"]
    done = subprocess.run(
        run, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "torch cannot be imported: ImportError: a library of it is missing" in done.stdout
    assert not [line for line in done.stdout.splitlines() if line.startswith("yes")]


def test_gpus_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE", 'print(\'["2.13", "13.0", [["H100", 85899345920]]]\')')
    assert doctor.probe_torch() == ("torch 2.13 sees H100 (80 GiB)", True)


def test_it_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--help"]) == 0
    assert main(["doctor", "foo"]) == 2
    assert "usage: stageb doctor" in capsys.readouterr().err


def test_in_a_folder_that_is_not_installed_it_says_what_it_cannot_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def requires(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", requires)
    monkeypatch.setattr(doctor, "probe_torch", lambda: ("torch", True))
    assert main(["doctor"]) == 0
    assert "versions cannot be checked: python -m pip install -e ." in capsys.readouterr().out
