"""Databases that judge rows by a query: SQLite and DuckDB in this process, others where they are
told of.

``STAGEB_POSTGRES`` and ``STAGEB_MYSQL`` are addresses of servers whose table ``tickets`` may be
made anew, such as ``host=127.0.0.1 port=5432 user=postgres`` and ``127.0.0.1:3306:user:database``;
``STAGEB_SPARK=1`` starts Spark, which needs Java.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import pytest

from stageb.guidance.exports.sql_dialects import DIALECTS

Rows = Sequence[Sequence[Any]]
Ask = Callable[[str, Mapping[str, str], Rows], Rows]  # a query, the columns' types, the rows

TYPES = {
    "sqlite": {"number": "REAL", "flag": "", "text": ""},
    "mysql": {"number": "DOUBLE", "flag": "BOOLEAN", "text": "TEXT"},
    "spark": {"number": "DOUBLE", "flag": "BOOLEAN", "text": "STRING"},
    "postgres": {"number": "DOUBLE PRECISION", "flag": "BOOLEAN", "text": "TEXT"},
    "duckdb": {"number": "DOUBLE", "flag": "BOOLEAN", "text": "TEXT"},
}


def import_engine(module: str, variable: str) -> Any:
    """The module that reaches an engine: where ``variable`` asks for it, one that cannot be
    imported is an error, and no reason to skip."""
    if variable not in os.environ:
        pytest.skip(f"{variable} is not set")
    return import_module(module)


def ask(
    engine: str, query: str, types: Mapping[str, str], rows: Rows, columns: int = 2
) -> list[tuple[str | None, ...]]:
    """The last columns of each row, verdict and rule by default, in their order; ``types``: what
    the table's columns hold, a number, a flag or a text."""
    numbered = [[float(number), *row] for number, row in enumerate(rows)]
    found = ENGINES[engine](query, {"row": "number", **types}, numbered)
    return [tuple(each)[-columns:] for each in sorted(found, key=lambda each: each[0])]


def _create(engine: str, types: Mapping[str, str]) -> str:
    columns = (
        f"{DIALECTS[engine].name(name)} {TYPES[engine][kind]}" for name, kind in types.items()
    )
    return f"CREATE TABLE tickets ({', '.join(columns)})"


def _ask_sqlite(query: str, types: Mapping[str, str], rows: Rows) -> Rows:
    with sqlite3.connect(":memory:") as opened:
        opened.execute(_create("sqlite", types))
        opened.executemany(f"INSERT INTO tickets VALUES ({', '.join('?' * len(types))})", rows)
        return opened.execute(query).fetchall()


def _ask_duckdb(query: str, types: Mapping[str, str], rows: Rows) -> Rows:
    duckdb, arrow = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow")
    kinds = {"number": arrow.float64(), "flag": arrow.bool_(), "text": arrow.string()}
    columns = zip(types.values(), zip(*rows, strict=True), strict=True)
    with duckdb.connect(":memory:") as opened:
        opened.register(
            "rows",
            arrow.table([arrow.array(column, kinds[kind]) for kind, column in columns], [*types]),
        )
        opened.execute(_create("duckdb", types))
        opened.execute("INSERT INTO tickets SELECT * FROM rows")
        found: Rows = opened.execute(query).fetchall()
        return found


def _ask_postgres(query: str, types: Mapping[str, str], rows: Rows) -> Rows:
    opened = _connect_postgres()
    opened.execute("DROP TABLE IF EXISTS tickets")
    opened.execute(_create("postgres", types))
    marks = ", ".join(f"CAST(%s AS {TYPES['postgres'][kind]})" for kind in types.values())
    opened.cursor().executemany(f"INSERT INTO tickets VALUES ({marks})", rows)
    found: Rows = opened.execute(query).fetchall()
    return found


@cache
def _connect_postgres() -> Any:
    connect = import_engine("psycopg", "STAGEB_POSTGRES").connect
    return connect(os.environ["STAGEB_POSTGRES"], autocommit=True)


def _ask_mysql(query: str, types: Mapping[str, str], rows: Rows) -> Rows:
    cursor = _connect_mysql().cursor()
    cursor.execute("DROP TABLE IF EXISTS tickets")
    cursor.execute(_create("mysql", types))
    cursor.executemany(f"INSERT INTO tickets VALUES ({', '.join(['%s'] * len(types))})", rows)
    cursor.execute(query)
    found: Rows = cursor.fetchall()
    return found


@cache
def _connect_mysql() -> Any:
    connect = import_engine("pymysql", "STAGEB_MYSQL").connect
    host, port, user, database = os.environ["STAGEB_MYSQL"].split(":")
    return connect(host=host, port=int(port), user=user, database=database, autocommit=True)


def _ask_spark(query: str, types: Mapping[str, str], rows: Rows) -> Rows:
    spark = _start_spark()
    schema = ", ".join(f"`{name}` {TYPES['spark'][kind]}" for name, kind in types.items())
    spark.createDataFrame([*rows], schema).createOrReplaceTempView("tickets")
    found: Rows = spark.sql(query.rstrip().rstrip(";")).collect()
    return found


@cache
def _start_spark() -> Any:
    spark = import_engine("pyspark.sql", "STAGEB_SPARK")
    builder = spark.SparkSession.builder.master("local[1]")
    for name, value in {
        "ui.enabled": "false",
        "sql.shuffle.partitions": "1",
        "log.level": "ERROR",
    }.items():
        builder = builder.config(f"spark.{name}", value)
    return builder.getOrCreate()


ENGINES: Mapping[str, Ask] = {
    "sqlite": _ask_sqlite,
    "duckdb": _ask_duckdb,
    "postgres": _ask_postgres,
    "mysql": _ask_mysql,
    "spark": _ask_spark,
}
