"""Which ticket files a report reads again: those of the run, as the run read them, near by or named
by the user."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from guidance.commands.report.runs import command, fit, page
from programs import small

ABSENT = ("ticket files are not found", "have changed since the run", "ticket files lie elsewhere")


def whole(root: Path) -> bool:
    return not any(said in page(root) for said in ABSENT) and "state: torn" in page(root)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "t.csv"
    path.parent.mkdir()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["Station", "Piece", "Seen", "Result"])
        for row in small.rows(groups=24):
            seen = " ".join(row["per_image"].values())
            wrong = row["group_id"].endswith("3")
            writer.writerow(
                [
                    "valves",
                    row["group_id"],
                    seen,
                    "OK" if (row["label"] == "pass") != wrong else "NG",
                ]
            )
    return path


COLUMNS = {
    "mission": "Station",
    "group_id": "Piece",
    "label": "Result",
    "passes": ["OK"],
    "fails": ["NG"],
    "texts": ["Seen"],
}


def test_tickets_of_a_table_are_read_by_the_runs_columns(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: dict[str, Any] = {f"columns__{name}": value for name, value in COLUMNS.items()}
    assert fit(tmp_path, table, **keys, runner__epochs=0).code == 0
    assert whole(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert command("report", "run").code == 0
    assert whole(tmp_path)
    monkeypatch.chdir(tmp_path / "run")
    assert command("report", str(tmp_path / "run")).code == 0
    assert "ticket files lie elsewhere; name them: stageb report RUN --tickets FILE ..." in page(
        tmp_path
    )
    assert command("report", str(tmp_path / "run"), "--tickets", str(table)).code == 0
    assert whole(tmp_path)


def test_tickets_with_images_are_taken_for_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (64, 48), "red").save(tmp_path / "seen.png")
    with (tmp_path / "t.jsonl").open("w") as file:
        for row in small.rows(groups=24):
            label = "fail" if row["group_id"].endswith("3") else row["label"]
            file.write(
                json.dumps({**row, "label": label, "images": ["seen.png", "seen.png"]}) + "\n"
            )
    assert fit(tmp_path, tmp_path / "t.jsonl", sampler__use_images=True, runner__epochs=0).code == 0
    monkeypatch.chdir(tmp_path)
    assert command("report", "run").code == 0
    assert not any(said in page(tmp_path) for said in ABSENT)
