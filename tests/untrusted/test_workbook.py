"""Spreadsheets as people keep them, and as nobody should."""

from __future__ import annotations

import datetime
import resource
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from guidance.made_sheets import write_xlsx

from stageb.untrusted.strict_json import FaultError
from stageb.untrusted.workbook import MARK, read_workbook, write_value

HEADER: list[Any] = ["Machine", "Seal", "Result"]
ROWS: list[list[Any]] = [["Press A", "worn", "NG"], ["", "new", "OK"], ["Press B", "new", "OK"]]


def fault(path: Path, sheet: str | None = None) -> str:
    with pytest.raises(FaultError) as raised:
        list(read_workbook(str(path), sheet))
    return f"{raised.value.line}: {raised.value.what}; {raised.value.remedy}"


def test_every_row_of_a_merged_range_says_what_it_shows(tmp_path: Path) -> None:
    path = write_xlsx(
        tmp_path / "t.xlsx", [HEADER, *ROWS, ["Scrap", "", ""]], merged=["A2:A3", "A5:C9"]
    )
    assert [row[0] for row in read_workbook(str(path), None)] == [
        "Machine",
        "Press A",
        "Press A",
        "Press B",
        "Scrap",
    ]
    assert list(read_workbook(str(path), None))[-1] == ["Scrap"] * 3


def test_merged_ranges_and_rows_stand_where_they_do_also_behind_empty_rows_and_columns(
    tmp_path: Path,
) -> None:
    path = write_xlsx(
        tmp_path / "t.xlsx", [[], ["", *HEADER], *(["", *row] for row in ROWS)], merged=["B3:B4"]
    )
    first, *rest = read_workbook(str(path), None)
    assert not any(first)
    assert [row[:2] for row in rest] == [
        ["", "Machine"],
        ["", "Press A"],
        ["", "Press A"],
        ["", "Press B"],
    ]


@pytest.mark.parametrize(
    ("header", "merged", "said"),
    [
        (
            [["Part", "Visual", ""], ["", "Seal", "Result"]],
            ["A1:A2", "B1:C1"],
            '"Part", which reaches down to row 2',
        ),
        (
            [["Part", "Visual", ""]],
            ["B1:C1"],
            'such as "Visual"; give each column a name of its own',
        ),
    ],
)
def test_a_header_with_merged_cells_is_told(
    tmp_path: Path, header: list[list[Any]], merged: list[str], said: str
) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [*header, *ROWS], merged=merged)
    assert fault(path).startswith("1: the header has merged cells") and said in fault(path)


def test_a_title_over_all_columns_is_none_of_the_readers_business(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [["Log", "", ""], [], HEADER, *ROWS], merged=["A1:C1"])
    assert next(read_workbook(str(path), None)) == ["Log"] * 3


def test_hidden_sheets_are_read_by_name_alone(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [["lists"]], [HEADER, *ROWS], [["old"]], hidden=[1, 3])
    assert next(read_workbook(str(path), None)) == HEADER
    assert list(read_workbook(str(path), "S3")) == [["old"]]
    assert (
        'no sheet "S4"; there are "S1" (hidden), "S2", "S3" (hidden); name one by columns.sheet'
        in fault(path, "S4")
    )
    assert "hidden: " in fault(write_xlsx(path, [["lists"]], [], hidden=[1]))


def test_what_is_no_number_is_an_empty_cell() -> None:
    """So data frames write what is missing."""
    assert write_value(float("nan")) == write_value(None) == ""
    assert (write_value(2.0), write_value(0.1)) == ("2", "0.1")


def test_lengths_of_time_are_hours() -> None:
    assert write_value(datetime.timedelta(days=1, hours=3, minutes=30)) == "27.5"
    assert write_value(datetime.timedelta(hours=20)) == "20"


def test_lengths_of_time_of_a_sheet_are_hours(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [["Open"], [datetime.timedelta(days=1, hours=2)]])
    assert list(read_workbook(str(path), None)) == [["Open"], ["26"]]


def test_a_formula_that_was_never_computed_is_marked(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [["a", "b"], [1, "=A2*2"], [2, 4]])
    rows = list(read_workbook(str(path), None))
    assert [row[0] for row in rows] == ["a", "1", "2"] and rows[2][1] == "4"
    assert rows[1][1].split(MARK)[1] == "a formula that was never computed"


LIES = {
    "a cell in row 4,294,967,295": '<row r="4294967295"><c r="ZZZZZZ4294967295"><v>1</v></c></row>',
    "a cell at the last place": '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>',
    "a text that is not there": '<row r="2"><c r="A2" t="s"><v>99999999</v></c></row>',
}


@pytest.mark.parametrize("rows", LIES.values(), ids=LIES)
def test_a_workbook_that_lies_is_refused_in_bounded_memory(tmp_path: Path, rows: str) -> None:
    path = write_xlsx(tmp_path / "honest.xlsx", [HEADER, *ROWS])
    lying = tmp_path / "lying.xlsx"
    with ZipFile(path) as honest, ZipFile(lying, "w") as made:
        for name in honest.namelist():
            made.writestr(
                name, honest.read(name).replace(b"</sheetData>", f"{rows}</sheetData>".encode())
            )
    assert "cannot be read as a spreadsheet" in fault(lying)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 5 << 20  # KiB


def test_merged_ranges_that_overlap_are_refused(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [HEADER, *ROWS], merged=["A2:C4"] * 3)
    assert "merged cells overlap" in fault(path)
