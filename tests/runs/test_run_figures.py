"""Figures as people read them, and tables."""

from __future__ import annotations

import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console

from stageb.runs.figures import make_console, make_table, print_table, short, wilson


def test_wilsons_interval_is_that_of_the_literature() -> None:
    low, high = wilson(81, 263)  # Newcombe, Statistics in Medicine 1998, table I
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 0) == (0, 1)


@given(st.floats(1, 9.9e14))
@example(999.9)
@example(999_999)
@example(999_499)
def test_a_number_is_told_in_three_digits_of_the_largest_unit_that_they_reach(
    number: float,
) -> None:
    figure, _, unit = short(number).partition(" ")
    assert 1 <= float(figure) < 1000
    assert "e" not in figure
    assert len(figure.replace(".", "")) <= 3
    assert float(figure) * 1000 ** " kMBT".index(unit or " ") == pytest.approx(number, rel=5e-3)


def printed(width: int, rows: list[tuple[str, str, str, str]]) -> list[str]:
    console = Console(
        file=(shown := io.StringIO()),
        width=width,
        soft_wrap=True,
        highlight=False,
        markup=False,
        emoji=False,
    )
    table = make_table("accuracy (95 % interval)", ["mission"], ["accuracy", "wrong pass"], "text")
    for row in rows:
        table.add_row(*row)
    print_table(console, table)
    return shown.getvalue().splitlines()


def test_a_wide_terminal_has_a_table_and_a_narrow_one_a_paragraph_for_each_row() -> None:
    rows = [
        ("valves", "54.2% -> 100.0%", " 22 ->    0", "Fail if it is torn."),
        ("清洁", "9.0%", "1 ->  1", ""),
    ]
    assert [line.rstrip() for line in printed(80, rows)] == [
        "accuracy (95 % interval)",
        "mission         accuracy   wrong pass  text",
        "valves   54.2% -> 100.0%   22 ->    0  Fail if it is torn.",
        "清洁                9.0%      1 ->  1",
    ]
    assert printed(40, rows) == [
        "accuracy (95 % interval)",
        "valves",
        "  accuracy 54.2% -> 100.0%, wrong pass",
        "  22 -> 0, text Fail if it is torn.",
        "清洁",
        "  accuracy 9.0%, wrong pass 1 -> 1",
    ]


@given(
    st.integers(20, 200),
    st.lists(st.sampled_from(["0", "12,345", "100.0% (96%-100%)"]), min_size=1, max_size=5),
)
def test_nothing_is_cut_and_nothing_is_wider_than_the_terminal(
    width: int, figures: list[str]
) -> None:
    lines = printed(
        width,
        [("rack cabling", figure, "22 -> 0", "a rule that names a seal") for figure in figures],
    )
    whole = " ".join(" ".join(lines).split())
    assert "…" not in whole
    for word in ("accuracy", "wrong pass", "rack cabling", "22 -> 0", *figures):
        assert word in whole
    assert all(len(line) <= max(width, len("accuracy (95 % interval)")) for line in lines)


def test_a_file_has_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout", io.StringIO())
    assert make_console().width > 500
