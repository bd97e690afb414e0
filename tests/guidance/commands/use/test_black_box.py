"""What a model that nobody can read reaches beside learnt rules, where scikit-learn is
installed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from programs import small

from stageb.__main__ import main
from stageb.guidance.commands.use import black_box
from stageb.guidance.commands.use.black_box import measure_on_test
from stageb.guidance.config import LoopConfig
from stageb.guidance.words.costs import PriceConfig
from stageb.guidance.words.types import Ticket

pytest.importorskip("sklearn")
CONFIG = LoopConfig(tickets=["t.jsonl"])


def made(text: str, count: int = 200) -> list[Ticket]:
    """Tickets that fail if the number in them is odd."""
    texts = (text.format(n=n, odd="seeping" if n % 2 else "dry") for n in range(count))
    return [
        Ticket("m", f"g-{n}", "fail" if n % 2 else "pass", (("image_1", each),))
        for n, each in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("found {odd} at bolt {n}", "logistic regression on words"),
        ("state: {odd}; size: {n}", "gradient boosting"),
    ],
)
def test_words_and_tables_have_the_model_that_suits_them(text: str, name: str) -> None:
    box = measure_on_test(CONFIG, made(text))["m"]
    assert (box.name, box.acc, box.cost) == (name, 1.0, 0.0)
    assert box.judged + box.trained_on < 200  # val takes no part


def test_prices_weigh_what_it_learns() -> None:
    """Of tickets that say the same a third fail: at equal prices all pass, and where a missed
    failure is dear, none."""
    tickets = [
        Ticket("m", f"g-{n}", "pass" if n % 3 else "fail", (("image_1", f"part: {n % 4}"),))
        for n in range(240)
    ]
    costs = {
        price: measure_on_test(
            LoopConfig(tickets=["t.jsonl"], price=PriceConfig(missed_failure=price)), tickets
        )["m"]
        for price in (1.0, 10.0)
    }
    assert costs[1.0].acc > 0.55 > 0.45 > costs[10.0].acc
    assert "at a cost of" in costs[10.0].describe({"fail": 10.0, "pass": 1.0})
    # none passes there: all errors are false alarms, at a price of 1 as all are at equal prices
    assert all(box.cost == pytest.approx(1 - box.acc, abs=2e-6) for box in costs.values())


def test_nothing_is_claimed_where_nothing_can_be_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        measure_on_test(
            CONFIG, [Ticket("m", str(n), "pass", (("image_1", f"size: {n}"),)) for n in range(40)]
        )
        == {}
    )
    monkeypatch.setattr(black_box, "find_spec", lambda name: None)
    assert measure_on_test(CONFIG, made("state: {odd}; size: {n}")) == {}


def test_it_stands_beside_the_results_of_fit_and_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # a run's tickets are looked for from here
    tickets, run = small.write(tmp_path / "t.jsonl", "valves"), tmp_path / "out" / "run"
    keys = {"runner.judge": "both", "reflection.scope": "all", "runner.epochs": 1, "report": True}
    assert main(small.arguments(tickets, tmp_path / "out", keys=keys)) == 0
    said = "a model that nobody can read (gradient boosting, taught by the same "
    assert f"valves, test: {said}" in capsys.readouterr().out
    assert said in (run / "report.html").read_text()
    assert (
        main(
            [
                "report",
                str(run),
                "--tickets",
                str(tickets),
                "--output",
                str(tmp_path / "again.html"),
            ]
        )
        == 0
    )
    assert said in (tmp_path / "again.html").read_text()
    new = small.write(tmp_path / "new.jsonl", "valves", groups=200)
    out = tmp_path / "measured"
    line = ["evaluate", f"--guidance={run}", f"--tickets={new}", f"--output={out}", "--by=rules"]
    line.append("--model.engine=scripted")
    assert main(line) == 0
    assert f"valves: {said}" in capsys.readouterr().out
    measured = json.loads((out / "evaluation.json").read_text())["black_box"]["valves"]
    assert (measured["name"], measured["judged"]) == ("gradient boosting", 200)
    tickets.unlink()  # then nobody knows what the run learnt from
    assert main([*line, "--fresh", f"--vocabulary={new}"]) == 0
    assert json.loads((out / "evaluation.json").read_text())["black_box"] == {}
