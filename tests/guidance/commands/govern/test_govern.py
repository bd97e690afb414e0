"""``stageb guidance`` on a run that the loop left, and on files that people write."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from guidance.commands.use import made as made_files
from guidance.made import guidances
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import small
from programs.processes import child

import stageb
from stageb.__main__ import main
from stageb.errors import BadInputError, InputError
from stageb.guidance.commands.govern.promote import add_named
from stageb.guidance.commands.govern.show import describe_rules
from stageb.guidance.config import LoopConfig
from stageb.guidance.rules import history_file, rules_as_text
from stageb.guidance.rules.guidance_json import from_json, to_json
from stageb.guidance.rules.prompts import WORDS, rollout_prompt
from stageb.guidance.rules.read_guidance import load_seed, read_guidance
from stageb.guidance.tickets.tickets import read_tickets
from stageb.guidance.words.calibration import Calibration
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import Guidance, Rule, Ticket, Verdict

G0 = "A ticket passes unless a rule fails it."
G1 = "Fail if state is torn."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, ``out/run``, of one mission that accepted one edit."""
    folder = tmp_path_factory.mktemp("govern")
    small.write(folder / "tickets.jsonl", "valves")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert (
            main(
                small.arguments(folder / "tickets.jsonl", folder / "out", keys={"runner.epochs": 1})
            )
            == 0
        )
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, the working directory."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


Asked = Callable[..., tuple[int, str, str]]


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Asked:
    """Gives ``stageb guidance`` words; exit code, output, errors."""

    def ask(*words: str) -> tuple[int, str, str]:
        code = main(["guidance", *words])
        return code, *capsys.readouterr()

    return ask


def test_a_runs_rules_are_shown_with_where_they_come_from(here: Path, asked: Asked) -> None:
    near(here)
    code, out, _ = asked("show", "out/run")
    assert code == 0
    assert out.startswith(f"valves, step 1:\n  G0. {G0}\n      given")
    (row,) = [
        json.loads(line)
        for line in (here / "out/run/valves/reflection.jsonl").open()
        if '"applied": true' in line
    ]
    test = next(each["test"] for each in row["gate"]["edits"] if each["outcome"] == "accepted")
    sources = row["proposals"][0]["operations"][0]["evidence"]
    assert (
        f"  G1. {G1}\n      added by R1 (step 1, epoch 1)\n      why, says the model: common to "
        f"the wrong cases\n" in out
    )
    first, last = (key.replace("::", " (") + ")" for key in (sources[0], sources[-1]))
    assert f"learnt from {len(sources)} tickets: {first}, " in out
    assert last not in out
    assert last in asked("show", "out/run", "--all-tickets", "--mission", "valves")[1]
    assert (
        f"gate: mean gain {test['mean_gain'] * 100:+.1f} points on {test['tickets']} tickets "
        f"({test['won']} won" in out
    )
    assert (
        f"; a rule that does not help would pass with a chance of at most {test['level']:.2g}\n"
        in out
    )
    assert re.search(
        r"G1\. (?:.*\n)+ +decides (\d\d) of 1\d\d train tickets, \1 of them rightly\n", out
    )
    assert asked("show", "out/run", "--step", "0")[1] == asked("show", "out/run@0")[1] != out
    told = asked("history", "out/run")[1]
    val = [
        json.loads(line)
        for line in (here / "out/run/valves/metrics.jsonl").open()
        if '"split": "val"' in line
    ]
    assert f"* step 1: R1, epoch 1\n      add: {G1}\n      gate: mean gain" in told
    assert all(f"val: {row['acc']:.1%} of {row['n']} tickets" in told for row in val)


def test_what_rules_speak_of_is_told_by_the_tickets_of_their_own_mission() -> None:
    """Another mission's fields may have other values, and be of numbers."""
    guidance = Guidance("valves", 1, (Rule("G0", G0), Rule("G1", G1)), 2)
    mine, others = (
        [
            Ticket(mission, f"{n}", "pass", (("image_1", f"state: {state}; size: {n}"),))
            for n, state in enumerate(states)
        ]
        for mission, states in (("valves", ["torn", "whole"]), ("pumps", ["torn", "3", "worn"]))
    )
    known = add_named(guidance, mine, WORDS["en"])
    assert known.named and add_named(guidance, [*others, *mine], WORDS["en"]) == known
    assert add_named(guidance, [], WORDS["en"]) == guidance


@pytest.mark.parametrize("rules", [0.0, 1.5])
@pytest.mark.parametrize("labels", [("pass", "fail"), ("urgent", "repair", "fine")])
def test_a_calibration_is_told_with_what_rules_as_code_add_to_it(
    labels: tuple[Verdict, ...], rules: float
) -> None:
    own = len(labels) > 2
    known = (
        Calibration.of_labels(labels, 0.5, (0.1, 0.2, 0.3), rules)
        if own
        else Calibration(0.5, 0.1, rules)
    )
    of = Guidance("m", 1, (Rule("G0", G0),), 1, labels=labels, calibration=known)
    told = [*describe_rules(of, "shared.json", False, [], WORDS["en"])]
    each = "log-probability of each label" if own else "log-odds of a pass"
    assert f"  calibrated: {each} times 0.5, plus 0.1" in "\n".join(told)
    of_code = [line for line in told if "as code" in line]
    if not rules:
        assert not of_code
    elif own:
        assert of_code == ["  rules as code: 1.5 more for the label that they give a ticket"]
    else:
        assert of_code == [
            "  rules as code: 1.5 more where they pass a ticket, 1.5 less where they fail it"
        ]


def test_accuracies_without_an_interval_are_told_as_they_are(here: Path, asked: Asked) -> None:
    file = here / "out/run/valves/metrics.jsonl"
    file.write_text(
        re.sub(
            r'"acc_interval": ?\[[^]]*\]',
            lambda found: '"acc_interval":null'.ljust(len(found[0])),
            file.read_text(),
        )
    )
    code, told, _ = asked("history", "out/run")
    assert code == 0 and re.search(r"      val: [\d.]+% of \d+ tickets\n", told)


def test_a_rule_that_decides_few_train_tickets_is_marked(here: Path, asked: Asked) -> None:
    near(here)
    file = Path("out/run/valves/guidance.json")
    file.write_text(file.read_text().replace(G1, "Fail if number is above 155."))
    assert re.search(
        r"decides [1-4] of \d+ train tickets, \d of them rightly: too few to rely on",
        asked("show", "out/run")[1],
    )


def test_differences_are_told_as_diff_tells_them(here: Path, asked: Asked) -> None:
    assert asked("diff", "out/run@0", "out/run") == (
        1,
        f"valves: out/run (step 0) -> out/run (step 1)\n  + G1. {G1}\n",
        "",
    )
    assert asked("diff", "out/run", "out/run/valves/guidance.json") == (0, "", "")
    Path("mine.txt").write_text(
        f"# by hand\n[valves]\nFail if state is torn or worn.\n{G1}\n\n[doors]\nFail if ajar.\n"
    )
    code, out, _ = asked("diff", "out/run", "mine.txt", "--mission", "valves")
    assert (code, out.splitlines()[1:]) == (
        1,
        ["  + G1. Fail if state is torn or worn.", "  > G1 -> G2. Fail if state is torn."],
    )
    Path("other.txt").write_text("[valves]\nFail if state is torn or worn.\n")
    assert (
        "  ~ G1. Fail if state is torn{+ or worn+}.\n" in asked("diff", "out/run", "other.txt")[1]
    )
    for a, b, told in (
        ("out/run@7", "out/run", "step 7"),
        ("none", "out/run", "none"),
        ("out", "out/run", "no run lies"),
    ):
        code, out, err = asked("diff", a, b)
        assert (code, out) == (2, "")
        assert told in err


def test_what_is_exported_is_what_rollouts_read(here: Path, asked: Asked) -> None:
    (ticket, *_), _ = read_tickets(["tickets.jsonl"], "error")
    prompt = rollout_prompt(
        ticket, load_seed("out/run/valves/guidance.json")["valves"], WORDS["en"]
    )
    assert asked("export", "out/run")[1] == f"{prompt.system}\n\n{{ticket}}\n"
    system, user = json.loads(asked("export", "out/run", "--format", "chat")[1])
    assert system == {"role": "system", "content": prompt.system}
    assert user == {"role": "user", "content": "{ticket}"}
    config = Path("out/run/config.yaml")
    config.write_text(config.read_text().replace("language: en", "language: zh"))
    for source in ("out/run", "out/run@0", "out/run@1"):
        assert "任务：valves" in asked("export", source)[1]
    Path("two.txt").write_text("[a]\nFail if b.\n[c]\n")
    assert "choose one by --mission: 'a', 'c'" in asked("export", "two.txt")[2]
    assert asked("export", "two.txt", "--mission", "c", "--language", "zh")[1].endswith(
        "G0. 除非有规则判为不通过，否则通过。\n\n{ticket}\n"
    )


def near(here: Path) -> None:
    """Have the copied run name the tickets beside it."""
    config = here / "out/run/config.yaml"
    config.write_text(re.sub(r"\S*/tickets\.jsonl", "tickets.jsonl", config.read_text()))


def test_rules_are_exported_as_code_that_needs_nothing_of_this_package(
    here: Path, asked: Asked
) -> None:
    """By the tickets that the run learnt from; every ticket is judged as the rule says."""
    code, _, err = asked("export", "out/run", "--format", "python")
    assert (code, "lie elsewhere; name them: --tickets FILE ..." in err) == (2, True)
    near(here)
    code, out, err = asked("export", "out/run", "--format", "python", "--output", "rules.py")
    assert (code, out, err) == (0, "", "")
    script = (
        "import json, sys; sys.path.insert(0, '.'); from rules import judge\n"
        "for line in open('tickets.jsonl'): print(*judge(json.loads(line))[:2])\n"
        "assert not [name for name in sys.modules if name.startswith('stageb')]\n"
    )
    told = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
    ).stdout
    tickets, _ = read_tickets(["tickets.jsonl"], "error")
    torn = [any("torn" in text for _, text in ticket.per_image) for ticket in tickets]
    assert told.splitlines() == ["fail G1" if each else "pass G0" for each in torn]
    assert any(torn)
    tree = json.loads(asked("export", "out/run", "--format", "json")[1])
    assert [rule["if"] for rule in tree["missions"]["valves"]["rules"]] == [
        {"field": "state", "is": ["torn"]}
    ]
    with sqlite3.connect(":memory:") as opened:
        opened.execute("CREATE TABLE tickets (state)")
        opened.executemany("INSERT INTO tickets VALUES (?)", [["torn"], ["new"], [None]])
        query = asked("export", "out/run", "--format", "sql")[1]
        found = opened.execute(query)
        names = [name for name, *_ in found.description]
        judged = list(found)
    assert names == ["state", "verdict", "rule"]  # what a table says, and then what is made of it
    assert judged == [("torn", "fail", "G1"), ("new", "pass", "G0"), (None, None, None)]
    assert query.count(json.dumps(G1)) == 1 and "WHEN t.\"G1\" = 1 THEN 'fail'\n" in query
    assert asked("promote", "out/run", "--to", "shared.json", "--yes")[0] == 0
    Path("tickets.jsonl").rename("gone.jsonl")
    # it tells itself what its rules speak of
    assert asked("export", "shared.json", "--format", "sql")[::2] == (0, "")
    assert asked("export", "shared.json", "--format", "python", "--output", "rules.py")[0] == 0
    script = script.replace("tickets.jsonl", "gone.jsonl")
    assert (
        subprocess.run(
            [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True
        ).stdout
        == told
    )


@pytest.mark.parametrize("form", ["prompt", "python"])
@pytest.mark.parametrize("given", [(), ("--tickets", "other.jsonl")])
@pytest.mark.parametrize("source", ["out/run", "shared.json"])
def test_an_export_is_written_over_nothing_that_it_reads_or_that_a_run_learnt_from(
    here: Path, asked: Asked, source: str, given: tuple[str, ...], form: str
) -> None:
    """Also where other tickets are named for it to read."""
    near(here)
    shutil.copy("tickets.jsonl", "other.jsonl")
    assert asked("promote", "out/run", "--to", "shared.json", "--yes")[0] == 0
    read = ["shared.json", "shared.history.jsonl"]
    if source != "shared.json":
        read = ["tickets.jsonl", "out/run/valves/guidance.json", "out/run/valves/metrics.jsonl"]
    if given:
        read.append("other.jsonl")
    Path("link").symlink_to(read[0])
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    for output in (*read, "link", f"{here}/{read[0]}"):
        code, out, err = asked("export", source, "--format", form, *given, "--output", output)
        assert (code, out) == (2, "") and output in err
        assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before
    assert asked("export", source, "--format", form, *given, "--output", "free")[0] == 0


def test_sql_that_leaves_known_tickets_without_a_verdict_says_so(here: Path, asked: Asked) -> None:
    Path("mine.txt").write_text("[valves]\nFail if state is worn.\n")
    Path("table.csv").write_text(
        "Station,id,state\nvalves,1,worn\nvalves,2,new\nvalves,3,Stra\u00dfe\n", "utf-8"
    )
    given = [
        "export",
        "mine.txt",
        "--format",
        "sql",
        "--tickets",
        "table.csv",
        "--columns",
        "mission=Station,group_id=id",
    ]
    code, out, err = asked(*given)
    assert (code, err) == (
        1,
        "valves: of 3 known tickets SQL does not judge 1 as the rules do; the first: 3\n",
    )
    assert "SELECT t.*" in out
    assert asked(*given[:2], "--format", "python", *given[4:])[0] == 0
    Path("table.csv").write_text("Station,id,state\nvalves,1,worn\nvalves,2,new\n", "utf-8")
    assert asked(*given)[0] == 0


CELLS = [(0.5, "odd"), (1.5, "odd"), (1.5, "NA"), ("NA", "even"), (2.5, "?"), ("?", "NA")]


@pytest.mark.parametrize("is_run", [False, True])
@pytest.mark.parametrize("is_file", [False, True])
@pytest.mark.parametrize(
    ("decimal", "missing", "rename"),
    [
        (",", [], {}),
        (".", ["NA"], {}),
        (",", ["?", "na"], {"Temp": "T (°C)"}),
        (".", [], {"Temp": "T (°C)"}),
    ],
)
def test_exported_code_reads_columns_as_the_option_or_the_config_says_and_as_predict_does(
    is_run: bool,
    is_file: bool,
    decimal: str,
    missing: list[str],
    rename: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever a run has in its config; a file has nothing of the kind."""
    monkeypatch.chdir(tmp_path)
    columns: dict[str, Any] = {"mission_name": "valves", "group_id": None, "decimal": decimal}
    columns |= {"missing": missing, "rename": rename}
    temp = rename.get("Temp", "Temp")
    cells = [(str(number).replace(".", decimal), kind) for number, kind in CELLS]
    with Path("t.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("Temp", "Kind"), *cells])
    rule = {"valves": f"Fail if {temp} is above 1 and Kind is not odd."}
    learnt = LoopConfig(tickets=["gone.csv"], columns=ColumnsConfig(missing=["odd"]))
    source = (
        made_files.run_folder(Path("run"), learnt, rule)
        if is_run
        else made_files.guidance(Path("shared.json"), rule)
    )
    judged = stageb.predict(
        guidance=source,
        tickets="t.csv",
        vocabulary=["t.csv"],
        columns=columns,
        by="rules",
        output="p.jsonl",
    )
    wanted = [row["verdict"] for row in judged]
    Path("my.yaml").write_text(json.dumps({"tickets": ["x.csv"], "seed": 1, "columns": columns}))
    told = ["--config", "my.yaml"] if is_file else ["--columns", json.dumps(columns)]
    words = ["guidance", "export", source, "--tickets", "t.csv", *told]
    assert main([*words, "--format", "python", "--output", "rules.py"]) == 0
    names: dict[str, Any] = {"__name__": "exported"}
    exec(Path("rules.py").read_text("utf-8"), names)
    rows = [dict(zip(("Temp", "Kind"), row, strict=True)) for row in cells]
    assert [names["judge"](row)[0] for row in rows] == wanted
    assert main([*words, "--format", "sql", "--output", "rules.sql"]) in (0, 1)
    with sqlite3.connect(":memory:") as opened:
        opened.execute(f'CREATE TABLE tickets (n INTEGER PRIMARY KEY, "{temp}", Kind)')
        opened.executemany("INSERT INTO tickets VALUES (NULL, ?, ?)", cells)
        query = opened.execute(Path("rules.sql").read_text("utf-8"))
        place = [name for name, *_ in query.description].index("verdict")
        assert [row[place] for row in sorted(query)] == wanted
    assert len({*wanted}) > 1


def test_a_column_may_have_the_name_that_the_export_has_for_missions(
    here: Path, asked: Asked
) -> None:
    Path("mine.txt").write_text("[valves]\nFail if Mission is x.\n")
    Path("table.csv").write_text("Mission,label\nx,fail\ny,pass\n")
    table = ["--tickets", "table.csv", "--columns", "mission_name=valves,group_id=null"]
    assert asked("export", "mine.txt", "--format", "sql", *table)[::2] == (0, "")
    Path("mine.txt").write_text("[valves]\nFail if it looks odd.\n")
    assert asked("export", "mine.txt", "--format", "sql", *table)[0] == 2


def test_sql_of_rules_that_read_text_is_refused_where_it_would_judge_nothing(
    here: Path, asked: Asked
) -> None:
    Path("table.csv").write_text(
        "Note,state,label\nit leaks badly here today,worn,fail\nall of it is as it was,new,pass\n"
    )
    table = [
        "--format",
        "sql",
        "--tickets",
        "table.csv",
        "--columns",
        "mission_name=valves,group_id=null",
    ]
    Path("mine.txt").write_text("[valves]\nFail if a summary mentions leaks.\n")
    code, out, err = asked("export", "mine.txt", *table, "--output", "rules.sql")
    assert (code, out, Path("rules.sql").exists()) == (2, "", False)
    assert (
        "valves: SQL would give no ticket a verdict: G1: SQL sees columns, and no words of free "
        "text; export --format" in err
    )
    Path("mine.txt").write_text("[valves]\nFail if state is round.\n")
    code, out, err = asked("export", "mine.txt", *table)
    assert "G1: no ticket has 'state' as 'round'; no form of code has more" in err
    Path("mine.txt").write_text(
        "[valves]\nFail if a summary mentions leaks.\nPass if state is worn.\n"
    )
    code, out, err = asked("export", "mine.txt", *table)
    assert code == 1 and "SELECT t.*" in out
    assert "valves: of 2 known tickets SQL does not judge 1 as the rules do; the first: " in err


def test_a_row_of_history_that_holds_other_guidance_is_told(tmp_path: Path, asked: Asked) -> None:
    path, body = tmp_path / "s.json", {"valves": {"step": 2, "experiences": {"G0": "x"}}}
    path.write_text(json.dumps(body))
    row = {"mission": "valves", "action": "promoted from", "source": "run", "at": "x", "by": "y"}
    for kept in ({}, {"step": 9}):
        rows = [
            {**row, "step": 2, "guidance": body},
            {**row, "step": 3, "guidance": {"valves": body["valves"] | kept}},
        ]
        rows[1]["guidance"] = rows[1]["guidance"] if kept else {}
        (tmp_path / "s.history.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
        code, _, err = asked("history", str(path))
        assert code == 2
        assert (
            "s.history.jsonl: the row of step 3 of mission 'valves' holds other guidance; "
            "remove it, or correct it" in err
        )


@pytest.mark.parametrize("bad", [{"step": "2"}, {"by": None}, {"more": 1}, {"guidance": []}])
def test_a_row_of_history_that_is_none_is_told_with_its_line(
    tmp_path: Path, asked: Asked, bad: dict[str, Any]
) -> None:
    path, body = tmp_path / "s.json", {"valves": {"step": 2, "experiences": {"G0": "x"}}}
    path.write_text(json.dumps(body))
    row = {"mission": "valves", "step": 2, "action": "promoted from", "source": "run", "at": "x"}
    row |= {"by": "y", "guidance": body}
    rows = "".join(f"{json.dumps(each)}\n" for each in (row, row | bad))
    (tmp_path / "s.history.jsonl").write_text(rows)
    code, _, err = asked("history", str(path))
    assert code == 2 and "s.history.jsonl:2: not a row of mission, step" in err


def test_rules_that_are_not_written_as_code_are_named(here: Path, asked: Asked) -> None:
    Path("mine.txt").write_text("[valves]\nFail if it looks odd.\nPass if state is new.\n")
    code, out, err = asked("export", "mine.txt", "--format", "json")
    assert (code, out) == (2, "")
    assert "a file of guidance does not tell which names and values its rules speak of" in err
    code, out, err = asked("export", "mine.txt", "--format", "json", "--tickets", "tickets.jsonl")
    assert (code, err) == (1, "valves: G1 is not written as code: it compares no fields\n")
    (valves,) = json.loads(out)["missions"].values()
    assert [rule["key"] for rule in valves["rules"]] == ["G2"]
    Path("table.csv").write_text("Station,state\nvalves,new\nvalves,torn\n")
    columns = ["--columns", "mission=Station,group_id=null"]
    assert (
        asked("export", "mine.txt", "--format", "sql", "--tickets", "table.csv", *columns)[0] == 1
    )
    assert (
        "did you mean columns.group_id"
        in asked("export", "out/run", "--format", "sql", "--columns", "groupid=x")[2]
    )
    Path("my.yaml").write_text("columns:\n  groupid: x\n")
    assert (
        "my.yaml:2: there is no key columns.groupid"
        in asked("export", "out/run", "--format", "sql", "--config", "my.yaml")[2]
    )
    assert asked("export", "mine.txt", "--format", "sql", "--tickets", "none.csv")[0] == 2
    near(here)
    Path("tickets.jsonl").rename("elsewhere.jsonl")
    code, _, err = asked("export", "out/run", "--format", "sql")
    assert (code, "run's ticket files are not found from here" in err) == (2, True)
    assert asked("export", "out/run", "--format", "sql", "--tickets", "elsewhere.jsonl")[0] == 0


def test_promoted_guidance_can_be_learnt_on_from_and_taken_back(here: Path, asked: Asked) -> None:
    near(here)
    Path("shared.json").write_text(json.dumps({"doors": {"experiences": {"G0": "Doors."}}}))
    Path("shared.json").chmod(0o640)
    assert asked("promote", "out/run@0", "--to", "shared.json", "--yes")[0] == 0
    code, out, _ = asked("promote", "out/run", "--to", "shared.json", "--yes")
    assert (code, out.splitlines()[1:]) == (
        0,
        ["valves: step 0 -> step 1", f"  + G1. {G1}", "valves: step 1 is now in use"],
    )
    assert "holds these rules already" in asked("promote", "out/run", "--to", "shared.json")[1]
    assert Path("shared.json").stat().st_mode & 0o777 == 0o640
    shared, learnt = load_seed("shared.json"), load_seed("out/run/valves/guidance.json")["valves"]
    assert shared["doors"].rules[0].text == "Doors."
    assert [(rule.key, rule.text) for rule in shared["valves"].rules] == [
        (rule.key, rule.text) for rule in learnt.rules
    ]
    assert shared["valves"].rules[1].metadata.items() >= learnt.rules[1].metadata.items()
    # a file does not tell what taught it
    shown = re.sub("      decides .*\n", "", asked("show", "out/run")[1])
    assert asked("show", "shared.json", "--mission", "valves")[1] == shown.replace(
        "epoch 1", "epoch 1, run run"
    )
    Path("one.jsonl").write_text(
        json.dumps({"mission": "valves", "group_id": "1", "per_image": {"image_1": "lid: there"}})
    )
    assert (
        main(
            [
                "predict",
                "--guidance=shared.json",
                "--by=rules",
                "--tickets=one.jsonl",
                "--output=one.out",
            ]
        )
        == 0
    )
    # rather than: it cannot be read as code
    assert "G1: the ticket does not tell state" in Path("one.out").read_text()
    keys = {"guidance.path": "shared.json", "runner.epochs": 0, "output.run_name": "judged"}
    assert main(small.arguments(Path("tickets.jsonl"), Path("out"), keys=keys)) == 0

    edited = json.loads(Path("shared.json").read_text())  # by hand, since
    edited["valves"]["experiences"]["G1"] = "Fail if state is worn."
    Path("shared.json").write_text(json.dumps(edited))
    assert "edited by hand since" in asked("history", "shared.json")[1]
    assert asked("rollback", "shared.json", "--mission", "valves", "--to", "0", "--yes")[0] == 0
    assert len(load_seed("shared.json")["valves"].rules) == 1
    assert asked("rollback", "shared.json", "--mission", "valves", "--to", "2", "--yes")[0] == 0
    assert load_seed("shared.json")["valves"].rules[1].text == "Fail if state is worn."
    assert asked("diff", "shared.json@1", "shared.json", "--mission", "valves")[1].endswith(
        "[-torn-]{+worn+}.\n"
    )
    told = asked("history", "shared.json", "--mission", "valves")[1]
    steps = [
        line.split(":")[0]
        for line in told.splitlines()[1:]
        if " step " in line and "..." not in line
    ]
    assert [step for step in steps if step[2:6] == "step"] == [
        "  step 0",
        "  step 1",
        "  step 2",
        "  step 0",
        "* step 2",
    ]
    code, _, err = asked("rollback", "shared.json", "--mission", "valves", "--to", "9", "--yes")
    assert (code, "kept: 0, 1, 2" in err) == (2, True)


def test_nothing_is_changed_without_a_yes(
    here: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, out, err = asked("promote", "out/run", "--to", "shared.json")
    assert (code, "+ G1." in out, "give --yes" in err) == (2, True, True)
    for answer, expected in (("\n", 1), ("n\n", 1), ("", 1), ("y\n", 0)):
        assert not Path("shared.json").exists()
        terminal = io.StringIO(answer)
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", terminal)
        assert asked("promote", "out/run", "--to", "shared.json")[0] == expected
    assert load_seed("shared.json")["valves"].step == 1
    for to, told in (
        ("out/run/valves/guidance.json", "belongs to a run"),
        ("rules.txt", "holds no history"),
        (".", "a folder"),
    ):
        code, _, err = asked("promote", "out/run", "--to", to, "--yes")
        assert (code, told in err) == (2, True)


def test_where_the_order_of_rules_decides_review_and_promote_keep_it(
    here: Path, asked: Asked
) -> None:
    """Of labels of one's own the first rule wins: sorted by number, G1 would be judged before what
    stands before it."""

    def write(name: str, *keys: str) -> None:
        texts = {
            "G0": "A ticket is fine unless a rule says otherwise.",
            "G1": "Repair if state is torn.",
        }
        texts |= {
            "G2": "Urgent if size is 3.",
            "G3": "Repair if size is 4.",
            "G4": "Urgent if state is bent.",
        }
        rules = {key: texts[key] for key in ("G0", *keys)}
        content = {
            "valves": {"step": 1, "experiences": rules, "labels": ["fine", "repair", "urgent"]}
        }
        Path(name).write_text(json.dumps(content))

    def keys() -> list[str]:
        return [rule.key for rule in load_seed("shared.json")["valves"].rules]

    write("learnt.json", "G3", "G2", "G1")
    assert asked("review", "learnt.json", "--to", "shared.json", "--accept", "G1", "G3")[0] == 0
    assert keys() == ["G0", "G3", "G1"]
    assert asked("review", "learnt.json", "--to", "shared.json", "--accept", "G2")[0] == 0
    assert keys() == ["G0", "G3", "G2", "G1"]
    write("other.json", "G4", "G1", "G3", "G2")
    assert asked("promote", "other.json", "--to", "shared.json", "--yes")[0] == 0
    assert keys() == ["G0", "G4", "G1", "G3", "G2"]
    write("turned.json", "G1", "G4", "G2", "G3")
    code, out, _ = asked("promote", "turned.json", "--to", "shared.json", "--yes")
    assert code == 0 and "~ the order, in which the first decides: G0, G1, G4, G2, G3\n" in out
    assert keys() == ["G0", "G1", "G4", "G2", "G3"]
    # nothing was said yes to
    assert asked("review", "other.json", "--to", "shared.json", "--accept")[0] == 1
    assert keys() == ["G0", "G1", "G4", "G2", "G3"]


@settings(max_examples=20)
@given(guidances(st.just("m")), guidances(st.just("m")), st.data())
def test_a_review_takes_the_rules_that_were_said_yes_to_and_gives_no_number_again(
    in_use: Guidance, learnt: Guidance, data: st.DataObject
) -> None:
    """Either may have had more rules than it has, and the other one ever had."""
    keys = [rule.key for guidance in (in_use, learnt) for rule in guidance.rules]
    accepted = data.draw(st.sets(st.sampled_from(keys)))
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        shared, run = Path(folder, "shared.json"), Path(folder, "learnt.json")
        for path, guidance in ((shared, in_use), (run, learnt)):
            path.write_text(json.dumps(to_json(guidance)))
        with contextlib.redirect_stderr(io.StringIO()):
            code = main(
                ["guidance", "review", f"{run}", "--to", f"{shared}", "--accept", *accepted]
            )
        after = load_seed(shared)["m"]
    if code == 1:
        assert after == in_use
        return
    assert code == 0 and after.next_number == max(in_use.next_number, learnt.next_number)
    for key in keys:
        rule, wanted = after.rule(key), (learnt if key in accepted else in_use).rule(key)
        assert (rule and rule.text) == (wanted and wanted.text)


def test_review_shows_first_what_the_rule_names(here: Path, asked: Asked) -> None:
    long = "; ".join(f"note {n}: nothing to see here at all" for n in range(12))
    lines = [
        {
            "mission": "valves",
            "group_id": f"v{n}",
            "label": "pass",
            "per_image": {"1": f"{long}; TSH: 7.5"},
        }
        for n in range(3)
    ]
    Path("long.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    Path("tsh.txt").write_text("[valves]\nG1. Fail if TSH is above 6.3.\n")
    out = asked("review", "tsh.txt", "--to", "shared.json", "--tickets", "long.jsonl", "--accept")[
        1
    ]
    assert "v0 (pass) -> fail: TSH: 7.5 | note 0: nothing" in out


def test_a_headline_that_turns_is_reviewed_with_its_rules(here: Path, asked: Asked) -> None:
    """Alone it would break nearly all tickets, and its rules would do nothing without it."""
    texts = (
        "G0. A ticket fails unless a rule passes it.",
        "G1. Pass if state is new.",
        "G2. Pass if state is bent.",
    )
    Path("turned.txt").write_text("\n".join(["[valves]", *texts, ""]))
    review = (
        "review",
        "turned.txt",
        "--to",
        "shared.json",
        "--tickets",
        "tickets.jsonl",
        "--accept",
    )
    code, out, _ = asked(*review, "G0", "G1", "G2")
    count = len(read_tickets(["tickets.jsonl"], "error")[0])
    (effect,) = re.findall(r"of the run's (\d+) tickets it mends (\d+) and breaks (\d+)", out)
    assert code == 0 and int(effect[0]) == count and int(effect[2]) < count / 2
    assert all(text in out for text in texts[1:])
    assert [rule.key for rule in load_seed("shared.json")["valves"].rules] == ["G0", "G1", "G2"]
    Path("shared.json").unlink()
    code, _, err = asked(*review, "G1")
    assert (code, Path("shared.json").exists()) == (2, False) and "name G0 G2, too, or none" in err


def test_each_rule_is_reviewed_with_what_it_breaks(
    here: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(text: str) -> None:
        terminal = io.StringIO(text)
        monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(sys, "stdin", terminal)

    answer("n\n")
    code, out, _ = asked("review", "out/run", "--to", "shared.json", "--tickets", "tickets.jsonl")
    assert (code, Path("shared.json").exists()) == (1, False)
    assert (
        f"  + G1. {G1}\n      added by R1 (step 1, epoch 1)\n" in out
        and "it mends" in out
        and "and breaks 0\n" in out
    )
    answer("y\n")  # elsewhere than the run's tickets are: the rule is shown without them
    assert asked("review", "out/run", "--to", "shared.json")[0] == 0
    assert load_seed("shared.json")["valves"] == replace(
        load_seed("out/run/valves/guidance.json")["valves"],
        rules=load_seed("shared.json")["valves"].rules,
    )
    (row,) = history_file.read_history(Path("shared.json"))
    assert (row["action"], row["step"]) == ("reviewed from", 1)

    Path("more.txt").write_text(
        f"[valves]\nG1. {G1}\nG2. Pass if state is torn.\nG3. Fail if state is bent.\n"
    )
    review = ("review", "more.txt", "--to", "shared.json", "--tickets", "tickets.jsonl")
    answer("n\ny\n")
    code, out, _ = asked(*review)
    broken = [
        ticket for ticket in read_tickets(["tickets.jsonl"], "error")[0] if ticket.label == "fail"
    ]
    assert (
        f"it mends 0 and breaks {len(broken)}\n        {broken[0].group_id} (fail) -> pass: " in out
    )
    assert [rule.key for rule in load_seed("shared.json")["valves"].rules] == ["G0", "G1", "G3"]
    assert "gate: mean gain" in asked("show", "shared.json")[1]  # what is known of G1 stays
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    code, _, err = asked(*review)
    assert (code, "give --accept KEY" in err) == (2, True)
    assert asked(*review, "--accept", "G2")[0] == 0
    assert [rule.key for rule in load_seed("shared.json")["valves"].rules] == [
        "G0",
        "G1",
        "G2",
        "G3",
    ]


class Slow(io.StringIO):
    """A person who takes a while, in which another process promotes something else."""

    def isatty(self) -> bool:
        return True

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override]
        if not Path("other.txt").exists():
            Path("other.txt").write_text("[valves]\nFail if state is worn.\n")
            assert main(["guidance", "promote", "other.txt", "--to", "shared.json", "--yes"]) == 0
        return "y\n"


def test_a_change_made_meanwhile_is_asked_about_anew(
    here: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Slow())
    code, out, _ = asked("promote", "out/run", "--to", "shared.json")
    assert code == 0
    assert "~ G1. Fail if state is [-worn-]{+torn+}." in out
    assert [row["step"] for row in history_file.read_history(Path("shared.json"))] == [0, 1]


@pytest.mark.parametrize("before", ["nothing", "a rule"])
def test_a_review_overwrites_nothing_that_another_put_in_use_meanwhile(
    here: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    if before == "a rule":
        Path("first.txt").write_text("[valves]\nFail if state is new.\n")
        assert asked("promote", "first.txt", "--to", "shared.json", "--yes")[0] == 0
    monkeypatch.setattr(sys, "stdin", Slow())
    code, _, err = asked("review", "out/run", "--to", "shared.json")
    assert code == 2 and "another process has changed it meanwhile; review again" in err
    assert [rule.text for rule in load_seed("shared.json")["valves"].rules[1:]] == [
        "Fail if state is worn."
    ]
    assert asked("review", "out/run", "--to", "shared.json")[0] == 0
    assert [rule.text for rule in load_seed("shared.json")["valves"].rules[1:]] == [
        "Fail if state is torn."
    ]


def test_many_may_promote_at_once_and_be_killed(tmp_path: Path) -> None:
    shared, count = tmp_path / "shared.json", 6

    def promote(number: int) -> Callable[[], None]:
        def act() -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            (tmp_path / f"{number}.txt").write_text(f"[m{number % 3}]\nFail if a is {number}.\n")
            assert (
                main(
                    [
                        "guidance",
                        "promote",
                        str(tmp_path / f"{number}.txt"),
                        "--to",
                        str(shared),
                        "--yes",
                    ]
                )
                == 0
            )

        return act

    processes = [child(promote(number)) for number in range(count)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0] * count
    kept, rows = load_seed(shared), list(history_file.read_history(shared))
    assert sorted(kept) == ["m0", "m1", "m2"]
    assert len(rows) == count
    for mission, guidance in kept.items():
        assert guidance.rules[1].text in {
            f"Fail if a is {number}." for number in range(count) if f"m{number % 3}" == mission
        }
        assert len({row["step"] for row in rows if row["mission"] == mission}) == 2
        assert read_guidance(f"{shared}@{guidance.step}", mission) == {mission: guidance}
    with history_file.history_path(shared).open("ab") as cut:  # as a crash would leave it
        cut.write(b'{"mission": "m0", "st')
    assert list(history_file.read_history(shared)) == rows
    promote(0)()
    assert len(list(history_file.read_history(shared))) == count + (
        load_seed(shared)["m0"] != kept["m0"]
    )


def test_nothing_that_a_file_holds_moves_the_terminal(here: Path, asked: Asked) -> None:
    body = json.loads(Path("out/run/valves/guidance.json").read_text())["valves"]
    bad = "\x1b[2J\u202e"
    body["metadata"] = {
        "G1": {
            "reflection_id": bad,
            "op": bad,
            "rationale": bad,
            "sources": [bad, 3],
            "learnt": {"run": bad},
        }
    }
    body["metadata"]["G0"] = {
        "op": 5,
        "merged_from": bad,
        "learnt": {"gate": {"mean_gain": bad}, "epoch": [bad]},
        "sources": bad,
    }
    Path("mine.json").write_text(json.dumps({"valves": body}))
    assert asked("promote", "mine.json", "--to", "s.json", "--yes")[0] == 0
    shown = [
        asked(*line)
        for line in (
            ("show", "mine.json"),
            ("show", "s.json"),
            ("history", "s.json"),
            ("diff", "s.json", "mine.json"),
        )
    ]
    wrong = [
        asked("show", "out/run", "--mission", bad),
        asked("show", bad),
        asked("frobnicate", bad),
    ]
    assert all(code == 2 for code, _, _ in wrong)
    for _, out, err in (*shown, *wrong):
        assert all(letter.isprintable() or letter == "\n" for letter in out + err)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Fail if a.\n[m]\n", "r.txt:1: a rule of no mission"),
        ("\n# nothing\n", "r.txt: no mission and no rule"),
        ("[m]\nG2. Fail if a.\nG1. Fail if b.\n", "r.txt:3: G1 after G2"),
        ("[m]\nFail if a.\nG0. Head.\n", "r.txt:3: G0 after G1"),
        ("[m]\nG0. Head.\nG0. Head.\n", "r.txt:3: G0 after G0"),
        ("[m]\nG01. Fail if a.\n", "r.txt:2: mission 'm': experiences: the key 'G01'"),
        ("[m]\nG1.\n", "r.txt:2: mission 'm': experiences: G1: an empty text"),
        ("[m]\nFail if \x1b a.\n", "r.txt:2: mission 'm': experiences: G1: the character U+001B"),
        ("[m]\nFail if a.\n[m]\n", "r.txt:3: [m] stands twice"),
        ("[m\nFail if a.\n", "r.txt:1: no mission's name"),
        (
            "[m]\nG2000000. Fail if a.\n",
            "r.txt:1: mission 'm': a step or a rule's number beyond 999999",
        ),
    ],
)
def test_rules_as_text_are_read_strictly(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "r.txt").write_text(text)
    with pytest.raises(InputError) as raised:
        read_guidance(tmp_path / "r.txt")
    assert told in str(raised.value)
    (tmp_path / "latin.txt").write_bytes(b"[m]\nFail if \xe9.\n")
    with pytest.raises(InputError, match=r"latin\.txt:2: not UTF-8"):
        read_guidance(tmp_path / "latin.txt")


@pytest.mark.parametrize(
    ("rule", "language"),
    [
        ("不通过：若密封为磨损。", "zh"),
        ("G2. 通过：若密封为全新。", "zh"),
        ("Fail if 状态 is 通过.", "en"),
        ("通过", "zh"),
    ],
)
def test_a_default_headline_is_in_the_language_of_its_rules(
    tmp_path: Path, asked: Asked, rule: str, language: str
) -> None:
    (tmp_path / "r.txt").write_text(f"# rules\n[valves]\n{rule}\n", encoding="utf-8")
    assert (
        asked("promote", str(tmp_path / "r.txt"), "--to", str(tmp_path / "shared.json"), "--yes")[0]
        == 0
    )
    headline = json.loads((tmp_path / "shared.json").read_text())["valves"]["experiences"]["G0"]
    assert headline == WORDS[language].neutral_headline


def test_json_by_hand_is_refused_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(
        '{"m": {\n  "experiences": {\n    "G0": "h",\n    "G1": [{"G1": 1}],\n    "G\\u0032": '
        '""\n  }, "setp": 3}}'
    )
    with pytest.raises(InputError) as raised:
        load_seed(path)
    assert [line.line for line in raised.value.bad] == [6, 4, 5]  # type: ignore[attr-defined]
    path.write_text('{"m": {\n  "experiences": {\n    "G0": "h"\n    "G1": "x"}}}')
    with pytest.raises(InputError, match=r"g\.json:4: not JSON"):
        load_seed(path)


@given(
    st.lists(
        st.sampled_from(
            [
                "[m]",
                "[n]",
                "[",
                "[]",
                "G0. a",
                "G1. b",
                "G2.c",
                "G02. c",
                "Fail.",
                "",
                " # x",
                "\x1b",
                "\x85a",
            ]
        )
    )
)
def test_any_text_is_rules_or_a_clear_error(lines: list[str]) -> None:
    try:
        content, places = rules_as_text.parse("\n".join(lines), "r.txt", WORDS["en"])
        found = from_json(content, "r.txt", places)
    except BadInputError as error:
        assert all(line.path == "r.txt" and line.what and line.remedy for line in error.bad)
        assert all(line.line for line in error.bad) or not any(
            line.strip().strip("# x") for line in lines
        )
    else:
        written = sum(not line.startswith(("[", " #")) and bool(line) for line in lines)
        assert (
            written
            <= sum(len(guidance.rules) for guidance in found.values())
            <= written + len(found)
        )


@given(guidances(st.sampled_from(["m", "a mission", "阀门"])), st.data())
def test_rules_are_the_same_as_text(guidance: Guidance, data: st.DataObject) -> None:
    marks = st.sampled_from([{}, {"fixed": True}, {"background": True}, {"provisional": True}])
    marked = [
        replace(rule, text=rule.text.strip(), metadata=data.draw(marks)) for rule in guidance.rules
    ]
    content, _ = rules_as_text.parse(
        rules_as_text.write([replace(guidance, rules=tuple(marked))]), "x", WORDS["en"]
    )
    assert from_json(content, "x")[guidance.mission].rules == tuple(marked)


def test_rules_that_were_edited_as_text_keep_what_is_known_of_them(
    here: Path, asked: Asked
) -> None:
    assert asked("export", "out/run", "--format", "text", "--output", "mine.txt") == (0, "", "")
    assert Path("mine.txt").read_text() == f"[valves]\nG0. {G0}\nG1. {G1}\n"
    promote = ("promote", "mine.txt", "--to", "shared.json", "--base", "out/run", "--yes")
    assert asked(*promote)[0] == 0
    asked("promote", "out/run", "--to", "other.json", "--yes")
    assert Path("shared.json").read_bytes() == Path("other.json").read_bytes(), (
        "as if it had never been text"
    )
    Path("mine.txt").write_text(f"[valves]\nG0. {G0}\nG1 (fixed). {G1}\nFail if state is rusty.\n")
    code, out, _ = asked("promote", "mine.txt", "--to", "shared.json", "--yes")
    assert (
        code == 0
        and f"  ~ G1 (fixed). {G1}\n" in out
        and "  + G2. Fail if state is rusty.\n" in out
    )
    before, after = (load_seed(name)["valves"] for name in ("other.json", "shared.json"))
    assert after.rules[1].metadata == {**before.rules[1].metadata, "fixed": True}
    assert (after.step, after.spent, after.taught_by) == (
        before.step + 1,
        before.spent,
        before.taught_by,
    )
    assert after.taught_by
    Path("mine.txt").write_text(f"[valves]\nG0. {G0}\nG1. {G1}\nFail if state is rusty.\n")
    assert (
        f"  ~ G1 (no longer fixed). {G1}\n"
        in asked("promote", "mine.txt", "--to", "shared.json", "--yes")[1]
    )
    assert load_seed("shared.json")["valves"].rules[1] == before.rules[1]
    for mark, told in ((" (provisional)", " (provisional)"), ("", " (no longer provisional)")):
        Path("mine.txt").write_text(
            f"[valves]\nG0. {G0}\nG1{mark}. {G1}\nFail if state is rusty.\n"
        )
        assert (
            f"  ~ G1{told}. {G1}\n"
            in asked("promote", "mine.txt", "--to", "shared.json", "--yes")[1]
        )
        assert load_seed("shared.json")["valves"].rules[1].is_provisional == bool(mark)


def test_no_number_of_a_rule_is_given_twice_whatever_is_promoted_or_rolled_back(
    here: Path, asked: Asked
) -> None:
    asked("promote", "out/run", "--to", "shared.json", "--yes")
    Path("mine.txt").write_text(f"[valves]\nG0. {G0}\nG7. Fail if state is rusty.\n")
    asked("promote", "mine.txt", "--to", "shared.json", "--yes")
    assert load_seed("shared.json")["valves"].next_number == 8
    assert asked("promote", "out/run", "--to", "shared.json", "--yes")[0] == 0
    assert load_seed("shared.json")["valves"].next_number == 8
    assert asked("rollback", "shared.json", "--to", "1", "--yes")[0] == 0
    assert load_seed("shared.json")["valves"].next_number == 8
