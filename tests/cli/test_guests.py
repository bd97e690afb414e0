"""Loops as guests: each can be taken away with its folder and its configs, and the rest goes on;
others can come.

That no file elsewhere names theirs, ``test_architecture`` holds.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from programs.processes import clean_environment

from stageb.__main__ import main
from stageb.cli import commands, doctor

ROOT = Path(__file__).parent.parent.parent
GUESTS = [name for name in commands.loops() if name != commands.DEFAULT]
# Asked in one process, since each start takes long.
QUESTIONS = """
import contextlib, io, json, sys
from stageb.__main__ import main
from stageb.cli import doctor
doctor.probe_torch = lambda: ("torch", True)
answers = []
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code or 0
    answers.append([code, said.getvalue()])
print(json.dumps(answers))
"""


def copy_without(guests: list[str], folder: Path) -> Path:
    """The package as it is, but for these loops."""
    left_out = [ROOT / "stageb" / path for name in guests for path in (name, f"configs/{name}")]

    def ignore(place: str, names: list[str]) -> set[str]:
        return {name for name in names if name == "__pycache__" or Path(place, name) in left_out}

    shutil.copytree(ROOT / "stageb", folder / "stageb", ignore=ignore)
    return folder


def environment_of(folder: Path) -> dict[str, str]:
    return clean_environment() | {"PYTHONPATH": str(folder)}


@pytest.mark.parametrize("guest", GUESTS)
def test_without_a_guest_the_command_line_answers(guest: str, tmp_path: Path) -> None:
    folder, others = (
        copy_without([guest], tmp_path),
        [name for name in commands.loops() if name != guest],
    )
    helps = [["--help"], ["doctor"], *(["fit", "--loop", name, "--help"] for name in others)]
    refused = ["fit", "--loop", guest]
    ask = [sys.executable, "-c", QUESTIONS, json.dumps([*helps, refused])]
    done = subprocess.run(
        ask, cwd=tmp_path, env=environment_of(folder), capture_output=True, text=True, check=True
    )
    *answers, (code, said) = json.loads(done.stdout)
    assert [code for code, _ in answers] == [0] * len(helps), answers
    assert (code, said) == (2, f"stageb: config: loop: '{guest}': there is no such loop; choose " f"from: "
                            f"{', '.join(others)} (command line)\n")  # fmt: skip
    assert [text for _, text in answers[:2] if f" {guest}" in text] == []


@pytest.mark.slow
def test_without_any_guest_guidance_is_learnt(tmp_path: Path) -> None:
    folder = copy_without(GUESTS, tmp_path)
    rows = [f"r-{n},{'worn' if n % 3 else 'new'},{'NG' if n % 3 else 'OK'}" for n in range(90)]
    (tmp_path / "my.csv").write_text("\n".join(["Rack,Seal,Checked", *rows, ""]))
    fit = [
        "fit",
        "--config",
        "tickets",
        "--config",
        "frugal",
        "--config",
        "my.yaml",
        "--model.engine",
        "scripted",
    ]
    for words in (
        ["new", "my.csv"],
        [*fit, "--output.run_name", "first", "--fabric.devices", "1"],
        ["guidance", "show", "out/first"],
    ):
        command = [sys.executable, "-m", "stageb", *words]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment_of(folder),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Fail if Seal is worn" in done.stdout


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """The loops that installed packages name."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(
        commands, "entry_points", lambda group: points if group == "stageb.loops" else []
    )
    caches = commands.loops, commands.unloaded, commands._find_loops
    for cached in caches:
        cached.cache_clear()
    yield points
    for cached in caches:
        cached.cache_clear()


def test_a_loop_of_another_package_is_one_like_ours(
    installed: list[EntryPoint],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    installed.append(EntryPoint("counting", "programs.counting:COUNTING", "stageb.loops"))
    assert main(["fit", "--loop", "counting", "--upto", "3"]) == 0
    assert main(["recount", "--upto", "6"]) == 0
    assert capsys.readouterr().out == "counted to 3\nrecounted to 6\n"


def test_one_that_cannot_be_imported_is_told_where_it_is_asked_for_and_stops_nothing_else(
    installed: list[EntryPoint], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.append(EntryPoint("hovering", "no_such_package:LOOP", "stageb.loops"))
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert main(["fit", "--loop", "hovering"]) == 2
    why = "no_such_package:LOOP: No module named 'no_such_package'"
    assert f"it cannot be loaded: {why}" in capsys.readouterr().err
    monkeypatch.setattr(doctor, "probe_torch", lambda: ("torch", True))
    main(["doctor"])
    assert f"no   loop hovering         it cannot be imported: {why}" in capsys.readouterr().out


def test_two_packages_with_a_loop_of_one_name_are_refused(
    installed: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    installed.append(EntryPoint("ppo", "programs.counting:COUNTING", "stageb.loops"))
    assert main(["--help"]) == 2
    assert (
        "programs.counting:COUNTING: there is another loop ppo; uninstall one"
        in capsys.readouterr().err
    )
