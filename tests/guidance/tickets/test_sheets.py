"""Spreadsheets and Parquet files say what the same table says as CSV."""

import datetime
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from guidance.made_sheets import write_xlsx
from pyarrow import parquet

from stageb.errors import BadInputError
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.columns import ColumnsConfig

COLUMNS = ColumnsConfig(mission_name="pumps", group_id="id")
HEADER = ["id", "label", "seal", "pressure", "seen"]
ROWS: list[list[Any]] = [
    [1, "pass", 'dry, "good"\nas new', 2.5, datetime.date(2024, 3, 1)],
    [2, "fail", None, 1e20, datetime.date(2024, 3, 2)],
    [3, "pass", "a\tb; ß", 0.1, None],
]
CSV = (
    "id,label,seal,pressure,seen\n"
    '1,pass,"dry, ""good""\nas new",2.5,2024-03-01\n'
    "2,fail,,100000000000000000000,2024-03-02\n"
    '3,pass,"a\tb; ß",0.1,\n'
)


def write_parquet(path: Path) -> Path:
    parquet.write_table(pyarrow.table([list(column) for column in zip(*ROWS, strict=True)], names=HEADER), path)
    return path


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_a_sheet_says_what_its_csv_says(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t.csv").write_text(CSV)
    path = tmp_path / f"t.{kind}"
    _ = write_xlsx(path, [HEADER, *ROWS]) if kind == "xlsx" else write_parquet(path)
    said, _ = read_tickets([tmp_path / "t.csv"], "error", COLUMNS)
    found, _ = read_tickets([path], "error", COLUMNS)
    assert [(each.key, each.per_image, each.content) for each in found] == [
        (each.key, each.per_image, each.content) for each in said
    ]


def test_a_fault_names_the_row_of_the_sheet(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [HEADER, ROWS[0], [], ["", "fail", "worn", 1, ""]])
    with pytest.raises(BadInputError) as raised:
        read_tickets([path], "error", COLUMNS)
    assert [bad.line for bad in raised.value.bad] == [4]


def test_of_several_sheets_none_is_guessed(tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "t.xlsx", [HEADER, *ROWS], [["notes"]])
    with pytest.raises(BadInputError, match='2 sheets with something in them: "S1", "S2"'):
        read_tickets([path], "error", COLUMNS)
    assert len(read_tickets([write_xlsx(path, [HEADER, *ROWS], [])], "error", COLUMNS)[0]) == 3


def test_what_its_reader_stumbles_over_is_refused(tmp_path: Path) -> None:
    book = write_xlsx(tmp_path / "zip.xlsx", [HEADER, *ROWS])
    book.write_bytes(book.read_bytes().replace(b"PK\1\2\x14\3\x14", b"PK\1\2\x14\3\xe9"))  # of a later kind of archive
    text = write_parquet(tmp_path / "text.parquet")
    text.write_bytes(text.read_bytes().replace(b"as new", b"as \xff\xff\xff"))
    for path in (book, text):
        with pytest.raises(BadInputError, match="cannot be read as"):
            read_tickets([path], "error", COLUMNS)
