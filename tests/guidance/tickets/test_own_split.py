"""Tickets that say which split they are of, files that are one, and what is refused of either."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs import small

import stageb
from stageb.__main__ import main
from stageb.errors import BadInputError, ConfigError
from stageb.guidance.commands.fit.first_guidance import check_sealed
from stageb.guidance.commands.fit.inputs import Inputs, read_inputs
from stageb.guidance.config import GuidanceConfig, LoopConfig, SplitConfig
from stageb.guidance.rules.guidance_json import to_json
from stageb.guidance.rules.prompts import WORDS
from stageb.guidance.rules.read_guidance import make_neutral
from stageb.guidance.tickets.groups import name_content
from stageb.guidance.tickets.splits import SPLITS, note_tickets, split_tickets
from stageb.guidance.tickets.tickets import fingerprint
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Split, Ticket

COLUMNS = ColumnsConfig(mission_name="m", group_id="case", label="result", split="part")
WORDS_OF_SPLITS = ("train", "Validation", "TEST", "val")


def write(name: str, rows: list[dict[str, Any]]) -> str:
    """A table, or JSON Lines with a summary of what is no column of its own."""
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        if name.endswith(".csv"):
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
        for row in rows if name.endswith(".jsonl") else ():
            line = {
                "mission": "m",
                "group_id": row["case"],
                "label": row["result"],
                "part": row["part"],
            }
            file.write(json.dumps({**line, "per_image": {"1": f"seal: {row['seal']}"}}) + "\n")
    return name


def cases(count: int, start: int = 0) -> list[dict[str, Any]]:
    """Rows that all say something else, of a split each."""
    rows = [
        {"case": f"c-{n}", "seal": n, "result": "fail" if n % 3 else "pass"}
        for n in range(start, start + count)
    ]
    return [
        {**row, "part": WORDS_OF_SPLITS[n % len(WORDS_OF_SPLITS)]} for n, row in enumerate(rows)
    ]


def read(*files: str, columns: ColumnsConfig = COLUMNS, **shares: Any) -> Inputs:
    return read_inputs(
        LoopConfig(tickets=list(files), columns=columns, split=SplitConfig(**shares))
    )


def names_by_split(inputs: Inputs) -> dict[str, set[str]]:
    splits = inputs.splits["m"]
    return {split: {inputs.tickets[i].group_id for i in splits.of(split)} for split in SPLITS}


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
def test_tickets_are_of_the_split_that_they_say_which_no_rule_reads(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = cases(80)
    inputs = read(write(name, rows))
    told = {
        split: {row["case"] for row in rows if row["part"].lower()[:3] == split[:3]}
        for split in SPLITS
    }
    assert names_by_split(inputs) == told
    assert inputs.tickets[0].per_image == (("image_1", "seal: 0"),)
    assert fingerprint(inputs.tickets) != fingerprint(
        read(name, columns=ColumnsConfig("m", "m", "case", label="result")).tickets
    )


def test_a_file_is_a_split_and_the_other_tickets_are_dealt_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = ColumnsConfig(mission_name="m", group_id="case", label="result", texts=["seal"])
    dealt, test, val = (write(f"{n}.csv", cases(300, n)) for n in (0, 1000, 2000))
    by_shares = names_by_split(read(dealt, columns=columns, test=test))
    assert by_shares["test"] == {f"c-{n}" for n in range(1000, 1300)}
    assert 50 <= len(by_shares["val"]) <= 100, "a quarter of what train and val share by default"
    assert len(by_shares["train"]) + len(by_shares["val"]) == 300
    whole = names_by_split(read(dealt, columns=columns, test=test, val=val))
    assert whole["train"] == {f"c-{n}" for n in range(300)}
    with pytest.raises(ConfigError, match="not both"):
        read(dealt, test=test)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"case": "c-0"}, "one group_id"),
        ({"seal": "0."}, "say the same"),
        ({"line": "l-0"}, "line keeps them together"),
    ],
)
def test_nothing_is_of_two_splits(
    changes: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{**row, "line": f"l-{n}"} for n, row in enumerate(cases(8))]
    rows[6] |= {"result": "fail", **changes}
    columns = ColumnsConfig("m", "m", "case", "line", split="part", label="result", texts=["seal"])
    with pytest.raises(BadInputError, match=why) as raised:
        read(write("t.csv", rows), columns=columns)
    (bad,) = raised.value.bad
    assert (bad.path, bad.line) == ("t.csv", 8) and "is of test, t.csv:2 of train" in bad.what
    if "seal" in changes:  # as cases of their own they may
        names = names_by_split(read("t.csv", columns=replace(columns, repeats="apart")))
        assert "c-0" in names["train"] and "c-6" in names["test"]


def test_a_file_that_repeats_what_is_dealt_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = ColumnsConfig(mission_name="m", group_id="case", label="result", texts=["seal"])
    with pytest.raises(BadInputError, match=r"c-103::.* is of test, a.csv:5 of the files to deal"):
        read(
            write("a.csv", cases(4)),
            columns=columns,
            test=write("b.csv", [{**cases(4)[3], "case": "c-103"}]),
        )


def test_a_word_that_is_no_split_and_a_ticket_without_one_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = cases(4)
    rows[1]["part"] = "tset"
    with pytest.raises(BadInputError, match=r't\.csv:3: "part" "tset"; write train, val or test'):
        read(write("t.csv", rows))
    with pytest.raises(BadInputError, match='no "section"'):
        read("t.csv", columns=ColumnsConfig("m", "m", "case", label="result", split="section"))


@pytest.mark.usefixtures("quick_starts")
def test_few_different_things_teach_and_test_as_cases_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "case": f"c-{n}",
            "grade": "ABCDF"[n % 5],
            "result": "fail" if n % 5 else "pass",
            "part": part,
        }
        for n, part in enumerate(["train", "train", "train", "test"] * 100)
    ]
    columns = {
        "mission_name": "m",
        "group_id": "case",
        "label": "result",
        "split": "part",
        "repeats": "apart",
    }
    keys: dict[str, Any] = {
        "model": {"engine": "scripted"},
        "fabric": {"accelerator": "cpu", "devices": 1},
        "report": False,
    }
    run = stageb.fit(
        rows, config=["tickets", "frugal"], columns=columns, output={"run_name": "grades"}, **keys
    )
    (rule,) = run.guidance["m"].rules[1:]
    assert rule.text == "Fail if grade is not A." and not rule.is_provisional
    told = run.predict([{"case": "new", "grade": "A"}], by="rules")  # has no split
    assert [row["verdict"] for row in told] == ["pass"]
    config = run.config
    inputs = read_inputs(config)
    learnt = note_tickets(make_neutral("m", WORDS["en"]), inputs.tickets, inputs.splits["m"])
    # what test tickets say stands in train, too
    check_sealed(config, inputs.tickets, inputs.splits, {"m": learnt})


@pytest.mark.parametrize("before", SPLITS)
@pytest.mark.parametrize("now", SPLITS)
def test_no_ticket_tests_rules_that_it_taught_or_chose_nor_chooses_those_that_it_taught(
    before: Split, now: Split
) -> None:
    """Where a run starts from what another one learnt. What both missions say counts for each."""

    def split(number: int, mission: str, other: Split) -> list[Ticket]:
        said = [(("image_1", f"seal: {number}-{n}"),) for n in range(3)]
        of = (other, *SPLITS[:2])  # each run learns from some ticket of its own
        return [
            Ticket(mission, f"{n}", "pass", text, split=to)
            for n, (text, to) in enumerate(zip(said, of, strict=True))
        ]

    config = LoopConfig(tickets=["t.jsonl"], guidance=GuidanceConfig("learnt.json"))
    first, then = split(0, "m", before), [*split(0, "m", now)[:1], *split(1, "m", "train")]
    then = [replace(ticket, group_id=f"then {n}") for n, ticket in enumerate(then)]
    learnt = note_tickets(make_neutral("m", WORDS["en"]), first, split_tickets(first, config)["m"])
    other = [replace(ticket, mission="n") for ticket in then]  # learns for itself
    world = [*other, *then]
    splits = split_tickets(world, config)
    seeds = {"m": learnt, "n": make_neutral("n", WORDS["en"]), "o": learnt}
    if SPLITS.index(now) <= SPLITS.index(before) or before == "test":
        check_sealed(config, world, splits, seeds)
        return
    with pytest.raises(BadInputError) as raised:
        check_sealed(config, world, splits, seeds)
    (bad,) = raised.value.bad
    assert bad.what == (
        f"1 of the tickets kept for {now} here, then 0::pass among them, taught or chose the "
        f"guidance of mission 'm'"
    )


def test_tickets_left_out_by_name_are_of_no_split_and_names_that_no_ticket_has_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = cases(80)
    rows[7]["seal"] = rows[10]["seal"]  # of two splits, unless one of them is left out
    with pytest.raises(BadInputError, match="say the same"):
        read(write("t.jsonl", rows))
    inputs = read("t.jsonl", leave_out=["c-7", "c-8::fail", "c-9::fail", "c-999"])
    assert set().union(*names_by_split(inputs).values()) == {row["case"] for row in rows} - {
        "c-7",
        "c-8",
    }, "c-9 is a pass"
    assert (
        inputs.left_out
        == 'left out by split.leave_out: 2 of 80 tickets; no ticket is called "c-9::fail", "c-999"'
    )
    with pytest.raises(BadInputError, match="it names every ticket"):
        read("t.jsonl", leave_out=[row["case"] for row in rows])
    Path("t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in small.rows()))
    left = {"split.leave_out": [next(iter(small.rows()))["group_id"]], "runner.epochs": 1}
    assert main(["validate", *small.arguments(Path("t.jsonl"), Path("out"), keys=left)[1:]]) == 0
    assert main(small.arguments(Path("t.jsonl"), Path("out"), keys=left)) == 0
    assert main(["report", "out/run"]) == 0
    said = capsys.readouterr()
    assert all("left out by split.leave_out: 1 of" in each for each in (said.out, said.err)), (
        "validate and fit"
    )
    assert "ticket files have changed" not in Path("out/run/report.html").read_text()


def test_further_tickets_leave_those_in_their_split_that_learnt_rules_have_seen_even_where_they_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = ColumnsConfig(mission_name="m", group_id="case", label="result", texts=["seal"])
    old = cases(200)
    before = read(write("old.csv", old), columns=columns)
    learnt = note_tickets(before.guidance["m"], before.tickets, before.splits["m"])
    Path("learnt.json").write_text(json.dumps(to_json(learnt)))
    # whose names come before those of the others
    copies = [{**row, "case": f"a{n}"} for n, row in enumerate(old[::2])]
    files = [write("new.csv", [*copies, *cases(200, start=1000)]), "old.csv"]
    keys: dict[str, Any] = {"columns": columns, "guidance": GuidanceConfig("learnt.json")}
    after = names_by_split(read_inputs(LoopConfig(tickets=files, **keys)))
    splits = names_by_split(before)
    for split in ("train", "val"):
        assert splits[split] <= after[split]
    alone = {row["case"] for row in old[1::2]}
    assert splits["test"] & alone <= after["test"], "what was sealed is sealed"
    assert 20 <= len(after["test"] & {f"c-{n}" for n in range(1000, 1200)}) <= 60, (
        "of new ones test has its share"
    )
    with pytest.raises(BadInputError, match=r"give --split\.seed|that it has not seen"):
        read_inputs(LoopConfig(tickets=files, seed=3, **keys))


@pytest.mark.parametrize("seals", [("0", "1"), ("1", "0")])
def test_a_group_of_some_that_taught_and_some_that_chose_teaches_again_unless_it_says_its_split(
    seals: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as of two parts that now come from one machine."""
    monkeypatch.chdir(tmp_path)
    columns = ColumnsConfig("m", "m", "case", "line", label="result", texts=["seal"])
    taught, chosen, *_ = (
        name_content(Ticket("m", seal, "pass", (("image_1", f"seal: {seal}"),))) for seal in "01"
    )
    learnt = replace(
        make_neutral("m", WORDS["en"]), taught_by=frozenset({taught}), chosen_by=frozenset({chosen})
    )
    Path("learnt.json").write_text(json.dumps(to_json(learnt)))
    rows = [{"case": f"c-{seal}", "seal": seal, "line": "one", "result": "fail"} for seal in seals]
    rows += [
        {"case": f"c-{n}", "seal": f"{n}", "line": f"{n}", "result": "pass"} for n in range(2, 9)
    ]
    guidance = GuidanceConfig("learnt.json")
    for seed in range(8):
        config = LoopConfig(
            tickets=[write("t.csv", rows)], columns=columns, guidance=guidance, seed=seed
        )
        assert {"c-0", "c-1"} <= names_by_split(read_inputs(config))["train"]
    told = [{**row, "part": "train" if n > 1 else "test"} for n, row in enumerate(rows)]
    columns = replace(columns, split="part")
    with pytest.raises(BadInputError, match="taught or chose the guidance"):
        read_inputs(LoopConfig(tickets=[write("t.csv", told)], columns=columns, guidance=guidance))
