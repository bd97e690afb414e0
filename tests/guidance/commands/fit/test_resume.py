"""Which keys may be others when a run goes on in its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import small

from stageb.__main__ import main
from stageb.guidance.tickets.splits import SPLITS

BEGUN = {"runner.epochs": 0, "columns.texts": ["a", "b"]}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that judges what it has, and learns nothing."""
    folder = tmp_path_factory.mktemp("begun")
    rows = (
        f"m,g-{n},{('pass', 'fail')[n % 2]},x-{n // 8},{n % 7},{n % 5},w-{n},{SPLITS[n % 35 % 3]}"
        for n in range(48)
    )
    head = "mission,group_id,label,machine,a,b,why,part"
    (folder / "t.csv").write_text("\n".join([head, *rows, ""]))
    assert main(small.arguments(folder / "t.csv", folder, keys=BEGUN)) == 0
    return folder


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("together", "machine", "tickets"),
        ("split", "part", "tickets"),
        ("reason", "why", "tickets"),
        ("repeats", "apart", "tickets"),
        ("texts", "[a]", "tickets"),
        ("comparable", "[a, b]", "columns.comparable"),
        ("comparable", "[b]", "columns.comparable"),
    ],
)
def test_a_run_goes_on_only_by_columns_that_say_the_same(
    begun: Path, key: str, value: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = small.arguments(begun / "t.csv", begun, keys=BEGUN)
    assert main(line) == 0
    assert "already finished" in capsys.readouterr().err
    assert main([*line, f"--columns.{key}={value}"]) == 2
    said = capsys.readouterr().err
    assert "holds a run with another config" in said and f"\n  {named}: " in said


@pytest.mark.parametrize("option", ["passes=[pass, ok]", "fails=[bad, fail]", "missing=[NA]"])
def test_it_goes_on_by_columns_that_are_told_otherwise_and_say_the_same(
    begun: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = small.arguments(begun / "t.csv", begun, keys=BEGUN)
    assert main([*line, f"--columns.{option}"]) == 0
    assert "already finished" in capsys.readouterr().err
