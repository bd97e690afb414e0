"""``stageb.fit`` from Python: files, rows and DataFrames, the same rules as by the command, and
errors as exceptions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from programs import small

import stageb
from stageb.__main__ import main
from stageb.guidance.commands.use.fit import in_kind

pytestmark = pytest.mark.usefixtures("quick_starts")
KEYS: dict[str, Any] = {
    "config": ["tickets", "frugal"],
    "fabric": {"accelerator": "cpu", "devices": 1},
    "model": {"engine": "scripted"},
    "columns": {"mission_name": "valves", "group_id": None},
    "report": False,
}


def table() -> list[dict[str, str]]:
    """Rows as of a table; a valve fails if its state is torn."""
    found = []
    for row in small.rows("valves", 80):
        pairs = "; ".join(row["per_image"].values()).split("; ")
        found.append({**dict(pair.split(": ") for pair in pairs), "label": row["label"]})
    return found


def frame(rows: list[dict[str, str]]) -> Any:
    return pytest.importorskip("pandas").DataFrame(rows)


def file(rows: list[dict[str, str]]) -> Path:
    Path("table.csv").write_text(
        "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n"
    )
    return Path("table.csv")


@pytest.fixture(scope="module")
def by_command(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The guidance that the command learns from the table."""
    folder = tmp_path_factory.mktemp("command")
    with contextlib.chdir(folder):
        keys = [
            "--config=tickets",
            "--config=frugal",
            "--fabric.accelerator=cpu",
            "--fabric.devices=1",
            "--report=false",
        ]
        keys += [
            "--model.engine=scripted",
            "--columns=mission_name=valves,group_id=null",
            "--output.run_name=command",
        ]
        assert main(["fit", *keys, f"--tickets=[{file(table())}]"]) == 0
    return (folder / "out" / "command" / "valves" / "guidance.json").read_bytes()


@pytest.mark.parametrize("kind", [pytest.param(list, marks=pytest.mark.slow), frame, file])
def test_files_rows_and_frames_teach_what_the_command_teaches(
    kind: Callable[[Any], Any],
    by_command: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = table()
    run = stageb.fit(kind(rows), output={"run_name": "python"}, **KEYS)
    assert run.is_finished
    (rule,) = run.guidance["valves"].rules[1:]
    assert f"G1. {rule.text}" in capfd.readouterr().out
    assert Path("out/python/valves/guidance.json").read_bytes() == by_command
    given = kind([{**row, "label": ""} for row in rows[:20]])
    told = run.predict(given, by="rules")
    if kind is frame:
        assert list(told.index) == list(given.index) and type(told) is type(given)
        told = told.to_dict("records")
    assert [row["verdict"] for row in told] == [row["label"] for row in rows[:20]]
    assert run.evaluate(kind(rows), by="rules").figures["figures"]["guidance"]["all"]["acc"] == 1.0
    assert "G1" in run.report()._repr_html_()


@dataclass
class Frame:
    """As much of a DataFrame as rows come back in."""

    rows: list[dict[str, Any]]
    index: list[str] | None = None
    columns: ClassVar[Sequence[str]] = ("seal",)


def test_rows_come_back_in_the_kind_and_by_the_index_that_tickets_came_in() -> None:
    rows = [{"verdict": "pass"}, {"verdict": "fail"}]
    seals = [{"seal": "new"}, {"seal": "worn"}]
    assert in_kind(rows, Frame(seals, index=["b", "a"])) == Frame(rows, index=["b", "a"])
    assert in_kind(rows, seals) == rows


def test_columns_that_nobody_names_are_guessed_as_new_guesses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"Checked": "NG" if row["label"] == "fail" else "OK", **row} for row in table()]
    rows = [
        {name: row[name] for name in row if name != "label"} | {"Inspector": f"{n % 3}"}
        for n, row in enumerate(rows)
    ]
    run = stageb.fit(rows, **{name: value for name, value in KEYS.items() if name != "columns"})
    assert (run.config.columns.label, run.config.columns.passes, run.config.columns.group_id) == (
        "Checked",
        ["OK"],
        "number",
    )
    said = capsys.readouterr().out
    assert (
        "'label': 'Checked'" in said
        and 'no texts to judge by: "Inspector" (who judged a row, and when)' in said
    )
    assert len(run.guidance["tickets"].rules) > 1
    with pytest.raises(
        stageb.InputError,
        match=r"holds the right verdict, .* Say it with columns={'label': 'COLUMN'}",
    ):
        stageb.fit([{"x": "1", "y": "2"}, {"x": "3", "y": "4"}], model={"engine": "scripted"})


def test_what_cannot_be_used_raises_what_the_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for tickets, why in (([], "nothing was given"), (3, "int was given"), ("no.csv", "no.csv")):
        with pytest.raises(stageb.InputError, match=why):
            stageb.fit(tickets, **KEYS)
    with pytest.raises(stageb.InputError, match=r"seed"):
        stageb.fit(table(), **KEYS, seed="x")
    rows = [{"text": "two\nlines", "label": label} for label in ("pass", "fail", "")]
    with pytest.raises(stageb.InputError, match=r"csv:6: row 2, from 0: an empty label"):
        stageb.fit(rows, **KEYS)
    assert not list(Path().glob("out/*/commit.json"))


def test_remedies_say_what_to_write_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"Seal": "worn", "Checked": "NG"}, {"Seal": "new", "Checked": "OK"}]
    Path("t.csv").write_text("Seal,Checked\nworn,NG\nnew,OK\n")
    Path("g.json").write_text('{"valves": {"experiences": {"G0": "A valve passes."}}}')
    columns = {"mission_name": "valves", "group_id": None}
    with pytest.raises(stageb.InputError, match=r"or by columns={'label': 'NAME'}$"):
        stageb.fit(rows, **KEYS)
    with pytest.raises(stageb.InputError, match=r"columns={'passes': 'WORD', 'fails': 'WORD'}"):
        stageb.validate(tickets="t.csv", columns={**columns, "label": "Checked"})
    with pytest.raises(
        stageb.InputError,
        match=r"or by columns={'mission': 'NAME', 'group_id': 'NAME', 'label': 'NAME'}; ",
    ):
        stageb.evaluate(tickets="t.csv", guidance="g.json", by="rules")
    with pytest.raises(
        stageb.InputError,
        match=r"; columns={'group_id': None} where every row is a group of its own$",
    ):
        list(stageb.predict(tickets="t.csv", guidance="g.json", by="rules", output="p.jsonl"))


def test_rows_with_summaries_are_lines_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(small.rows("valves", 60))
    run = stageb.fit(rows, **{**KEYS, "columns": {}})
    (written,) = Path("out").glob("tickets-*.jsonl")
    assert [json.loads(line) for line in written.read_text().splitlines()] == rows
    assert len(run.guidance["valves"].rules) == 2


def test_an_interrupt_returns_the_run_as_far_as_its_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(small.rows())
    endless: dict[str, Any] = {
        "runner": {"epochs": 10_000},
        "early_stop": {"patience": None, "reflections": None},
    }

    def interrupt() -> None:
        timings = Path("out/run/timings.jsonl")
        while not timings.exists() or len(timings.read_text().splitlines()) < 2:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    run = stageb.fit(rows, fabric=KEYS["fabric"], model=KEYS["model"], report=False, **endless)
    assert not run.is_finished
    assert run.guidance["valves"].rules[0].key == "G0"


def test_callbacks_hear_of_rounds_and_edits_once_and_may_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rounds, edits = list[dict[str, Any]](), list[dict[str, Any]]()

    def hear_one(heard: dict[str, Any]) -> None:
        rounds.append(heard)
        raise KeyboardInterrupt

    keys = {**KEYS, "split": {"train": 0.6, "val": 0.2, "test": 0.2}}
    run = stageb.fit(table(), on_round=hear_one, **keys)
    assert not run.is_finished
    assert (rounds[0]["split"], rounds[0]["guidance_step"]) == ("val", 0)
    run = stageb.fit(table(), on_round=rounds.append, on_edit=edits.append, **keys)
    heard = [(each["epoch"], each["split"]) for each in rounds]
    assert len(set(heard)) == len(heard) and {split for _, split in heard} == {"val", "test"}
    assert rounds[-1]["right"] == rounds[-1]["tickets"]
    assert [each["rules"] for each in edits] == [
        {rule.key: rule.text for rule in run.guidance["valves"].rules}
    ]
    capfd.readouterr()
    with pytest.raises(stageb.InputError, match="give fresh=True to set it aside"):
        stageb.fit(table(), seed=18, **keys)
    # the exception tells it, once
    assert "holds a run with another config" not in capfd.readouterr().out
    stageb.fit(table(), fresh=True, on_edit=edits.append, **keys)
    assert len(edits) == 2

    def fail(_: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stageb.fit(table(), fresh=True, on_round=fail, **keys)


def test_with_no_config_rows_with_labels_of_any_kind_are_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "seal": ("worn", "good", "new")[n % 3],
            "length": 300 + n,
            "label": ("urgent", "repair", "fine")[n % 3],
        }
        for n in range(240)
    ]
    columns = {"mission_name": "valves", "group_id": None}
    run = stageb.fit(
        rows, columns=columns, report=False, fabric={"accelerator": "cpu", "devices": 1}
    )
    assert len(run.guidance["valves"].rules) > 1 and run.guidance["valves"].judge == "rules"
    told = run.predict(
        [{**row, "label": ""} for row in rows[:9]], fabric={"accelerator": "cpu", "devices": 1}
    )
    assert [row["verdict"] for row in told] == [row["label"] for row in rows[:9]]
