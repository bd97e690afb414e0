"""Rules as SQL in DuckDB over Parquet: rows judged a second, in pieces, with a limit on memory.

``bin/bench lake --rows 1000000000 --folder /tmp/lake``: made-up machines with six columns of
numbers, which DuckDB writes, a file at a time. The query is what ``stageb guidance export --format
sql --dialect duckdb --typed`` gives; each file is read and judged, and its rows are written with
their verdicts. Some rows of the first file are judged by ``stageb predict --by rules`` as well:
both must say the same.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from lab.bench.rows import tell
from stageb.config import require
from stageb.job.process import count_cores

MISSION = "milling"
RULES = (
    "A ticket passes unless a rule fails it.",
    "Fail if Torque Nm is above 60 and Speed rpm is below 1400.",
    "Fail if Wear min is above 200 and Grade is below 3.",
    "Fail if Air K is above Process K.",
    "Pass if Grade is 1 and Wear min is below 50.",
    "Fail if Torque Nm is above 65 unless Grade is 1.",
    "Fail if Torque Nm is below 10.",
)
ROWS = """SELECT 1 + CAST(floor(3 * random()) AS INTEGER) AS "Grade", round(295 + 10 * random(), 1) AS "Air K",
    round(300 + 15 * random(), 1) AS "Process K", round(1100 + 1800 * random()) AS "Speed rpm",
    round(3 + 74 * random(), 1) AS "Torque Nm", round(250 * random(), 1) AS "Wear min" FROM range({rows})"""
COLUMNS = f"mission_name={MISSION},group_id=null"
SAMPLE = 20_000  # rows that predict judges, too


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="bin/bench lake", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="in all (default 10000000)")
    parser.add_argument(
        "--piece", type=int, default=10_000_000, help="of one file (default 10000000)"
    )
    parser.add_argument(
        "--folder", type=Path, required=True, help="where to write; what is there stays"
    )
    parser.add_argument("--memory", default="2GB", help="that DuckDB may take (default 2GB)")
    given = parser.parse_args(arguments)
    require(
        given.rows >= given.piece >= SAMPLE,
        "--piece",
        given.piece,
        f"{SAMPLE} or more, and no more than --rows",
    )
    given.folder.mkdir(parents=True, exist_ok=True)
    lake = duckdb.connect()
    lake.execute(
        f"SET threads = {count_cores()}; SET memory_limit = '{given.memory}'; SET "
        f"preserve_insertion_order = false"
    )
    query, judging, made = None, 0.0, 0
    for number in range(-(-given.rows // given.piece)):
        piece, judged = (
            given.folder / f"{number}.parquet",
            given.folder / f"judged-{number}.parquet",
        )
        lake.execute(f"COPY ({ROWS.format(rows=min(given.piece, given.rows - made))}) TO '{piece}'")
        lake.execute(f"CREATE OR REPLACE VIEW tickets AS SELECT * FROM read_parquet('{piece}')")
        query = query or write_query(given.folder, lake)
        began = time.perf_counter()
        lake.execute(f"COPY ({query}) TO '{judged}'")
        judging += time.perf_counter() - began
        made = min(made + given.piece, given.rows)
        tell({"rows": made, "seconds": judging, "rows/s": made / judging})
        for each in (piece, judged):
            each.unlink()
    cores, peak = count_cores(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    tell({"cores": cores, "GiB": peak, "CPU seconds, rows written too": time.process_time()})
    return 0


def write_query(folder: Path, lake: duckdb.DuckDBPyConnection) -> str:
    """The rules as a query, once it says of some rows what ``stageb predict`` says."""
    names = {
        name: str(folder / name)
        for name in ("rules.json", "sample.parquet", "rules.sql", "rows.jsonl")
    }
    texts = {f"G{number}": text for number, text in enumerate(RULES)}
    Path(names["rules.json"]).write_text(json.dumps({MISSION: {"experiences": texts}}))
    lake.execute(f"COPY (SELECT * FROM tickets LIMIT {SAMPLE}) TO '{names['sample.parquet']}'")
    stageb = [sys.executable, "-m", "stageb"]
    form = [
        "--format",
        "sql",
        "--dialect",
        "duckdb",
        "--typed",
        "--tickets",
        names["sample.parquet"],
        "--columns",
        COLUMNS,
    ]
    subprocess.run(
        [*stageb, "guidance", "export", names["rules.json"], *form, "--output", names["rules.sql"]],
        check=True,
    )
    judged = [
        "--guidance",
        names["rules.json"],
        "--tickets",
        names["sample.parquet"],
        "--output",
        names["rows.jsonl"],
    ]
    subprocess.run(
        [*stageb, "predict", *judged, "--by", "rules", "--fresh", "--columns", COLUMNS], check=True
    )
    query = Path(names["rules.sql"]).read_text().rstrip().rstrip(";")
    beside = duckdb.connect()
    beside.execute(
        f"SET threads = 1; CREATE VIEW tickets AS SELECT * FROM "
        f"read_parquet('{names['sample.parquet']}')"
    )
    found = beside.execute(f"SELECT verdict, rule FROM ({query})").fetchall()
    rows = map(json.loads, Path(names["rows.jsonl"]).read_text().splitlines())
    told = [(row["verdict"], row["rule"]) for row in rows]
    assert found == told, "SQL and code differ"
    return query
