"""``stageb tickets``: labels that a run doubts are corrected by a person, and come back in a new
ticket file."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from guidance.made_sheets import write_xlsx
from programs import small

from stageb.__main__ import main
from stageb.errors import InputError
from stageb.guidance.commands.use.doubted_labels import find_doubts
from stageb.guidance.commands.use.fit import fit_here
from stageb.guidance.commands.use.source import find_tickets
from stageb.guidance.judging.coded import CodeJudge, code_rules
from stageb.guidance.rules.prompts import WORDS as WORDINGS
from stageb.guidance.tickets.corrected import list_suffixes, write_corrected, write_workbook
from stageb.guidance.tickets.tables import table_lines
from stageb.guidance.words.column_names import ColumnsConfig
from stageb.guidance.words.types import PASS_FAIL, Content, Guidance, Rule, Ticket, Verdict

WRONG = (3, 31)  # rows whose labels are turned round
WORDS = {"pass": "OK", "fail": "NG"}
KEYS: dict[str, Any] = {
    "config": ["tickets", "frugal"],
    "fabric": {"accelerator": "cpu", "devices": 1},
    "model": {"engine": "scripted"},
    "split": {"train": 1.0, "val": 0.0, "test": 0.0},
    "report": False,
}
Row = dict[str, str]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table and JSON Lines of valves, two of them labelled wrongly, and a run on
    each."""
    folder = tmp_path_factory.mktemp("relabel")
    tickets = [*small.rows("valves", 80)]
    for n in WRONG:
        tickets[n]["label"] = "fail" if tickets[n]["label"] == "pass" else "pass"
    (folder / "my.jsonl").write_text("".join(f"{json.dumps(ticket)}\n" for ticket in tickets))
    with (folder / "my.csv").open("w", newline="") as file:
        table = csv.writer(file, delimiter=";", lineterminator="\r\n")
        table.writerow(["id", "checked", "note", "seen"])
        for n, ticket in enumerate(tickets):
            note = {3: 'a "quoted"\nnote; of two lines', 31: "of\ntwo"}.get(n, "")
            table.writerow(
                [f"v-{n}", WORDS[ticket["label"]], note, "; ".join(ticket["per_image"].values())]
            )
    columns = {
        "mission_name": "valves",
        "group_id": "id",
        "label": "checked",
        "passes": ["OK"],
        "fails": ["NG"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        fit_here(
            "my.csv", **KEYS, columns={**columns, "texts": ["seen"]}, output={"run_name": "table"}
        )
        fit_here("my.jsonl", **KEYS, output={"run_name": "lines"})
    return folder


def list_doubts(run: str, path: Path, *moved: str) -> list[Row]:
    named = ["--tickets", *moved] if moved else []
    assert main(["tickets", "doubts", f"out/{run}", "--output", str(path), *named]) == 0
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def relabel(run: str, rows: list[Row], tickets: str, to: Path) -> int:
    path = to.parent / "doubts.csv"
    with path.open("w", newline="") as file:
        # as a spreadsheet may write it again
        table = csv.DictWriter(file, list(rows[0]), delimiter=";")
        table.writeheader()
        table.writerows(rows)
    return main(
        ["tickets", "relabel", f"out/{run}", str(path), "--tickets", tickets, "--output", str(to)]
    )


@pytest.mark.parametrize(("run", "tickets"), [("table", "my.csv"), ("lines", "my.jsonl")])
def test_labels_that_people_correct_come_back_and_nothing_else_changes(
    run: str, tickets: str, learnt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(learnt)
    before, new = Path(tickets).read_bytes(), tmp_path / f"new{Path(tickets).suffix}"
    rows = list_doubts(run, tmp_path / "doubts.csv")
    assert len(rows) == len(WRONG) and all(row["label"] != row["verdict"] for row in rows)
    for row in rows:
        row["right_label"] = row["verdict"]
    assert relabel(run, rows, tickets, new) == 0
    assert Path(tickets).read_bytes() == before
    old_lines, new_lines = (
        before.splitlines(keepends=True),
        new.read_bytes().splitlines(keepends=True),
    )
    assert [
        n for n, (old, made) in enumerate(zip(old_lines, new_lines, strict=True)) if old != made
    ] == [int(row["line"]) - 1 for row in sorted(rows, key=lambda row: int(row["line"]))]
    assert (
        main(
            [
                "predict",
                "--guidance",
                f"out/{run}",
                "--tickets",
                str(new),
                "--by",
                "rules",
                *told(run),
                f"--output={new}l",
            ]
        )
        == 0
    )
    judged = [json.loads(line) for line in Path(f"{new}l").read_text().splitlines()]
    assert len(judged) == 80 and all(row["verdict"] == row["label"] for row in judged)


@pytest.mark.parametrize(("run", "tickets"), [("table", "my.csv"), ("lines", "my.jsonl")])
def test_tickets_that_were_moved_are_corrected_where_they_are_now(
    run: str, tickets: str, learnt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(learnt)
    moved, new = tmp_path / f"moved-{tickets}", tmp_path / f"new-{tickets}"
    moved.write_bytes(Path(tickets).read_bytes())
    there = list_doubts(run, tmp_path / "doubts.csv")
    rows = list_doubts(run, tmp_path / "doubts.csv", str(moved))
    assert rows == [{**row, "file": str(moved)} for row in there] != []
    corrected = [{**row, "right_label": row["verdict"]} for row in rows]
    assert relabel(run, corrected, str(moved), new) == 0
    assert list_doubts(run, tmp_path / "doubts.csv", str(new)) == []


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "'=", "'"])
def test_tickets_with_names_that_begin_like_formulas_are_corrected(
    begin: str, learnt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against which the table of doubts has an apostrophe before them; so has the file's name."""
    monkeypatch.chdir(tmp_path)
    Path("out").symlink_to(learnt / "out")
    tickets = f"{begin}my.csv"
    Path(tickets).write_bytes(
        (learnt / "my.csv").read_bytes().replace(b"v-", f"{begin}v-".encode())
    )
    named = f"./{tickets}" if begin == "-" else tickets
    rows = list_doubts("table", tmp_path / "table.csv", named)
    assert len(rows) == len(WRONG)
    corrected = [{**row, "right_label": row["verdict"]} for row in rows]
    assert relabel("table", corrected, named, tmp_path / "new.csv") == 0
    old, new = (
        [*csv.reader(Path(name).read_text().splitlines(keepends=True), delimiter=";")]
        for name in (tickets, "new.csv")
    )
    changed = [was[0] for was, now in zip(old, new, strict=True) if was != now]
    assert changed == [f"{begin}v-{n}" for n in WRONG]


def test_a_workbook_stays_one_and_nothing_but_the_labels_changes(
    learnt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers, dates, formulas and other sheets stay, and what stands in a cell may look like
    XML."""
    monkeypatch.chdir(tmp_path)
    Path("out").symlink_to(learnt / "out")
    lines = list(
        csv.reader((learnt / "my.csv").read_text().splitlines(keepends=True), delimiter=";")
    )
    rows: list[list[Any]] = [
        [*line, date(2024, 5, 17), number / 7] for number, line in enumerate(lines)
    ]
    rows[0][-2:], rows[7][2] = ["day", "size"], '<c r="B9"><v>OK</v></c>'
    write_xlsx(Path("my.xlsx"), rows, [["notes", "sum"], ["a", "=1+1"]], hidden=[2])
    fails = [n for n, row in enumerate(rows) if row[1] == "NG"]
    doubts: list[dict[str, Any]] = [
        {
            "file": "my.xlsx",
            "line": str(n + 1),
            "group_id": rows[n][0],
            "label": "fail",
            "right_label": "OK",
        }
        for n in fails
    ]
    assert relabel("table", doubts, "my.xlsx", Path("new.xlsx")) == 0
    old, new = (
        [raw.decode() for _, raw in table_lines(path, "tickets")]
        for path in ("my.xlsx", "new.xlsx")
    )
    assert new == [line.replace("\tNG\t", "\tOK\t") for line in old] != old
    parts, written = read_parts("my.xlsx"), read_parts("new.xlsx")
    assert parts.keys() == written.keys()
    assert {name for name, data in written.items() if data != parts[name]} == {
        "xl/worksheets/s1.xml"
    }


def read_parts(path: str) -> dict[str, bytes]:
    with ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("suffix", [".csv", ".TSV"])
def test_a_workbook_may_become_a_table_of_text(suffix: str, tmp_path: Path) -> None:
    rows = [["id", "seen", "label"], ["a", "new, dry", "pass"], ["b", 'a "worn" seal', "pass"]]
    write_xlsx(path := tmp_path / "my.xlsx", rows)
    columns = ColumnsConfig(mission_name="valves", group_id="id", texts=["seen"])
    write_corrected(str(path), columns, {3: "fail"}, new := tmp_path / f"new{suffix}")
    with new.open(newline="") as file:
        read = csv.reader(file, "excel" if suffix == ".csv" else "excel-tab")
        assert [*read] == [*rows[:2], [*rows[2][:2], "fail"]]


def test_a_table_keeps_the_mark_that_it_begins_with_and_the_ends_of_its_lines(
    tmp_path: Path,
) -> None:
    before = '\ufeffid,seen,label\r\na,"new, dry",pass\r\nb,worn,pass\n'.encode()
    (path := tmp_path / "my.csv").write_bytes(before)
    columns = ColumnsConfig(mission_name="valves", group_id="id", texts=["seen"])
    write_corrected(str(path), columns, {3: "fail"}, new := tmp_path / "new.csv")
    assert new.read_bytes() == before.replace(b"worn,pass", b"worn,fail")


def test_a_line_of_json_keeps_all_but_its_label_as_it_was_written(tmp_path: Path) -> None:
    tickets = [
        {
            "mission": "Ventile",
            "group_id": f"Größe {n}",
            "label": "pass",
            "per_image": {"1": f"漏油 {n}"},
            "note": [n],
        }
        for n in range(4)
    ]
    lines = [json.dumps(ticket, ensure_ascii=False) for ticket in tickets]
    (path := tmp_path / "my.jsonl").write_text("\n".join(lines) + "\n")
    write_corrected(str(path), ColumnsConfig(), {2: "fail", 4: "fail"}, new := tmp_path / "n.jsonl")
    for n in (1, 3):
        lines[n] = lines[n].replace('"pass"', '"fail"')
    assert new.read_text().splitlines() == lines


def test_what_no_file_of_its_kind_is_written_of_becomes_a_table_of_text() -> None:
    suffixes = {name: list_suffixes(f"My.{name}") for name in ("XLSX", "ods", "parquet", "csv")}
    assert suffixes == {
        "XLSX": [".xlsx", ".csv", ".tsv"],
        "ods": [".csv", ".tsv"],
        "parquet": [".csv", ".tsv"],
        "csv": [".csv"],
    }


@pytest.mark.parametrize("line", [2, 3])
def test_a_label_in_merged_cells_is_refused(line: int, tmp_path: Path) -> None:
    write_xlsx(
        path := tmp_path / "my.xlsx", [["id", "label"], ["a", "pass"], ["b", ""]], merged=["B2:B3"]
    )
    columns = ColumnsConfig(mission_name="valves", group_id="id", texts=["id"])
    with pytest.raises(InputError, match="merged cells"):
        write_workbook(str(path), columns, {line: "fail"}, tmp_path / "new.xlsx")
    assert [*tmp_path.iterdir()] == [path]


def told(run: str) -> list[str]:
    columns = "mission_name=valves,group_id=id,label=checked,passes=OK,fails=NG,texts=seen"
    return ["--model.engine=scripted", *(["--columns", columns] if run == "table" else [])]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"right_label": "perhaps"},
            'doubts.csv:2: right_label "perhaps"; write one of OK, NG, or nothing',
        ),
        ({"right_label": ""}, 'no label of "my.csv" is corrected'),
        ({"right_label": "OK", "label": "other"}, "labelled other; the file has changed"),
        ({"right_label": "OK", "line": "999"}, "on its line of the ticket file is no ticket"),
        ({"right_label": "OK", "line": "7 or so"}, 'line "7 or so"; leave it as it was written'),
        ({"right_label": "OK", "file": "other.csv"}, 'it has some of "other.csv"'),
    ],
)
def test_what_cannot_be_corrected_is_named_by_line_and_value_and_nothing_is_written(
    change: Row,
    said: str,
    learnt: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(learnt)
    row, *_ = list_doubts("table", tmp_path / "doubts.csv")
    assert relabel("table", [{**row, **change}], "my.csv", tmp_path / "new.csv") == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new.csv").exists()


def test_a_ticket_file_is_never_written_over(
    learnt: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(learnt)
    rows = [
        {**row, "right_label": row["verdict"]}
        for row in list_doubts("table", tmp_path / "doubts.csv")
    ]
    for to in (learnt / "my.csv", tmp_path / "new.jsonl", tmp_path / "doubts.csv"):
        before = to.read_bytes() if to.exists() else None
        assert relabel("table", rows, "my.csv", to) == 2
        assert to.name == "doubts.csv" or (to.read_bytes() if to.exists() else None) == before
    assert main(["tickets", "doubts", "out/table", "--output", "my.csv"]) == 2


def test_verdicts_are_tasks_of_label_studio(
    learnt: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(learnt)
    told_rows, tasks = tmp_path / "told.jsonl", tmp_path / "tasks.json"
    judge = [
        "predict",
        "--guidance",
        "out/table",
        "--tickets",
        "my.csv",
        "--by",
        "rules",
        *told("table"),
    ]
    assert main([*judge, f"--output={told_rows}"]) == 0
    rows = [json.loads(line) for line in told_rows.read_text().splitlines()]
    command = [
        "tickets",
        "tasks",
        "out/table",
        str(told_rows),
        "--tickets",
        "my.csv",
        "--output",
        str(tasks),
    ]
    assert main(command) == 0
    made = json.loads(tasks.read_text())
    assert [task["data"]["group_id"] for task in made] == [row["group_id"] for row in rows]
    for row, task in zip(rows, made, strict=True):
        ((verdict, reason),) = [each["result"] for each in task["predictions"]]
        assert verdict == {
            "from_name": "verdict",
            "to_name": "text",
            "type": "choices",
            "value": {"choices": [row["verdict"]]},
        }
        assert reason["value"] == {"text": [row["reason"]]} and "state" in task["data"]["text"]
    assert main([*command, "--review"]) == 0 and json.loads(tasks.read_text()) == []
    capsys.readouterr()
    assert main([*command[:5], "my.jsonl", *command[6:]]) == 2
    assert "name the files that were judged" in capsys.readouterr().err
    other = {**rows[0], "group_id": "v-other"}
    told_rows.write_text(f"{json.dumps(other)}\n")
    assert main(command) == 2
    assert "my.csv:2 does not hold 'v-other'" in " ".join(capsys.readouterr().err.split())
    told_rows.write_text('{"file": "my.csv"}\n')
    assert main(command) == 2
    assert "no rows of predict" in capsys.readouterr().err


def made(rows: list[tuple[str, str, Verdict]]) -> list[Ticket]:
    """Tickets of two fields, and their labels."""
    return [
        Ticket(
            "valves",
            f"v-{n}",
            label,
            (("image_1", f"seal: {seal}; bolt: {bolt}"),),
            content=Content((("seal", seal), ("bolt", bolt)), ()),
        )
        for n, (seal, bolt, label) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("labels", "headline", "rule", "odd", "even"),
    [
        (PASS_FAIL, "A ticket passes unless a rule fails it.", "Fail if seal is worn.", "fail", "pass"),
        (PASS_FAIL, "A ticket fails unless a rule passes it.", "Pass if seal is worn.", "pass", "fail"),
        (("low", "high"), "A ticket is low unless a rule says otherwise.", "High if seal is worn.", "high", "low"),
        (("high", "low"), "A ticket is high unless a rule says otherwise.", "Low if seal is worn.", "low", "high"),
    ],
)  # fmt: skip
def test_labels_that_nothing_explains_are_told_from_wrong_ones_whatever_labels_are_called(
    labels: tuple[Verdict, ...], headline: str, rule: str, odd: Verdict, even: Verdict
) -> None:
    """Of the tickets of which a rule tells, one has the other label; of the others two have."""
    rows: list[tuple[str, str, Verdict]] = [
        *[("new", "tight", even)] * 8,
        ("new", "loose", odd),
        ("worn", "tight", even),
        ("new", "tight", odd),
        *[("worn", "tight", odd)] * 4,
    ]
    assert doubt(labels, (headline, rule), rows) == [
        ("v-9", odd, "contradicted"),
        ("v-8", even, "unexplained"),
        ("v-10", even, "unexplained"),
    ]


def test_doubts_of_the_rule_that_is_mostly_right_come_first() -> None:
    """Whichever decides more."""
    rules = ("A ticket passes unless a rule fails it.", "Fail if seal is worn.")
    rows: list[tuple[str, str, Verdict]] = [
        *[("worn", "tight", "fail")] * 16,
        *[("worn", "tight", "pass")] * 4,
        *[("new", "loose", "fail")] * 8,
        ("new", "loose", "pass"),
    ]
    found = doubt(PASS_FAIL, (*rules, "Fail if bolt is loose."), rows)
    assert [name for name, *_ in found] == ["v-28", "v-16", "v-17", "v-18", "v-19"]


@pytest.mark.parametrize(
    ("run", "columns"),
    [
        ("table", ColumnsConfig()),  # those of the run
        ("lines", ColumnsConfig(mission_name="valves", group_id="id", label="checked")),
    ],
)
def test_tickets_that_are_named_are_read_by_the_columns_that_are_or_those_of_the_run(
    run: str, columns: ColumnsConfig, learnt: Path
) -> None:
    found, why = find_tickets(f"{learnt}/out/{run}", "", [f"{learnt}/my.csv"], columns)
    assert not why and [each.group_id for each in found] == [f"v-{n}" for n in range(80)]


@pytest.mark.parametrize("headline", ["passes unless a rule fails", "fails unless a rule passes"])
def test_a_rule_that_gives_the_verdict_of_the_headline_speaks_of_its_tickets(headline: str) -> None:
    """It holds evidence against their labels, where the headline alone holds none."""
    rules = (f"A ticket {headline} it.", "Pass if seal is new.", "Fail if bolt is loose.")
    rows: list[tuple[str, str, Verdict]] = [
        ("new", "tight", "fail"),
        ("new", "loose", "fail"),
        ("worn", "loose", "pass"),
        ("old", "tight", "fail" if headline.startswith("passes") else "pass"),
    ]
    kinds = {name: kind for name, _, kind in doubt(PASS_FAIL, rules, rows)}
    assert kinds == {**dict.fromkeys(("v-0", "v-1", "v-2"), "contradicted"), "v-3": "unexplained"}


def test_where_rules_cannot_tell_the_last_verdict_speaks_as_they_do() -> None:
    rules = ("A ticket passes unless a rule fails it.", "Fail if it looks odd.")
    tickets = made([("new", "tight", "fail"), ("new", "loose", "pass")])
    last = {
        ("valves", each.key): {"verdict": verdict, "reason": "seen"}
        for each, verdict in zip(tickets, ("pass", "fail"), strict=True)
    }
    judge = make_judge(PASS_FAIL, rules, tickets)
    kinds = {each.ticket.group_id: each.kind for each in find_doubts(tickets, judge, last)}
    assert kinds == {"v-0": "unexplained", "v-1": "contradicted"}


def make_judge(
    labels: tuple[Verdict, ...], texts: Sequence[str], tickets: Sequence[Ticket]
) -> CodeJudge:
    rules = tuple(Rule(f"G{number}", text) for number, text in enumerate(texts))
    guidance = Guidance("valves", 1, rules, len(rules), labels=labels)
    return CodeJudge(code_rules({"valves": guidance}, tickets, WORDINGS["en"]))


def doubt(
    labels: tuple[Verdict, ...], texts: Sequence[str], rows: list[tuple[str, str, Verdict]]
) -> list[tuple[str, str, str]]:
    """Names of doubted tickets, other verdicts on them, and the kinds of these doubts, where rules
    tell: whatever was said last, as a model may have, which judged."""
    tickets = made(rows)
    judge = make_judge(labels, texts, tickets)
    (found,) = {
        tuple(
            (each.ticket.group_id, each.verdict, each.kind, each.why)
            for each in find_doubts(tickets, judge, last)
        )
        for last in (
            {},
            *(
                {("valves", each.key): {"verdict": said, "reason": "seen"} for each in tickets}
                for said in labels
            ),
        )
    }
    return [each[:3] for each in found]
