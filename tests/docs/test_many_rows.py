"""The recipes for workers, on this machine: frames judged by the exported module as ``predict``
judges the file."""

from __future__ import annotations

import importlib
import json
import random
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from docs.pages import DOCS, blocks

import stageb
from stageb.__main__ import main

RULES = {
    "G0": "A ticket passes unless a rule fails it.",
    "G1": "Fail if Torque is above 60 and Speed is below 1400.",
}
NAMED = [["Torque", "0"], ["Speed", "0"]]
PARQUET = "out/rows/new.parquet"  # as the page names it
Judged = list[tuple[float, str | None, str | None]]  # Speed, which names a row; verdict and rule


class Recipes(NamedTuple):
    """The page's blocks of Python, by what they name, and what their rows should say."""

    names: dict[str, Any]  # what the first block defines
    spark: str
    ray: str
    told: Judged


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipes:
    pandas = pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "out" / "rows")
    Path("out/rows").mkdir(parents=True)
    dice = random.Random(1)
    speeds = dice.sample(range(1300, 1900), 300)
    torques = [dice.choice([dice.uniform(50, 70), None]) for _ in speeds]
    pandas.DataFrame({"Torque": torques, "Speed": speeds}).to_parquet(PARQUET)
    Path("rules.json").write_text(json.dumps({"milling": {"experiences": RULES, "named": NAMED}}))
    export = ["guidance", "export", "rules.json", "--format", "python"]
    assert main([*export, "--output", "out/rows/rules.py"]) == 0
    columns = {"mission_name": "milling", "group_id": None}
    judge: dict[str, Any] = {"guidance": "rules.json", "tickets": PARQUET, "by": "rules"}
    found = stageb.predict(**judge, output="p.jsonl", columns=columns)
    told = [(speed, row["verdict"], row["rule"]) for speed, row in zip(speeds, found, strict=True)]
    assert {verdict for _, verdict, _ in told} == {"pass", "fail", None}
    code = [
        block.text for block in blocks(DOCS / "guides" / "many-rows.md") if block.info == "python"
    ]
    frames, spark, ray = code
    names: dict[str, Any] = {"__name__": "__main__"}  # what is made there goes to workers by value
    exec(frames, names)
    importlib.invalidate_caches()
    return Recipes(names, spark, ray, sorted(told))


def read(frame: Any) -> Judged:
    """The rows of a frame of pandas."""
    texts = frame[["verdict", "rule"]].astype(object)
    rows = texts.where(texts.notna(), None).itertuples(index=False)
    return sorted((speed, *row) for speed, row in zip(frame["Speed"], rows, strict=True))


def test_frames_are_judged_as_predict_judges_their_file(recipes: Recipes) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_parquet(PARQUET)
    judged = recipes.names["judge_frames"](iter([frame[:100], frame[100:]]))
    assert read(pandas.concat(judged)) == recipes.told


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_spark_judges_as_predict(recipes: Recipes) -> None:
    pandas, spark = pytest.importorskip("pandas"), pytest.importorskip("pyspark.sql").SparkSession
    if not shutil.which("java"):
        pytest.skip("Spark needs Java")
    # the session that the recipe gets
    builder = spark.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    try:
        exec(recipes.spark, recipes.names)
    finally:
        session.stop()
    assert read(pandas.read_parquet("out/rows/by-spark")) == recipes.told


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ray_judges_as_predict(recipes: Recipes) -> None:
    pandas, ray = pytest.importorskip("pandas"), pytest.importorskip("ray")
    pytest.importorskip("ray.data")
    try:
        exec(recipes.ray, recipes.names)
    finally:
        ray.shutdown()
    assert read(pandas.read_parquet("out/rows/by-ray")) == recipes.told
