"""The loops, and how a command line chooses a loop from it: beside guidance stands a loop of the
tests' own."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pytest
import yaml
from programs.counting import COUNTING, CountingConfig, StepConfig

from stageb.__main__ import main
from stageb.cli import commands
from stageb.cli.parsing import parse
from stageb.errors import InputError


@pytest.fixture(autouse=True)
def _counting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(commands.loops(), "counting", COUNTING)
    monkeypatch.chdir(tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a question, such as ``--help``, prints."""
    with pytest.raises(SystemExit) as end:
        main(["fit", *arguments])
    assert end.value.code == 0
    return capsys.readouterr().out


def wrong(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one message of a command line that must be refused."""
    assert main(["fit", *arguments]) == 2
    return capsys.readouterr().err.removeprefix("stageb: ")


@pytest.mark.parametrize("name", commands.loops())
def test_a_loop_can_be_configured_and_knows_its_name(name: str) -> None:
    first, *_ = dataclasses.fields(commands.load_config_class(commands.loops()[name]))
    assert (first.name, first.default) == ("loop", name)
    assert callable(commands.load_fit(name))


@pytest.mark.parametrize("name", [name for name, loop in commands.loops().items() if loop.needs])
def test_without_its_extra_a_loop_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking, find = commands.loops()[name].needs[0], importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda module: None if module == lacking else find(module)
    )
    extra = name.replace("_", "-")
    said = rf"loop {name} needs the extra {extra}, of which {lacking} cannot be found: .*stageb\[{extra}\]"
    with pytest.raises(InputError, match=said):
        commands.load_fit(name)
    for command in commands.loops()[name].commands:
        with pytest.raises(InputError, match=said):
            commands.load_command(name, command)


def test_the_default_loop_is_guidance(capsys: pytest.CaptureFixture[str]) -> None:
    assert yaml.safe_load(answer(capsys, "--print_config"))["loop"] == "guidance"
    assert parse(["--tickets", "[a]"]).loop == "guidance"


def test_a_file_or_an_option_chooses_the_loop(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("loop: counting\nupto: 5\n")
    by_file, by_option = parse(["--config", "c.yaml"]), parse(["--upto", "5", "--loop", "counting"])
    assert by_file == by_option
    assert (by_file.loop, by_file.config) == ("counting", CountingConfig(upto=5))


@pytest.mark.parametrize(
    ("arguments", "loop"),
    [
        ("--config guidance.yaml --config counting.yaml", "counting"),
        ("--config counting.yaml --config guidance.yaml", "guidance"),
        ("--config counting.yaml --config overlay.yaml", "counting"),
        ("--config guidance.yaml --loop counting", "counting"),
        ("--loop counting --config guidance.yaml", "counting"),
        ("--loop counting --config guidance.yaml --loop=guidance", "guidance"),
        ("--config merged.yaml", "counting"),
    ],
)
def test_the_last_file_wins_and_an_option_over_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, loop: str
) -> None:
    (tmp_path / "guidance.yaml").write_text("loop: guidance\noutput: {run_name: g}\n")
    (tmp_path / "counting.yaml").write_text("loop: 'counting'\noutput: {run_name: c}\n")
    (tmp_path / "overlay.yaml").write_text("output: {run_name: o}\n")
    (tmp_path / "merged.yaml").write_text("<<: {loop: counting}\noutput: {run_name: m}\n")
    printed = yaml.safe_load(answer(capsys, *arguments.split(), "--print_config"))
    assert printed["loop"] == loop
    assert ("upto" in printed) == (loop == "counting")


def test_keys_are_those_of_the_loop_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("loop: counting\nupto: 5\nseed: 1\n")
    assert "c.yaml:3: there is no key seed;" in wrong(capsys, "--config", "c.yaml")
    assert "c.yaml:2: there is no key upto;" in wrong(
        capsys, "--config", "c.yaml", "--loop", "guidance"
    )
    assert "there is no key uptoo; did you mean upto?" in wrong(
        capsys, "--loop", "counting", "--uptoo", "5"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("cuonting", "cuonting"),
        ("", "null"),
        ("5", "5"),
        ("[counting]", '["counting"]'),
        ("{a: 1}", '{"a": 1}'),
    ],
)
def test_an_unknown_loop_of_a_file_is_named_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, value: str
) -> None:
    (tmp_path / "c.yaml").write_text(f"upto: 5\nloop: {text}\n")
    names = "guidance, growth, ppo, two_channel, counting"
    told = f"config: loop: '{value}': there is no such loop; choose from: {names} (c.yaml:2)\n"
    assert wrong(capsys, "--config", "c.yaml") == told
    assert wrong(capsys, "--loop=cuonting", "--help") == told.replace(value, "cuonting").replace(
        "c.yaml:2", "command line"
    )
    assert "--loop" in wrong(capsys, "--loop")


def test_a_loop_named_twice_in_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.yaml").write_text("loop: counting\nloop: guidance\n")
    assert "c.yaml:2: loop stands here twice" in wrong(capsys, "--config", "c.yaml")


def test_help_lists_the_keys_of_one_loop_and_the_names_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    own, default = answer(capsys, "--loop", "counting", "--help"), answer(capsys, "-h")
    assert "--upto" in own
    assert "Where counting ends." in own
    assert "--tickets" not in own
    assert "--tickets" in default
    assert "--upto" not in default
    for text in (own, default):
        assert "  guidance    Learn written guidance" in text
        assert "  counting    Count to a number." in text
    assert "--rest.word" in answer(capsys, "--rest.help", "--loop", "counting")
    assert "unrecognized" in wrong(capsys, "--upto.help", "--loop", "counting")


def test_a_runs_config_is_the_same_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [
        "--loop",
        "counting",
        "--upto",
        "7",
        "--rest.size",
        "2",
        "--steps+",
        "{word: '1e-3'}",
        "--notes.a",
        "[1, x]",
    ]
    assert main(["fit", *options]) == 0
    assert capsys.readouterr().out == "counted to 7\n"
    kept = tmp_path / "out" / "run" / "config.yaml"
    first = kept.read_bytes()
    assert first.startswith(b"loop: counting\nupto: 7\n")
    assert main(["fit", "--config", str(kept), "--fresh"]) == 0
    assert kept.read_bytes() == first
    assert main(["fit", "--config", str(kept), "--upto=-1"]) == 2
    assert capsys.readouterr().err == "stageb: config: upto: -1: 0 or more\n"


def test_values_are_of_the_annotated_types() -> None:
    arguments = [
        "--loop",
        "counting",
        "--aloud",
        "no",
        "--rest",
        "{size: 2}",
        "--prices",
        "{a: 1, b: 1e-3}",
        "--prices.c=2",
    ]
    config = parse(
        [*arguments, "--steps", "[{size: 1}]", "--notes.a", "{b: [null, 1, 1e3, 'yes', yes]}"]
    ).config
    assert config == CountingConfig(
        aloud=False,
        rest=StepConfig(2.0),
        prices={"a": 1.0, "b": 0.001, "c": 2.0},
        notes={"a": {"b": [None, 1, 1000.0, "yes", True]}},
    )
    assert [type(price) for price in config.prices.values()] == [float, float, float]
    assert get_type_hints(CountingConfig)["rest"] == StepConfig | None


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("aloud", "5", "aloud: '5': expected true or false, or null"),
        ("prices", "{a: x}", "prices.a: 'x': expected a number"),
        ("prices.b", "x", "prices.b: 'x': expected a number"),
        ("rest.size", "x", "rest.size: 'x': expected a number"),
        ("rest", "[]", "rest: []: expected keys (size, word), or null"),
        (
            "steps+",
            "x",
            "steps: 'x': expected a list in brackets, each item keys (size, word), or keys "
            "(size, word)",
        ),
    ],
)
def test_a_value_of_another_type_is_refused(
    capsys: pytest.CaptureFixture[str], option: str, value: str, told: str
) -> None:
    assert wrong(capsys, "--loop", "counting", f"--{option}", value) == f"config: {told}\n"


def test_a_tool_has_keys_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.yaml").write_text("upto: 5\n")
    assert main(["recount", "--config", "c.yaml"]) == 0
    assert main(["recount", "--upto", "6"]) == 0
    assert capsys.readouterr().out == "recounted to 5\nrecounted to 6\n"
    assert main(["recount", "--uptoo", "6"]) == 2
    assert "did you mean upto?" in capsys.readouterr().err
    assert main(["recount", "--fresh"]) == 2
    assert "unrecognized arguments: --fresh" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["recount", "--help"])
    screen = capsys.readouterr().out
    assert screen.startswith("usage: stageb recount ")
    assert "Where counting ends." in screen
    assert "--fresh" not in screen
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "recount     Count once more." in capsys.readouterr().out


def test_a_name_can_be_a_tool_and_a_command_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "--tickets", "a"]) == 0
    assert capsys.readouterr().out == "2 words\n"
    assert main(["play", "somewhere", "--tickets", "a"]) == 2
    assert "no run lies there" in capsys.readouterr().err


def test_a_full_memory_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fill(arguments: Sequence[str]) -> int:
        raise MemoryError

    monkeypatch.setattr("stageb.__main__.run", fill)
    assert main(["report", "run"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("stageb: the memory is full; ") and said.count("\n") == 1
