"""Rules as a dbt model: it builds, its tests pass, and it judges as code does, where ``STAGEB_DBT``
names dbt's program."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from guidance.exports.kinds import KINDS, make_missions
from guidance.exports.test_export import ROWS, TEXTS, coded, ticket
from times import TIMES

from stageb.errors import InputError
from stageb.guidance.exports.dbt import DbtExporter
from stageb.guidance.exports.sql import judge_rows, limit_to_sql
from stageb.guidance.exports.sql_dialects import DIALECTS
from stageb.guidance.rules.candidates import reading

PROFILE = "stageb: {target: dev, outputs: {dev: {type: duckdb, path: tickets.db}}}\n"
PROJECT = "name: stageb\nprofile: stageb\nmodel-paths: [models]\n"


@pytest.mark.parametrize("name", ["table", "decimal commas", "numbers", "booleans"])
def test_dbt_builds_the_model_and_its_tests_pass(name: str, tmp_path: Path) -> None:
    if "STAGEB_DBT" not in os.environ:
        pytest.skip("STAGEB_DBT names no program")
    duckdb, arrow = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow")
    (tmp_path / "models").mkdir()
    (tmp_path / "profiles.yml").write_text(PROFILE)
    (tmp_path / "dbt_project.yml").write_text(PROJECT)
    (tmp_path / "models/tickets.sql").write_text("select * from raw_tickets")
    kind, judged = KINDS[name], 0
    for mission, rows in make_missions(name, kind, 3, 60 if TIMES == 1 else 600 * TIMES):
        try:
            files = DbtExporter().write([mission], DIALECTS["duckdb"]).files
        except InputError:  # SQL would give no ticket a verdict
            continue
        assert isinstance(files, dict)
        for file, text in files.items():
            (tmp_path / "models" / file).write_text(text)
        judged += len(rows)
        cells = [
            {column: None if row.get(column) == "" else row.get(column) for column in kind.values}
            for row in rows
        ]
        columns = {column: [row[column] for row in cells] for column in kind.values}
        if not kind.is_typed and name != "booleans":
            columns = {
                column: [None if cell is None else str(cell) for cell in each]
                for column, each in columns.items()
            }
        columns = {column: [float(cell) if isinstance(cell, int) and not isinstance(cell, bool) else cell for cell in each]
                   for column, each in columns.items()}  # fmt: skip
        with duckdb.connect(str(tmp_path / "tickets.db")) as opened:
            opened.register("rows", arrow.table({"row": list(range(len(rows))), **columns}))
            opened.execute("CREATE OR REPLACE TABLE raw_tickets AS SELECT * FROM rows")
        ran = subprocess.run(
            [os.environ["STAGEB_DBT"], "build"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout
        with duckdb.connect(str(tmp_path / "tickets.db")) as opened:
            found = opened.execute("SELECT verdict, rule FROM judged_m ORDER BY row").fetchall()
        judge, is_whole = mission.coded.compile(), not limit_to_sql(mission).unreadable
        for each, (verdict, rule) in zip(mission.tickets, found, strict=True):
            wanted = (None, "") if each.is_blank else judge(reading(each))[:2]
            assert (verdict, rule or "") == wanted or (
                not is_whole and verdict in (None, wanted[0])
            ), each
    assert judged


def test_its_tests_expect_what_the_query_gives() -> None:
    """Not what the rules say where words decide, or where a cell may be read otherwise."""
    words = "Fail if a summary mentions rust."
    known = [ticket(row, note) for row in ROWS for note in ("", "; rust at the rim")]
    mission = replace(coded([words, "Pass if État is bas.", *TEXTS], known), tickets=known)
    files = DbtExporter().write([mission], DIALECTS["sqlite"]).files
    assert isinstance(files, dict)
    (test,) = yaml.safe_load(files["judged_m.yml"])["unit_tests"]
    (given,), expected = test["given"], test["expect"]["rows"]
    found = judge_rows(limit_to_sql(mission), given["rows"])
    assert [(row["verdict"], row["rule"]) for row in expected] == found
    assert {verdict for verdict, _ in found} == {"pass"}  # words may fail all others


def test_missions_whose_names_fold_alike_have_models_of_their_own_for_their_own_rows() -> None:
    """And a mission alone needs no column that names it."""
    seals = ("worn", "new", "\U0001f642")
    known = [ticket({"Seal": seal}) for seal in seals]
    missions = [
        replace(
            coded([f"Fail if Seal is {seal}."], known), name=name, tickets=known, letters=seals[2]
        )
        for name, seal in (("Lids!", "worn"), ("lids", "new"), ("LIDS?", "worn or new"))
    ]
    names = [mission.name for mission in missions]
    models = ["judged_lids", "judged_lids_2", "judged_lids_3"]
    verdicts = ["fail", "pass", "fail"]  # of a row whose seal is worn
    for written in (missions, missions[1:2]):
        files = DbtExporter().write(written, DIALECTS["sqlite"]).files
        assert isinstance(files, dict)
        assert [*files] == [
            f"{model}.{kind}" for model in models[: len(written)] for kind in ("sql", "yml")
        ]
        several = len(written) > 1
        for mission, model in zip(written, models, strict=False):
            name = mission.name
            query = files[f"{model}.sql"].replace("{{ ref('tickets') }}", "tickets")
            with sqlite3.connect(":memory:") as opened:
                opened.execute(f"CREATE TABLE tickets ({'mission, ' * several}Seal)")
                for other in names if several else [""]:
                    cells = [other, "worn"] if several else ["worn"]
                    opened.execute(f"INSERT INTO tickets VALUES ({'?, ' * several}?)", cells)
                found = opened.execute(query).fetchall()
            verdict = verdicts[names.index(name)]
            assert [row[:-1] for row in found] == [(*[name] * several, "worn", verdict)]
            (test,) = yaml.safe_load(files[f"{model}.yml"])["unit_tests"]
            own = {"mission": name} if several else {}
            rows = test["given"][0]["rows"]
            assert rows == [{"Seal": seal, **own} for seal in seals]


def test_templates_read_nothing_of_what_rules_say() -> None:
    mission = coded(
        [*TEXTS, "Fail if Seal is {{ x }} or {% y %} or {# z."],
        [ticket({**ROWS[0], "Seal": "{{ x }}"})],
    )
    files = DbtExporter().write([mission], DIALECTS["duckdb"]).files
    assert isinstance(files, dict)
    for text in files.values():
        plain = re.sub(r"\{\{ '(\{[{%#])' \}\}", "", text.replace("{{ ref('tickets') }}", ""))
        assert not re.search(r"\{[{%#]", plain)
