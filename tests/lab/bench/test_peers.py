"""Guidance beside other tools: what is counted, what a late fit leaves, and what the table
compares."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from lab.bench import guidance, peers, rivals
from lab.bench.__main__ import main
from lab.bench.peers import Fit
from stageb.errors import InputError
from stageb.guidance.rules.parse import RuleCode, parse_rule
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.vocabulary import Vocabulary
from stageb.guidance.words.types import Content, Ticket


def ticket(number: int, label: str, colour: str, weight: str | None, text: str) -> Ticket:
    pairs = {"colour": colour, **({"weight": weight} if weight else {})}
    return Ticket(
        "m",
        f"t{number}",
        label,
        (("image_1", text),),
        content=Content(tuple(pairs.items()), (text,)),
    )


TICKETS = [
    ticket(
        n,
        "pass" if n % 2 else "fail",
        ["red", "blue", "green"][n % 3],
        str(n / 2) if n else None,
        "loose bolt",
    )
    for n in range(24)
]


def test_each_of_several_values_counts_apart() -> None:
    code = parse_rule(
        "Fail if colour is red or blue and weight is above 3.", Vocabulary.of(TICKETS), WORDS["en"]
    )
    assert isinstance(code, RuleCode)
    assert guidance._count(code.expression) == (2, 3)


def test_columns_are_those_of_the_train_tickets() -> None:
    pytest.importorskip("pandas")
    columns = rivals.find_columns(TICKETS, [ticket(99, "pass", "violet", None, "loose nut")])
    train, test = rivals._make_binary(columns)
    assert list(train) == list(test)
    assert {
        "colour is red",
        "weight as a number",
        "weight is there",
        "mentions loose",
        "mentions bolt",
    } <= {*train}
    assert test["weight as a number"][0] == 6.0  # the median of those that have one
    assert (
        test[["colour is red", "colour is blue", "colour is green", "mentions bolt"]].sum(axis=None)
        == 0
    )


def test_late_fits_are_ended_and_none_is_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "tickets.jsonl").touch()
    out = tmp_path / "results.jsonl"

    def learn(fit: Fit, path: Path, limit: float) -> dict[str, object]:
        if fit.size == 5:
            time.sleep(60)
        if fit.size == 10:
            raise ValueError("no such thing")
        return {"accuracy": 0.5, "conditions": 3, "apart": 4}

    monkeypatch.setattr(peers, "_learn", learn)
    words = [
        "--data",
        str(tmp_path),
        "--sets",
        "made",
        "--seeds",
        "1",
        "--tools",
        "stageb",
        "--out",
        str(out),
        "--limit",
        "1",
    ]
    started = time.monotonic()
    assert main(["peers", *words, "--sizes", "5", "10", "20", "--processes", "2"]) == 0
    assert time.monotonic() - started < 30
    rows = {row["size"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert "not done in 1 s" in rows[5]["failed"]
    assert rows[10]["failed"] == "ValueError: no such thing"
    assert rows[20]["accuracy"] == 0.5
    before = out.read_text()
    assert main(["peers", *words, "--sizes", "5", "10", "20"]) == 0
    assert out.read_text() == before
    assert "stageb 20: 3 conditions" in capsys.readouterr().out


def test_only_sets_that_both_have_are_compared() -> None:
    def row(name: str, tool: str, size: int, accuracy: float) -> dict[str, object]:
        return {
            "name": name,
            "seed": 1,
            "tool": tool,
            "size": size,
            "accuracy": accuracy,
            "conditions": size,
            "apart": size,
        }

    rows = [
        *(row("a", "stageb", 10, 0.9), row("b", "stageb", 10, 0.8), row("c", "stageb", 10, 0.1)),
        *(row("a", "figs", 5, 0.95), row("a", "figs", 10, 0.7), row("b", "figs", 10, 0.7)),
    ]
    (line,) = [line for line in peers.tabulate(rows) if "figs" in line and line.split()[0] == "10"]
    assert line.split()[:5] == ["10", "figs", "70.0", "85.0", "+15.0"]
    assert line.split()[-3:] == ["+2.5", "2", "0"]  # beside 95 % with 5 conditions on the first set


def test_a_picture_needs_a_set_that_all_tools_have(tmp_path: Path) -> None:
    rows = [
        {"name": "a", "seed": 1, "tool": tool, "size": size, "accuracy": 0.5 + size / 100}
        for tool in peers.TOOLS
        for size in rivals.SIZES_OF.get(tool, rivals.SIZES)
    ]
    peers.draw(rows, tmp_path / "all.png")
    peers.draw(
        [row for row in rows if row["tool"] != "ebm" and row["size"] != 5], tmp_path / "some.png"
    )
    assert (
        (tmp_path / "all.png").read_bytes()[1:4]
        == (tmp_path / "some.png").read_bytes()[1:4]
        == b"PNG"
    )
    with pytest.raises(InputError, match="no set"):
        peers.draw([row for row in rows if row["tool"] != "figs"], tmp_path / "none.png")
