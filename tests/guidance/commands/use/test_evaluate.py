"""``stageb evaluate``, as a command and as a function."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from guidance.commands.use.made import guidance, options, rows, run_folder, tickets

import stageb
from stageb.__main__ import main
from stageb.guidance.commands.use.config import EvaluateConfig
from stageb.guidance.config import LoopConfig
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.costs import PriceConfig

GREEDY = {"sampler.samples_per_decode": 1, "sampler.grid": "[{temperature: 0}]"}


@pytest.mark.parametrize("by", [*permutations(["rules", "model", "both"])])
def test_who_is_named_first_judges_for_all_files(by: tuple[str, ...]) -> None:
    config = EvaluateConfig(guidance="g.json", tickets=["t.jsonl"], by=",".join(by))
    config.check()
    assert config.modes == [*by]


def test_two_guidances_on_the_same_tickets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: dict[str, Any] = {
        "guidance": guidance(tmp_path / "new.json", {"valves": "Fail if state is torn."}),
        "compare": guidance(tmp_path / "old.json", {"valves": "Fail if colour is red."}),
        "tickets": tickets(tmp_path / "in.jsonl", "valves"),
        "output": str(tmp_path / "out"),
        **GREEDY,
    }
    known = [name_content(ticket) for ticket in read_tickets([tmp_path / "in.jsonl"], "error")[0]][
        :2
    ]
    content = json.loads((tmp_path / "new.json").read_text())
    content["valves"]["taught_by"], content["valves"]["chosen_by"] = known
    (tmp_path / "new.json").write_text(json.dumps(content))
    # labelled wrong: the new guidance passes it, the old one too
    with (tmp_path / "in.jsonl").open("a") as opened:
        opened.write(
            '{"mission": "valves", "group_id": "g-w", "label": "fail", "per_image": {"1": '
            '"state: new"}}\n'
        )
    assert main(options("evaluate", keys)) == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    new, old = (found["figures"][name]["missions"]["valves"] for name in ("guidance", "compare"))
    given = rows(tmp_path / "in.jsonl")
    texts = [" ".join(row["per_image"].values()) for row in given]
    red = ["fail" if "red" in text else "pass" for text in texts]
    assert (new["n"], new["fp"], new["fn"], new["unanswered"]) == (41, 1, 0, 0)
    assert new["confusion"]["fail"] == {
        "pass": 1,
        "fail": sum("torn" in text for text in texts),
        "none": 0,
    }
    assert old["fp"] == sum(
        (row["label"], verdict) == ("fail", "pass") for row, verdict in zip(given, red, strict=True)
    )
    assert old["fn"] == sum(
        (row["label"], verdict) == ("pass", "fail") for row, verdict in zip(given, red, strict=True)
    )
    assert new["taught"] >= 2 and old["taught"] == 0
    paired = found["difference"]["missions"]["valves"]
    assert (paired["groups"], paired["won"], paired["lost"]) == (41, old["fp"] + old["fn"] - 1, 0)
    assert paired["p"] == 0.5 ** (paired["won"] - 1)
    assert paired["difference"] == pytest.approx(new["acc"] - old["acc"], abs=2e-6)
    (wrong,) = rows(tmp_path / "out" / "wrong.jsonl")
    assert (wrong["line"], wrong["verdict"], wrong["per_image"]) == (
        41,
        "pass",
        {"image_1": "state: new"},
    )
    changed = rows(tmp_path / "out" / "changed.jsonl")
    assert len(changed) == paired["won"]
    assert all(row["verdict"] == row["label"] != row["compared_verdict"] for row in changed)
    assert (
        "in.jsonl:41: valves, g-w: labelled fail, answered pass: G0: no rule speaks of it" in said
    )
    assert f"of 41 groups {paired['won']} are better, 0 worse; p = " in said
    assert "of these tickets taught the guidance its rules" in said
    letter = found["letter"]["valves"]  # the scripted model follows rules by their letter
    assert (letter["tickets"], letter["decided"], letter["followed"], letter["right"]) == (
        41,
        41,
        41,
        40,
    )
    assert "by their letter the rules decide 41 of 41 tickets, 97.6% of them rightly" in said
    again = stageb.evaluate(
        **{key.split(".")[0]: value for key, value in keys.items() if "." not in key}, **FUNCTION
    )
    assert again.figures == found
    assert list(again.wrong()) == [wrong]


def test_a_ticket_has_changed_where_one_of_two_guidances_is_right(tmp_path: Path) -> None:
    """Of several labels, both may be wrong in different ways."""
    keys: dict[str, Any] = {"output": str(tmp_path / "out"), "by": "rules"}
    for key, rule in (("guidance", "high if state is torn."), ("compare", "mid if state is torn.")):
        keys[key] = guidance(tmp_path / f"{key}.json", {"m": rule})
        content = json.loads(Path(keys[key]).read_text())
        content["m"]["labels"] = ["low", "mid", "high"]
        content["m"]["experiences"]["G0"] = "A ticket is low unless a rule says otherwise."
        Path(keys[key]).write_text(json.dumps(content))
    table = ["mission,group_id,label,state", "m,1,low,torn", "m,2,high,torn", "m,3,mid,torn"]
    keys["tickets"] = str(tmp_path / "t.csv")
    Path(keys["tickets"]).write_text("\n".join([*table, "m,4,low,new", "m,5,high,new", ""]))
    assert main(options("evaluate", keys)) == 0
    changed = rows(tmp_path / "out" / "changed.jsonl")
    assert [(row["group_id"], row["verdict"], row["compared_verdict"]) for row in changed] == [
        ("2", "high", "mid"),
        ("3", "high", "mid"),
    ]


FUNCTION: dict[str, Any] = {
    "model": {"engine": "scripted"},
    "fabric": {"accelerator": "cpu"},
    "sampler": {"samples_per_decode": 1, "grid": [{"temperature": 0}]},
}


@pytest.mark.parametrize("by", ["learnt", "both", "model,rules"])
@pytest.mark.parametrize(
    ("judge", "other"), [("", "rules"), ("rules", ""), ("model", "rules"), ("weighed", "model")]
)
def test_what_is_told_of_a_guidance_is_the_same_whatever_it_is_compared_with(
    by: str, judge: str, other: str, tmp_path: Path
) -> None:
    """Each may have been learnt with another judge."""

    def write(name: str, rule: str, judge: str) -> str:
        path = guidance(tmp_path / f"{name}.json", {"valves": rule})
        content = json.loads(Path(path).read_text())
        content["valves"]["judge"] = judge
        Path(path).write_text(json.dumps(content))
        return path

    keys: dict[str, Any] = {
        "guidance": write("new", "Fail if state is torn.", judge),
        "tickets": tickets(tmp_path / "in.jsonl", "valves"),
        "by": by,
        **FUNCTION,
    }
    compare = write("old", "Fail if colour is red.", other)
    alone = stageb.evaluate(**keys, output=str(tmp_path / "alone"))
    beside = stageb.evaluate(**keys, output=str(tmp_path / "beside"), compare=compare)
    [rule] = [row for row in alone.figures["letter"]["valves"]["rules"] if row["rule"] == "G1"]
    assert rule["text"] == "Fail if state is torn."
    assert rule["right"] == rule["decided"] > 0
    for name in ("letter", "by"):
        assert beside.figures[name] == alone.figures[name]
    assert beside.figures["figures"]["guidance"] == alone.figures["figures"]["guidance"]
    assert [*beside.wrong()] == [*alone.wrong()]


def test_errors_cost_what_the_user_says_or_what_the_run_learnt_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = LoopConfig(tickets=["t.jsonl"], price=PriceConfig(missed_failure=20.0))
    run = run_folder(
        tmp_path / "run", config, {"valves": "Fail if state is torn and colour is red."}
    )
    keys = {
        "guidance": run,
        "tickets": tickets(tmp_path / "in.jsonl", "valves"),
        "output": str(tmp_path / "out"),
        **GREEDY,
    }

    def cost(**given: object) -> tuple[str, dict[str, Any]]:
        assert main(options("evaluate", {**keys, **given})) == 0
        evaluation = json.loads((tmp_path / "out" / "evaluation.json").read_text())
        return capsys.readouterr().out, {
            **evaluation["figures"]["guidance"]["all"],
            "price": evaluation["price"],
        }

    said, found = cost()
    fails = found["confusion"]["fail"]
    assert found["price"] == {"missed_failure": 20.0, "false_alarm": 1.0}
    assert found["cost"] == 20 * fails["pass"] / 40 > 0
    always = (40 - sum(fails.values())) / 40  # at these prices, always fail
    assert (
        f". Cost a ticket: {found['cost']:.3f}, and {always:.3f} if all fail. NO BETTER THAN "
        f"ALWAYS FAIL" in said
    )
    commit = tmp_path / "out" / "predictions.jsonl.commit.json"
    judged = commit.stat().st_mtime_ns
    said, found = cost(**{"price.missed_failure": 1.5})
    assert found["cost"] == 1.5 * fails["pass"] / 40
    assert (
        f"Cost a ticket: {found['cost']:.3f}, and {1.5 * sum(fails.values()) / 40:.3f} if all "
        f"pass\n" in said
    )
    assert commit.stat().st_mtime_ns == judged, "another price judges nothing anew"
    assert "Cost a ticket" not in cost(**{"price.missed_failure": 1})[0]
    assert main(options("evaluate", {**keys, "price.false_alarm": 0})) == 2
    assert "price.false_alarm: 0.0: a number above 0" in capsys.readouterr().err


def test_where_prices_differ_two_guidances_are_told_apart_by_cost_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guidance that alarms at everything is right less often, and cheaper."""
    keys: dict[str, Any] = {
        "guidance": guidance(
            tmp_path / "new.json", {"valves": "Fail if state is torn or worn or new."}
        ),
        "compare": guidance(
            tmp_path / "old.json", {"valves": "Fail if state is torn and colour is red."}
        ),
        "tickets": tickets(tmp_path / "in.jsonl", "valves", groups=100),
        "output": str(tmp_path / "out"),
        "by": "rules",
    }
    assert main(options("evaluate", {**keys, "price.missed_failure": 20})) == 0
    said, found = (
        capsys.readouterr().out,
        json.loads((tmp_path / "out" / "evaluation.json").read_text()),
    )
    new, old = (found["figures"][name]["all"] for name in ("guidance", "compare"))
    paired = found["difference"]["missions"]["valves"]
    low, high = paired["cost_difference_interval"]
    assert paired["cost_difference"] == pytest.approx(new["cost"] - old["cost"], abs=2e-6)
    assert low < paired["cost_difference"] < high < 0 > paired["difference"]
    lines = [line for line in said.splitlines() if line.startswith("valves, ")]
    assert lines[0] == (
        f"valves, cost a ticket beside the compared guidance: {paired['cost_difference']:+.3f} "
        f"(95 % interval {low:+.3f} to {high:+.3f}): cheaper"
    )
    assert lines[1].startswith("valves, accuracy, whatever the prices: -")
    neither = "neither is shown to be cheaper"  # slightly dearer, and slightly cheaper
    for price, found in ((2, "dearer"), (4, neither), (5, neither)):
        assert main(options("evaluate", {**keys, "price.missed_failure": price})) == 0
        said = capsys.readouterr().out
        assert [line.endswith(f"): {found}") for line in said.splitlines()].count(True) == 1
    assert main(options("evaluate", keys)) == 0
    assert "whatever the prices" not in capsys.readouterr().out


def test_guidances_are_compared_where_their_labels_are_the_same_in_whatever_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of train tickets the most frequent one stands first."""

    def write(name: str, *labels: str) -> str:
        rules = {"G0": f"A ticket is {labels[0]} unless a rule says otherwise."}
        rules |= {"G1": f"{labels[1].capitalize()} if seal is worn."}
        content = {"mail": {"step": 1, "labels": labels, "experiences": rules}}
        (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / name)

    (tmp_path / "t.csv").write_text(
        "mission,group_id,seal,label\nmail,1,worn,low\nmail,2,new,high\n"
    )
    keys: dict[str, Any] = {
        "guidance": write("new.json", "high", "low", "mid"),
        "tickets": str(tmp_path / "t.csv"),
        "output": str(tmp_path / "out"),
        "by": "rules",
    }
    for labels in (("high", "low", "other"), ("high", "low"), ("high", "low", "mid", "other")):
        assert main(options("evaluate", {**keys, "compare": write("other.json", *labels)})) == 2
        assert "its labels of mission 'mail' are others" in capsys.readouterr().err
    keys["compare"] = write("old.json", "low", "mid", "high")
    assert main(options("evaluate", keys)) == 0
    assert "mail: +100.0 points" in capsys.readouterr().out


def test_labels_are_needed_once_each_and_for_both_guidances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tickets(tmp_path / "in.jsonl", "valves", "pumps", groups=2)
    with Path(path).open("a") as opened:
        opened.write('{"mission": "valves", "group_id": "x", "per_image": {"1": "a"}}\n')
        opened.write((tmp_path / "in.jsonl").read_text().splitlines()[0] + "\n")
    both = {"valves": "Fail if state is torn.", "pumps": "Fail if state is torn."}
    keys: dict[str, Any] = {
        "guidance": guidance(tmp_path / "new.json", both),
        "compare": guidance(tmp_path / "old.json", {"valves": "Fail if colour is red."}),
        "tickets": path,
        "output": str(tmp_path / "out"),
    }
    assert main(options("evaluate", keys)) == 2
    said = capsys.readouterr().err
    assert "4 unusable places in the ticket files" in said
    assert "in.jsonl:5: no label" in said
    assert "in.jsonl:6: ticket 'g-0::" in said
    assert "in.jsonl:2: mission 'pumps', for which there is no guidance" in said
    keys["compare"] = guidance(tmp_path / "old.json", {"taps": "Fail if colour is red."})
    assert main(options("evaluate", keys)) == 2
    assert (
        "in.jsonl:1: mission 'valves', for which there is no guidance; there is some for none"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()
