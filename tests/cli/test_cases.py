"""Small inputs that once went wrong, and what is right of each; skipped where they do not lie
beside the checkout."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from stageb.__main__ import main

CASES = Path(__file__).parents[3] / "shared" / "cases"
COLUMNS = ["--columns", "mission_name=racks,group_id=Rack,label=Checked,passes=OK,fails=NG"]

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not there")


def judge(case: str, out: Path, table: str = "t.csv") -> dict[str, str | None]:
    """The verdict of each row by the case's rules as code."""
    place = CASES / case
    arguments = [
        "--guidance",
        str(place / "g.json"),
        "--tickets",
        str(place / table),
        "--output",
        str(out / "o.jsonl"),
    ]
    assert main(["predict", *arguments, "--by", "rules", "--fresh", *COLUMNS]) == 0
    rows = [json.loads(line) for line in (out / "o.jsonl").read_text("utf-8").splitlines()]
    return {row["group_id"]: row["verdict"] for row in rows}


@pytest.mark.parametrize(
    ("case", "verdicts"),
    [
        ("nfd", {"r0": "fail", "r1": "fail", "r2": "fail"}),
        ("units", {**dict.fromkeys(["r2", "r3", "r5", "r6", "r7"]), "r1": "fail"}),
        ("column-names", {}),
    ],
)
def test_equal_things_get_equal_verdicts(
    case: str, verdicts: Mapping[str, str | None], tmp_path: Path
) -> None:
    judged = judge(case, tmp_path)
    assert verdicts.items() <= judged.items()
    if case == "column-names":
        assert None not in judged.values()


def test_no_verdict_hangs_on_the_order_of_columns_or_of_what_a_cell_lists(tmp_path: Path) -> None:
    assert judge("dot-by-position", tmp_path, "a.csv") == judge(
        "dot-by-position", tmp_path, "b.csv"
    )
    listed = judge("multi-value-cell", tmp_path)
    assert listed["r-2"] == listed["r-4"]


@pytest.mark.parametrize("case", ["sql-cells", "sql-sharp-s"])
def test_exported_sql_judges_as_the_rules_do_or_says_that_it_cannot(
    case: str, tmp_path: Path
) -> None:
    place, query = CASES / case, tmp_path / "rules.sql"
    judged = judge(case, tmp_path)
    exported = [
        "--tickets",
        str(place / "t.csv"),
        *COLUMNS,
        "--format",
        "sql",
        "--output",
        str(query),
    ]
    code = main(["guidance", "export", str(place / "g.json"), *exported])
    with (place / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    database = sqlite3.connect(":memory:")
    names = ", ".join(f'"{name}"' for name in rows[0])
    database.execute(f"create table tickets ({names})")
    database.executemany(
        f"insert into tickets values ({', '.join('?' * len(rows[0]))})",
        [[*row.values()] for row in rows],
    )
    found = {row[0]: row[len(rows[0])] for row in database.execute(query.read_text("utf-8"))}
    differing = {name for name, verdict in found.items() if verdict != judged[name]}
    assert {found[name] for name in differing} <= {None}
    assert code == (1 if differing else 0)


@pytest.mark.parametrize(
    "table", ["dollar", "minus", "plus", "lead", "eplain", "thousp", "thouap", "date", "time"]
)
def test_numbers_in_dress_are_read_or_named(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = CASES / "numbers-in-dress" / f"{table}.csv"
    config = ["--config", "tickets", "--config", "frugal", "--model.engine", "scripted"]
    assert main(["validate", *config, "--tickets", str(path), *COLUMNS]) == 0
    printed = capsys.readouterr()
    is_named = "are not read as numbers" in printed.out + printed.err
    assert is_named == (table not in {"dollar", "minus", "plus", "lead", "eplain"})


@pytest.mark.parametrize(
    "file", ["onlyrect", "rectok_plus_unlabelled", "ellipse_nolab", "brush_nolab"]
)
def test_a_region_without_a_label_teaches_nothing_in_silence(file: str, tmp_path: Path) -> None:
    place = CASES / "label-studio-rectangle"
    arguments = [
        str(place / f"{file}.json"),
        "--images",
        str(place / "img"),
        "--to",
        str(tmp_path / "o.jsonl"),
    ]
    assert main(["boxes", "label_studio", *arguments]) != 0
    assert not (tmp_path / "o.jsonl").exists()


def test_boxes_as_fractions_are_refused(tmp_path: Path) -> None:
    place = CASES / "normalised-boxes"
    to = ["--images", str(place / "img"), "--to", str(tmp_path / "o.jsonl")]
    assert main(["boxes", "coco", str(place / "norm.json"), *to]) != 0
    assert main(["boxes", "voc", str(place / "norm1"), "--to", str(tmp_path / "v.jsonl")]) != 0
